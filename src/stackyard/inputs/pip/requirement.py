"""Parses one pip requirement: a name with versions, a URL, a repository or a local path, distinguished as by pip.

The tests have the same order as in pip (``pip._internal.req.constructors``): URL, path, ``name @ url``, name with a
specifier.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Literal
from urllib.parse import parse_qsl, unquote

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import parse_wheel_filename

from stackyard.core.errors import InputError, Where
from stackyard.core.late import dataclass
from stackyard.core.quoting import cut, quoted
from stackyard.inputs.models import PipRequirement
from stackyard.inputs.reading.paths import absolute
from stackyard.yard import disk

Kind = Literal["name", "url", "vcs", "path"]
ARCHIVES = (".whl", ".zip", ".tar.gz", ".tgz", ".tar", ".tar.bz2", ".tbz", ".tar.xz", ".txz", ".tlz", ".tar.lz")
NOT_THERE = "does not exist (yet)"
ANY_FORM = "write name==version, name>=version or name @ https://…"
"""The hint where nothing is known of what was meant."""
_URL = re.compile(r"(?P<vcs>(?:git|hg|svn|bzr)(?:\+[a-z]+)?)?(?(vcs)|(?:https?|ftp|file)):", re.IGNORECASE)
_VARIABLE = re.compile(r"\$\{(?P<name>[A-Z0-9_]+)\}")
_REPOSITORY = re.compile(r"(?P<system>[a-z]+)\+(?P<scheme>[^:]*):(?://)?(?P<rest>.*)", re.IGNORECASE | re.DOTALL)
_NAME = re.compile(r"[A-Za-z0-9][\w.-]*\s*(\[[^\]]*\])?\s*")
_SYSTEMS = {"hg": "Mercurial", "svn": "Subversion", "bzr": "Bazaar"}
_EXTRAS = re.compile(r"(?P<path>.+?)(?P<extras>\[[^\]]*\])\s*$", re.DOTALL)
_COMMAND = re.compile(r"[!%]?(?:pip3?|conda|mamba)\s+install\s+(?P<packages>.+)")
_RANGE_STAR = re.compile(r"(?P<operator>>=|<=|>|<)(?P<space>\s*)(?P<version>[\w.!]+?)\.\*")
HEX_LENGTHS = {"sha256": 64, "sha384": 96, "sha512": 128}
"""Digits of the hashes that pip accepts."""
_LONGEST_FILENAME = 255
"""Bytes: NAME_MAX of Linux and its file systems."""


@dataclass(frozen=True)
class Options:
    """The options on a requirement's own line."""

    hashes: tuple[str, ...] = ()
    config_settings: tuple[str, ...] = ()


@dataclass(frozen=True)
class Context:
    """The context of a requirement: the directory of relative paths, the environment for ``${NAME}``, its notices."""

    base_dir: Path
    environ: Mapping[str, str]
    notices: list[str]

    def notice(self, place: Where, text: str) -> None:
        """Add a message for the user, with its place."""
        self.notices.append(f"{place.in_short}: {text}")


def expand(text: str, environ: Mapping[str, str]) -> str:
    """Replace ``${NAME}`` as pip does: capital letters, digits and ``_`` only; unset variables are kept."""
    return _VARIABLE.sub(lambda match: environ.get(match["name"]) or match.group(), text)


def lacks_project(path: Path) -> bool:
    """Whether this is a directory that pip cannot build a package from."""
    return path.is_dir() and not any((path / name).is_file() for name in ("pyproject.toml", "setup.py"))


def parse_requirement(
    text: str,
    place: Where,
    context: Context,
    *,
    editable: bool = False,
    options: Options | None = None,
    selector: str = "",
) -> PipRequirement:
    """Parse one requirement, without its options.

    Args:
        text: the requirement; for an editable one the text after ``-e``.
        place: where, for errors and for the result.
        context: base directory, environment and notices.
        editable: whether it was ``-e``: stored in the result, which becomes a wheel made from a snapshot.
        options: ``--hash`` and ``--config-settings`` of the same line.
        selector: stored in the result.

    Raises:
        InputError: pip does not accept it; the hint has an alternative.
        OSError: a local path cannot be looked up.
    """
    reader = _Reader(text.strip(), place, context, editable)
    fields = reader.read()
    options = options or Options()
    hashes = tuple(dict.fromkeys((*options.hashes, *reader.hashes)))
    _check_hashes(hashes, place, context)
    if editable:
        context.notice(place, f"`-e {cut(text.strip())}` becomes a wheel built from a hashed snapshot of its source")
    shown = f"-e {text.strip()}" if editable else text.strip()
    return PipRequirement(
        text=shown,
        editable=editable,
        hashes=hashes,
        config_settings=options.config_settings,
        selector=selector,
        place=place,
        **fields,
    )


