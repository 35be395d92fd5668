"""The distributions in a prefix, with their public modules and declared commands.

The source is the installed metadata of pip and most conda packages (``RECORD``, else ``top_level.txt``), else conda's
own records.
"""

from __future__ import annotations

import configparser
import csv
import keyword
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import field, replace
from email.message import Message
from email.parser import HeaderParser
from pathlib import Path, PurePosixPath
from typing import Any, Literal

from stackyard.core.late import dataclass
from stackyard.core.names import canonical
from stackyard.verify.context import Context

NOT_LIBRARIES = frozenset(
    ("test", "tests", "doc", "docs", "example", "examples", "benchmark", "benchmarks", "sample", "samples", "demo",
     "demos", "script", "scripts", "build", "dist", "setup", "conftest", "noxfile", "tasks", "manage")
)  # fmt: skip
"""Top-level names that projects ship by mistake; importing them may run tests or a build."""

_EXTENSION = re.compile(r"^(?P<name>[^.]+)\.(?:cpython-\w+(?:-[\w-]+)?\.|abi3\.|pypy\w+(?:-[\w-]+)?\.)?so$")
_ENTRY = re.compile(r"^(?P<module>[\w.]+)\s*(?::\s*(?P<attributes>[\w.]+)\s*)?(?:\[(?P<extras>[^\]]*)\])?\s*$")
_EXTRA = re.compile(r"""extra\s*==\s*['"]([^'"]+)['"]""")
_DEEPEST_NAMESPACE = 3


@dataclass(frozen=True)
class Script:
    """A declared console or GUI script: the object that it calls, and the extras that it requires."""

    name: str
    module: str
    attributes: tuple[str, ...]
    extras: tuple[str, ...] = ()


@dataclass(frozen=True)
class Distribution:
    """One installed distribution.

    Attributes:
        modules: dotted names of its public modules, outermost packages only (the members of namespaces).
        left_out: top-level names that are not imported: private ones and stray directories.
        requires: normalised names of its requirements, without those of extras.
        optional: normalised names of requirements of extras only, each with its extras.
        files: paths relative to `directory`, its site-packages.
    """

    name: str
    version: str
    kind: Literal["conda", "pip"]
    directory: Path
    modules: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()
    scripts: tuple[Script, ...] = ()
    requires: frozenset[str] = frozenset()
    optional: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    files: frozenset[str] = frozenset()


def distributions(context: Context) -> tuple[Distribution, ...]:
    """All distributions in the prefix's site-packages, sorted by name. Empty if the stack has no Python."""
    if context.python is None:
        return ()
    conda = tuple(context.conda_records())
    result = [
        one for directory in context.python.site_packages for one in _in_directory(directory, context.prefix, conda)
    ]
    return tuple(sorted(result, key=lambda one: (canonical(one.name), one.version)))


def modules_of(files: Iterable[str], distribution: str = "") -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The modules of files below site-packages: (public ones, skipped names), both sorted.

    A package is named by its outermost directory with an ``__init__``; a directory without one is a namespace, whose
    members are named. Private names (``_x``) count only for a distribution without public ones, names of stray
    directories only for a distribution of that name (`distribution`).
    """
    paths = [path for path in (PurePosixPath(file) for file in files) if _stem(path.name)]
    packages = {path.parent for path in paths if _stem(path.name) == "__init__" and path.parent.parts}
    names = {name for path in paths if (name := _module(path, packages))}
    stray = {name for name in names if name.split(".")[0] in NOT_LIBRARIES - {canonical(distribution)}}
    private = {name for name in names - stray if any(part.startswith("_") for part in name.split("."))}
    public = names - stray - private
    if not public and private:
        public, private = private, set()
    return tuple(sorted(public)), tuple(sorted({name.split(".")[0] for name in stray | private}))


def _module(path: PurePosixPath, packages: set[PurePosixPath]) -> str | None:
    for depth in range(1, len(path.parts)):
        directory = PurePosixPath(*path.parts[:depth])
        if directory in packages:
            return _dotted(directory.parts)
    stem = _stem(path.name)
    if stem in (None, "__init__", "__main__") or len(path.parts) > _DEEPEST_NAMESPACE:
        return None
    return _dotted((*path.parts[:-1], stem))


def _dotted(parts: Iterable[str | None]) -> str | None:
    names = [part or "" for part in parts]
    good = all(name.isidentifier() and not keyword.iskeyword(name) for name in names)
    return ".".join(names) if good else None


def _stem(file: str) -> str | None:
    """The module's name if the file is Python source or an extension module, else None."""
    if file.endswith(".py"):
        return file[:-3]
    match = _EXTENSION.match(file)
    if match is None or (file.count(".") == 1 and file.startswith("lib")):
        return None
    return match.group("name")


