"""Parses conda's MatchSpec in every form that conda accepts, and writes it in py-rattler's form.

conda and py-rattler agree on most of the language but not on all: conda takes ``name=1.2=build`` for the exact version
and ``name=1.2`` for the fuzzy one, ignores white space nearly everywhere, keeps a hash after a URL only in explicit
files. So a spec is parsed here with conda's semantics, and the solver receives an unambiguous form of it:

    numpy=1.19                       numpy 1.19.*
    numpy=1.19.2=py38_0              numpy ==1.19.2 py38_0
    pytorch>=2.7.0=cuda12*           pytorch >=2.7.0 cuda12*
    conda-forge/linux-64::mpi4py     conda-forge/linux-64::mpi4py
    https://host/c/noarch/a-1-0.conda#md5   a[url="https://host/c/noarch/a-1-0.conda",md5="..."]

The grammar is that of conda 26 (``conda.models.match_spec``, CEP 29); package names follow CEP 26.
"""

from __future__ import annotations

import re
from dataclasses import field
from pathlib import Path
from urllib.parse import unquote

from stackyard.core.errors import InputError, Where
from stackyard.core.late import dataclass
from stackyard.core.quoting import cut, quoted
from stackyard.host.machine.platforms import SUBDIRS
from stackyard.inputs.conda.versionspec import SpecProblem, canonical_version, fuzzy_or_exact
from stackyard.inputs.models import CondaRequirement
from stackyard.inputs.reading.paths import absolute

_FIELDS = {
    *("version", "build", "build_number", "channel", "subdir", "name", "fn", "url", "md5", "sha256"),
    *("license", "license_family", "features", "track_features", "extras", "flags", "when"),
}
_ARCHIVES = (".tar.bz2", ".conda")
_LONGEST = 2000
"""Characters of one spec."""
_NAME = re.compile(r"(?:[a-z0-9]|_(?!_)|__(?=[a-z0-9]))[a-z0-9._-]*", re.IGNORECASE)
_PAIR = re.compile(
    r"""\s*,?\s*(?P<key>[\w-]+)\s*=\s*(?:"(?P<double>[^"]*)"|'(?P<single>[^']*)'|(?P<list>\[[^\]]*\])|(?P<bare>[^,\s]*))"""
)
_HASH = re.compile(r"(?:(?P<md5>[0-9a-f]{32})|(?:sha256:)?(?P<sha256>[0-9a-f]{64}))", re.IGNORECASE)
_PARTS = re.compile(r"(?P<name>[^\s=<>!~]+)?(?P<rest>[><!=~\s].*)?", re.DOTALL)


@dataclass
class _SpecParts:
    """The parsed parts of one spec."""

    text: str
    name: str = ""
    version: str = ""
    build: str = ""
    channel: str = ""
    subdir: str = ""
    url: str = ""
    others: dict[str, str] = field(default_factory=dict)
    notices: list[str] = field(default_factory=list)


def parse_matchspec(
    text: str, place: Where, *, base_dir: Path, selector: str = "", notices: list[str] | None = None
) -> CondaRequirement:
    """Parse one conda dependency.

    Args:
        text: the dependency as written.
        place: where, for errors and for the requirement.
        base_dir: the directory for relative paths to package files.
        selector: stored in the requirement.
        notices: receives sentences about parts of this spec that conda ignores.

    Raises:
        InputError: conda does not accept it, or no solver can express it; the hint has an alternative.
    """
    try:
        reading = _read(text.strip(), base_dir)
        spec = _canonical(reading)
    except SpecProblem as refused:
        message = f"{quoted(text.strip())} is not a conda package spec: {refused.message}"
        raise InputError(message, where=place, hint=refused.hint) from refused
    if re.search(r"\*\.\*", reading.version):
        stem = reading.version.partition(".*")[0]
        reading.notices.append(f"{reading.version} of {quoted(text)} is read as {stem}.*, with any number of parts")
    if notices is not None:
        notices += [f"{place.in_short}: {notice}" for notice in reading.notices]
    parts = {name: getattr(reading, name) for name in ("name", "version", "build", "channel", "subdir", "url")}
    return CondaRequirement(text=text, spec=spec, selector=selector, place=place, **parts)