class _Reader:
    def __init__(self, text: str, place: Where, context: Context, editable: bool) -> None:
        self.text, self.place, self.context, self.editable = text, place, context, editable
        self.expanded = expand(text, context.environ)
        self.hashes: tuple[str, ...] = ()

    def read(self) -> dict[str, object]:
        """The fields of the model that depend on the kind."""
        if not self.text:
            raise self.refuse("missing requirement", "write the name of a package, or remove the line")
        if "{{" in self.text or "{%" in self.text:
            raise self.refuse("it contains Jinja", "render the template first and use the result")
        if _URL.match(self.text):
            url, marker = _cut(self.text, "; ")
            return self._url("", url, marker)
        shorthand = re.match(r"git\+(?P<login>[\w.-]+@[\w.-]+):(?P<path>.+)", self.text)
        if shorthand:
            url = f"git+ssh://{shorthand['login']}/{shorthand['path']}"
            raise self.refuse("pip does not accept the short form of ssh URLs", f"write {url}")
        if re.match(r"[a-z][a-z0-9+.-]*://", self.text, re.IGNORECASE):
            raise self.refuse("pip does not support this kind of URL", "write https://… or git+https://…")
        name, at, rest = self.text.partition("@")
        if at and _NAME.fullmatch(name) and (_URL.match(rest.strip()) or "/" in rest):
            return self._named_url()
        expanded, marker = _cut(self.expanded, ";")
        if (
            self.editable
            or "/" in expanded
            or expanded.startswith((".", "~"))
            or _strip_extras(expanded)[0].lower().endswith(ARCHIVES)
        ):
            return self._path(expanded, marker)
        return self._name()

    def refuse(self, message: str, hint: str) -> InputError:
        """The error for this requirement."""
        message = f"{quoted(self.text)} is not a pip requirement: {message}"
        return InputError(message, where=self.place, hint=cut(hint))

    def _named_url(self) -> dict[str, object]:
        head, _, rest = self.text.partition("@")
        url, marker = _cut(rest.strip(), " ;") if " ;" in rest else _cut(rest.strip(), "; ")
        if not _URL.match(url):
            return self._path(url, marker, head.strip())
        return self._url(head.strip(), url, marker)

    def _url(self, head: str, url: str, marker: str) -> dict[str, object]:
        if self.editable and not url.lower().startswith(("git", "hg", "svn", "bzr", "file:")):
            raise self.refuse("-e takes a project directory or a repository", "leave out -e, or write git+https://…")
        if url.lower().startswith("file:"):
            return self._path(unquote(re.sub(r"^file:(//(localhost)?(?=/))?", "", url)), marker, head)
        # the fragment has the name (egg=), hashes, and what is left to pip (subdirectory=)
        base, _, fragment = url.partition("#")
        parts = dict(parse_qsl(fragment.replace("+", "%2B")))
        name, extras = _name_and_extras(head or parts.get("egg", ""))
        vcs = bool(re.match(r"(git|hg|svn|bzr)\+", url, re.IGNORECASE))
        if not vcs and re.match(r"(git|hg|svn|bzr):", url, re.IGNORECASE):
            raise self.refuse("pip does not support this kind of URL", f"write git+{url.replace('git:', 'https:', 1)}")
        if vcs:
            self._require_git(url)
        self.hashes = tuple(f"{kind}:{parts[kind]}" for kind in HEX_LENGTHS if kind in parts)
        name, specifier = self._from_filename(base, name)
        parameters = "&".join(part for part in fragment.split("&") if part and not part.startswith("egg="))
        clean = f"{base}#{parameters}" if parameters else base
        line = f"{name}{_bracketed(extras)} @ {clean}" if name else clean
        kind: Kind = "vcs" if vcs else "url"
        return self._fields(kind, line, name, extras, specifier, self._marker(marker), url=clean)

    def _require_git(self, url: str) -> None:
        """Reject repositories that pip supports and uv does not; most servers no longer offer git://."""
        match = _REPOSITORY.fullmatch(url)
        if not match:
            return
        system, scheme, rest = match["system"].lower(), match["scheme"].lower(), match["rest"]
        if system != "git":
            hint = "write a git+https:// repository or an archive, or save the source and write its path"
            raise self._unsupported(f"{_SYSTEMS[system]} repositories are not supported", hint)
        if scheme not in ("https", "http", "ssh", "file"):
            raise self._unsupported(f"{scheme}:// is not supported", f"write git+https://{rest}")
        host, colon, path = rest.partition(":")
        if scheme == "ssh" and colon and "/" not in host and not re.match(r"\d+(?:/|$)|\$\{", path):
            raise self._unsupported("a port belongs after the `:`", f"write git+ssh://{host}/{path}")

    def _unsupported(self, message: str, hint: str) -> InputError:
        return InputError(f"{quoted(self.text)}: {message}", where=self.place, hint=cut(hint))

    def _path(self, text: str, marker: str, head: str = "") -> dict[str, object]:
        stem, extras_text = _strip_extras(text.partition("#")[0].strip())
        name, extras = _name_and_extras(head)
        extras = extras or _name_and_extras(f"x{extras_text}")[1]
        path = absolute(expand(stem, self.context.environ), self.context.base_dir)
        egg = dict(parse_qsl(text.partition("#")[2])).get("egg", "")
        name, specifier = self._from_filename(str(path), name or _name_and_extras(egg)[0])
        self._notice_missing(path)
        plain = re.fullmatch(r"[\w/.+~-]+", str(path))
        target = str(path) if plain and not name else path.as_uri()
        line = f"{name}{_bracketed(extras)} @ {target}" if name else f"{target}{_bracketed(extras)}"
        return self._fields("path", line, name, extras, specifier, self._marker(marker), path=str(path))

    def _notice_missing(self, path: Path) -> None:
        if not disk.is_there(path):
            self.context.notice(self.place, f"{path} {NOT_THERE}")
        elif lacks_project(path):
            self.context.notice(self.place, f"{path} contains neither pyproject.toml nor setup.py (yet)")

    def _name(self) -> dict[str, object]:
        text = self.expanded
        if _RANGE_STAR.search(text):
            text = _RANGE_STAR.sub(r"\g<operator>\g<space>\g<version>", text)
            self.context.notice(
                self.place,
                f"{quoted(self.text)} is read as {quoted(text)}: "
                "`.*` is invalid in a range, and rejected by pip since 24.1",
            )
        try:
            read = _parsed(text)
        except InvalidRequirement as error:
            raise self._explain(str(error).splitlines()[0]) from error
        extras = tuple(sorted(read.extras))
        marker = str(read.marker) if read.marker else ""
        return self._fields(
            "name", f"{read.name}{_bracketed(extras)}{read.specifier}", read.name, extras, str(read.specifier), marker
        )

    def _fields(
        self, kind: Kind, line: str, name: str, extras: tuple[str, ...], specifier: str, marker: str, **more: str
    ) -> dict[str, object]:
        fields: dict[str, object] = {"kind": kind, "name": name, "extras": extras, "specifier": specifier}
        return fields | {"line": f"{line} ; {marker}" if marker else line, "marker": marker, **more}

    def _from_filename(self, target: str, name: str) -> tuple[str, str]:
        """Name and specifier from a wheel's file name."""
        filename = unquote(re.split(r"[?#]", target, maxsplit=1)[0].rsplit("/", 1)[-1])
        if not filename.endswith(".whl") or "${" in filename:
            return name, ""
        hint = "rename the file to its original name"
        if len(filename.encode("utf-8", "replace")) > _LONGEST_FILENAME:
            raise self.refuse(f"a file name is at most {_LONGEST_FILENAME} bytes long", hint)
        try:
            project, version, _, _ = parse_wheel_filename(filename)
        except ValueError as error:
            raise self.refuse(f"{quoted(filename)} is not a wheel file name", hint) from error
        return name or project, f"=={version}"

    def _marker(self, marker: str) -> str:
        if not marker:
            return ""
        try:
            return str(_parsed(f"x ; {marker}").marker)
        except InvalidRequirement as error:
            hint = "write e.g. ; python_version < '3.11'"
            raise self.refuse(f"{quoted(marker)} is not a marker", hint) from error

    def _explain(self, problem: str) -> InputError:
        text = self.text
        local = re.fullmatch(r"(?P<name>[^~<>=!]+)(?P<operator>[~<>]=?)(?P<version>[^,;+]+)(?P<label>\+[\w.]+)", text)
        if local:
            exact = f"{local['name']}=={local['version']}{local['label']}"
            hint = f"write {local['name']}{local['operator']}{local['version']}, or {exact}"
            return self.refuse(f"only `==` and `!=` take a build such as {local['label']}", hint)
        if "marker" in problem:
            return self.refuse(f"invalid marker after `;` ({problem})", "write e.g. ; python_version < '3.11'")
        # operators: turned round, conda's single one, conda's channel prefix
        turned = re.search(r"=([<>])", text.partition(";")[0])
        if turned:
            meant = text.replace(turned.group(), f"{turned[1]}=", 1)
            return self.refuse(f"pip has no operator `{turned.group()}`", f"write {meant}")
        if re.search(r"(?<![=!<>~])=\s*(?:v?\d|[*^\"'$])", text.partition(";")[0]):
            hint = f"write {re.sub(r'=+', '==', text, count=1)}; conda packages belong below `dependencies:`"
            return self.refuse("pip has no operator `=`", hint)
        if "::" in text:
            return self.refuse(
                "channel::package is conda syntax", "move the line out of `pip:`, or leave out the channel"
            )
        # lines that were copied with their surroundings
        quoted = re.fullmatch(r"([\"'])(?P<inner>.*)\1\s*,?", text)
        if quoted:
            return self.refuse("it is in quotes", f"write {quoted['inner']}")
        command = _COMMAND.match(text)
        if command:
            return self.refuse("it is a command", f"write {command['packages']}")
        # versions that are not separated as pip wants it
        in_brackets = re.fullmatch(r"([\w.-]+)\s*\(([\w.*]+)\)", text)
        if in_brackets:
            return self.refuse(problem, "write {}=={}".format(*in_brackets.groups()))
        if re.search(r"[\w*]\s*[<>=!~]=?", text) and re.search(r"\d\s*[<>!~]", text):
            return self.refuse(problem, "join several versions with commas: >=1.2,<2")
        if re.fullmatch(r"[\w.-]+\s+[\w.*]+", text):
            return self.refuse(problem, "write {}=={}, or one package per line".format(*text.split()))
        return self.refuse(problem, ANY_FORM)