def _in_directory(directory: Path, prefix: Path, conda: Sequence[Mapping[str, Any]]) -> Iterator[Distribution]:
    """The distributions of one site-packages: those with metadata, then conda packages without any."""
    inside = directory.relative_to(prefix).as_posix() + "/"
    owners = {
        record["name"]: frozenset(f[len(inside) :] for f in record.get("files", ()) if f.startswith(inside))
        for record in conda
    }
    claimed: set[str] = set()
    for info in sorted(directory.iterdir()):
        if info.suffix in (".dist-info", ".egg-info"):
            one = _with_metadata(info, owners)
            claimed |= one.files
            yield one
    for record in conda:
        name, rest = record["name"], owners[record["name"]] - claimed
        public, left_out = modules_of(rest)
        if public and name != "python":
            version = str(record.get("version", ""))
            yield Distribution(name, version, "conda", directory, public, left_out, files=rest)


def _with_metadata(info: Path, owners: Mapping[str, frozenset[str]]) -> Distribution:
    owner = next((files for files in owners.values() if any(f.split("/")[0] == info.name for f in files)), None)
    headers = _headers(info)
    files = _recorded(info)
    alone = owner is not None and sum(f.endswith(("-info/METADATA", "-info/PKG-INFO")) for f in owner) == 1
    if owner is not None and (alone or not files):
        files |= owner
    stem, _, version = info.name.removesuffix(info.suffix).partition("-")
    name = headers.get("Name", stem).strip()
    public, left_out = modules_of(files, name) if files else _declared_top_levels(info)
    distribution = Distribution(
        name=name,
        version=headers.get("Version", version.partition("-")[0]).strip(),
        kind="pip" if owner is None else "conda",
        directory=info.parent,
        modules=public,
        left_out=left_out,
        files=frozenset(files),
    )
    requires, optional = _requirements(headers)
    return replace(distribution, scripts=_scripts(info), requires=requires, optional=optional)


def _headers(info: Path) -> Message:
    candidates = [info / "METADATA", info / "PKG-INFO"] if info.is_dir() else [info]
    path = next((candidate for candidate in candidates if candidate.is_file()), None)
    text = path.read_text(encoding="utf-8", errors="replace") if path else ""
    return HeaderParser().parsestr(text)


def _recorded(info: Path) -> set[str]:
    """Files that the metadata lists, relative to site-packages; others are dropped."""
    record, installed = info / "RECORD", info / "installed-files.txt"
    if record.is_file():
        files = _first_columns(record)
    elif installed.is_file():
        directory = PurePosixPath(info.name)
        lines = installed.read_text(encoding="utf-8", errors="replace").splitlines()
        files = {os.path.normpath(directory / line.strip()) for line in lines if line.strip()}
    else:
        return set()
    return {file for file in files if not file.startswith(("..", "/"))}


def _first_columns(record: Path) -> set[str]:
    """The first column of a RECORD; empty for one that is not CSV."""
    with record.open(encoding="utf-8", errors="replace", newline="") as stream:
        try:
            return {row[0] for row in csv.reader(stream) if row}
        except csv.Error:
            return set()


def _declared_top_levels(info: Path) -> tuple[tuple[str, ...], tuple[str, ...]]:
    path = info / "top_level.txt"
    names = path.read_text(encoding="utf-8", errors="replace").split() if path.is_file() else []
    return modules_of(f"{name.replace('.', '/')}/__init__.py" for name in names)


def _scripts(info: Path) -> tuple[Script, ...]:
    path = info / "entry_points.txt"
    if not path.is_file():
        return ()
    parser = configparser.ConfigParser(delimiters=("=",), interpolation=None, strict=False)
    parser.optionxform = str  # type: ignore[assignment,method-assign]
    try:
        parser.read_string(path.read_text(encoding="utf-8", errors="replace"))
    except configparser.Error:
        return ()
    sections: list[Any] = [parser[s] for s in ("console_scripts", "gui_scripts") if parser.has_section(s)]
    return tuple(script for section in sections for name, value in section.items() if (script := _script(name, value)))


def _script(name: str, value: str) -> Script | None:
    match = _ENTRY.match(value.strip())
    if match is None:
        return Script(name, value.strip(), ())
    extras = tuple(part.strip() for part in (match.group("extras") or "").split(",") if part.strip())
    attributes = (match.group("attributes") or "").split(".")
    return Script(name, match.group("module"), tuple(part for part in attributes if part), extras)


def _requirements(headers: Message) -> tuple[frozenset[str], dict[str, tuple[str, ...]]]:
    """Names of the unconditional requirements, and of those of extras with the names of the extras."""
    always: set[str] = set()
    optional: dict[str, set[str]] = {}
    for requirement in headers.get_all("Requires-Dist", []):
        match = re.match(r"\s*([\w.-]+)", requirement)
        extras = _EXTRA.findall(requirement)
        if match and extras:
            optional.setdefault(canonical(match.group(1)), set()).update(extras)
        elif match:
            always.add(canonical(match.group(1)))
    return frozenset(always), {name: tuple(sorted(extras)) for name, extras in optional.items() if name not in always}