def _read(text: str, base_dir: Path) -> _SpecParts:
    reading = _SpecParts(text)
    if not text:
        raise SpecProblem("the spec is empty", "write the name of a package, or remove the line")
    if len(text) > _LONGEST:
        raise SpecProblem(f"longer than {_LONGEST} characters", "write `name version build`")
    if " - " in text or "\n" in text:
        raise SpecProblem("two lines are joined to one", "begin each package with `- `, all at the same indentation")
    if "{{" in text or "{%" in text:
        raise SpecProblem("it contains Jinja", "render the template first and use the result")
    body, _, comment = text.partition("#")
    body = body.strip()
    if body.endswith(_ARCHIVES) and "[" not in body:
        return _read_archive(reading, body, comment.strip(), base_dir)
    body, _, condition = body.partition(" if ")
    if condition:
        reading.notices.append(f"conda ignores the condition `if {cut(condition.strip())}` of {quoted(text)}")
    if body.endswith("@"):
        raise SpecProblem("conda no longer supports features", "name the package that provides the feature, e.g. nomkl")
    outside, brackets = _brackets(reading, body)
    outside = re.sub(r"\(.*\)", "", outside) if outside.rstrip().endswith(")") else outside
    _read_channel(reading, outside)
    _apply_brackets(reading, brackets)
    return reading


def _read_archive(reading: _SpecParts, body: str, fragment: str, base_dir: Path) -> _SpecParts:
    url = body if "://" in body else absolute(body, base_dir).as_uri()
    stem = unquote(url.rsplit("/", 1)[-1])
    for ending in _ARCHIVES:
        stem = stem.removesuffix(ending)
    pieces = stem.rsplit("-", 2)
    if len(pieces) != 3 or not all(pieces):
        raise SpecProblem(
            "a package file must be named name-version-build.conda or .tar.bz2", "rename the file to its original name"
        )
    reading.name, reading.version, reading.build = pieces[0].lower(), f"=={pieces[1]}", pieces[2]
    reading.url = url
    directory, _, last = url.rsplit("/", 1)[0].rpartition("/")
    if last in SUBDIRS:
        reading.channel, reading.subdir = directory, last
    match = _HASH.fullmatch(fragment)
    if match:
        reading.others |= {kind: value.lower() for kind, value in match.groupdict().items() if value}
    elif fragment:
        reading.notices.append(f"`#{fragment}` after a package file is neither an md5 nor a sha256 and is ignored")
    return reading


def _brackets(reading: _SpecParts, body: str) -> tuple[str, dict[str, str]]:
    start, end = body.find("["), body.rfind("]")
    if start < 0 and end < 0:
        return body, {}
    if start < 0 or end < start:
        raise SpecProblem("a bracket is not closed", "write [key='value', key='value']")
    inside, outside = body[start + 1 : end], body[:start] + body[end + 1 :]
    if "][" in inside.replace(" ", ""):
        raise SpecProblem("two pairs of brackets", "put all keys into one: [version='>=1', build='py*']")
    loose = re.match(r"version\s*(?P<version>[<>!~].*)", inside)
    if loose:
        return outside, {"version": loose["version"]}
    if "=" not in inside:
        reading.notices.append(
            f"conda packages have no extras: `[{cut(inside)}]` of {quoted(reading.text)} is ignored, as by conda"
        )
        return outside, {}
    return outside, _pairs(inside)


def _pairs(inside: str) -> dict[str, str]:
    pairs: dict[str, str] = {}
    position = 0
    while inside[position:].strip(" ,\t"):
        pair = _PAIR.match(inside, position)
        value = pair and next((pair[kind] for kind in ("double", "single", "list", "bare") if pair[kind]), "")
        if not pair or not value:
            raise SpecProblem(
                "the brackets must contain key='value' pairs", "quote values that hold commas, spaces or equal signs"
            )
        if pair["key"] not in _FIELDS:
            raise SpecProblem(
                f"{quoted(pair['key'])} is not a key of a spec", f"known keys: {', '.join(sorted(_FIELDS))}"
            )
        pairs[pair["key"]] = value
        position = pair.end()
    return pairs


def _read_channel(reading: _SpecParts, outside: str) -> None:
    *before, package = outside.strip().rsplit(":", 2)
    if before and "/" in package:  # the colon of a URL that leads nowhere
        hint = "use a URL that ends in .conda or .tar.bz2, write channel::package, or put it under `pip:`"
        raise SpecProblem("the URL does not point to a package file", hint)
    if len(before) == 2:
        reading.channel, reading.subdir = split_channel(before[0].strip())
    if before and before[-1].strip():
        reading.notices.append(
            f"the namespace {quoted(before[-1].strip())} of {quoted(reading.text)} is ignored, as by conda"
        )
    _read_package(reading, package.strip())