def _cut(text: str, separator: str) -> tuple[str, str]:
    before, _, marker = text.partition(separator)
    return before.strip(), marker.strip()


def _strip_extras(text: str) -> tuple[str, str]:
    match = _EXTRAS.fullmatch(text)
    return (match["path"], match["extras"]) if match else (text, "")


def _name_and_extras(text: str) -> tuple[str, tuple[str, ...]]:
    stem, brackets = _strip_extras(text.strip())
    extras = tuple(sorted(extra.strip() for extra in brackets.strip("[]").split(",") if extra.strip()))
    match = re.match(r"[A-Za-z0-9][\w.-]*", stem)
    return (match.group() if match else ""), extras


_LONG_NUMBER = re.compile(r"\d{301}")
"""Python refuses to convert numbers of thousands of digits; a version is compared late, when its line is forgotten."""


def _bracketed(extras: tuple[str, ...]) -> str:
    return f"[{','.join(extras)}]" if extras else ""


def _check_hashes(hashes: tuple[str, ...], place: Where, context: Context) -> None:
    for entry in hashes:
        kind, colon, digest = entry.partition(":")
        if not colon or kind not in HEX_LENGTHS:
            hint = f"write --hash=sha256:<64 hex digits>; allowed: {', '.join(HEX_LENGTHS)}"
            raise InputError(f"--hash={cut(entry)} is not a strong hash", where=place, hint=hint)
        if not re.fullmatch(r"[0-9a-fA-F]+", digest) or len(digest) != HEX_LENGTHS[kind]:
            text = f"{quoted(entry)} is not a complete {kind} ({HEX_LENGTHS[kind]} hex digits): no file can match it"
            context.notice(place, text)


def _parsed(text: str) -> Requirement:
    if _LONG_NUMBER.search(text):
        raise InvalidRequirement("a number in it has more than 300 digits")
    try:
        return Requirement(text)
    except RecursionError as error:
        raise InvalidRequirement("the marker is nested too deep") from error