def _read_package(reading: _SpecParts, package: str) -> None:
    parts = _PARTS.fullmatch(package)
    name = parts["name"] if parts else None
    if not parts or not name:
        raise SpecProblem("missing package name", "write the name first: numpy >=1.2")
    if "*" in name:
        raise SpecProblem(f"{quoted(name)} matches many packages", "name one package per line")
    if name.startswith("-"):
        raise SpecProblem("it is a pip option", "put it into the list under `- pip:`")
    if ";" in package:
        raise SpecProblem("conda does not support markers", "write a selector after it, `# [linux64]`, or use `pip:`")
    if not _NAME.fullmatch(name):
        raise SpecProblem(f"{quoted(name)} is not a package name", "use only letters, digits, `-`, `_` and `.`")
    reading.name = name.lower()
    rest = (parts["rest"] or "").strip()
    if parts["rest"] == "=":
        reading.notices.append(f"trailing `=` of {quoted(reading.text)} is ignored, as by conda")
    elif rest:
        version, reading.build = _split_build(rest)
        if " " in reading.build:
            raise SpecProblem("too many parts", "write `name version build`; join versions with commas")
        reading.version = fuzzy_or_exact(version, bool(reading.build))


def _split_build(rest: str) -> tuple[str, str]:
    """Version and build of ``=1.2=py_0``, ``>=1.0 , <2 py*`` or ``1.2``: the build follows the first blank or ``=``
    that belongs to no operator and is followed by nothing but a build."""
    for at, char in enumerate(rest[:-1]):
        build = rest[at + 1 :].strip()
        free = at > 0 and rest[at - 1] not in "=!|,<>~"
        if char in " \t=" and free and build and not set(build) & set("-=,|<>~"):
            return "".join(rest[:at].split()), build
    return "".join(rest.split()), ""


def _apply_brackets(reading: _SpecParts, brackets: dict[str, str]) -> None:
    if "name" in brackets:
        reading.notices.append(f"the name in the brackets of {quoted(reading.text)} is ignored, as by conda")
    if "channel" in brackets:
        reading.channel, subdir = split_channel(brackets["channel"])
        reading.subdir = subdir or reading.subdir
    reading.subdir = brackets.get("subdir", reading.subdir)
    reading.build = brackets.get("build", reading.build)
    reading.url = brackets.get("url", "")
    if "version" in brackets:
        reading.version = fuzzy_or_exact("".join(brackets["version"].split()), False)
    taken = {"name", "channel", "subdir", "build", "url", "version"}
    reading.others |= {key: value for key, value in brackets.items() if key not in taken}


def split_channel(channel: str) -> tuple[str, str]:
    """Channel and subdir of ``conda-forge/linux-64`` or of a URL; ``*`` as a channel means any, hence empty."""
    directory, _, last = channel.rstrip("/").rpartition("/")
    if last in SUBDIRS and directory:
        return ("" if directory == "*" else directory), last
    return ("" if channel == "*" else channel), ""


def _canonical(reading: _SpecParts) -> str:
    """The spec in a form that py-rattler parses as conda parses the original; py-rattler must accept it."""
    version = canonical_version(reading.version) if reading.version else ""
    others = dict(reading.others)
    if reading.url:
        spec, others["url"] = reading.name, reading.url
    else:
        channel = reading.channel
        channel = absolute(channel, Path("/")).as_uri() if channel.startswith(("/", "~/")) else channel
        channel = f"{channel}/{reading.subdir}" if channel and reading.subdir else channel
        head = f"{channel}::{reading.name}" if channel else reading.name
        build = reading.build if reading.build != "*" else ""
        spec = " ".join(part for part in (head, version or ("*" if build else ""), build) if part)
        if reading.subdir and not reading.channel:
            others["subdir"] = reading.subdir
    if others:
        pairs = [f"{key}={value}" if value.startswith("[") else f'{key}="{value}"' for key, value in others.items()]
        spec += f"[{','.join(pairs)}]"
    _must_parse(spec)
    return spec


def _must_parse(spec: str) -> None:
    from rattler import MatchSpec
    from rattler.exceptions import InvalidMatchSpecError

    try:
        MatchSpec(spec)
    except InvalidMatchSpecError as error:
        raise SpecProblem(
            "cannot parse its version or build", "write it as `name version build`, e.g. `numpy >=1.26,<2 py311*`"
        ) from error
