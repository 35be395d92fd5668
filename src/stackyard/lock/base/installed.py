"""The packages of an existing prefix as a lock, from conda's records and the metadata of Python packages.

The hash of a conda package is in its record. pip keeps the hash of an archive only for packages that were named by URL;
for the others the lock has the hash of the list of installed files (RECORD), and a notice names them.
"""

from __future__ import annotations

import hashlib
import os
import re
import stat
from collections.abc import Iterable, Iterator, Mapping
from email.message import Message
from email.parser import HeaderParser
from pathlib import Path
from typing import Any

from stackyard.core.errors import StackyardError
from stackyard.core.findings import counted, some
from stackyard.core.late import dataclass
from stackyard.core.names import canonical, conda_name, pip_name
from stackyard.core.secrets import address
from stackyard.lock.lockfile import grammar
from stackyard.lock.lockfile.model import CondaPackage, LockedInterpreter, PipPackage
from stackyard.yard import disk, formats
from stackyard.yard.kinds.adopted import Kind
from stackyard.yard.kinds.payload import Prefix

RECORD_KEY = "installed RECORD"
"""The build input that identifies a pip package whose archive has no known hash."""
_SETTING = re.compile(r"^\s*([\w-]+)\s*=\s*(.*?)\s*$", re.MULTILINE)
_SHOWN = 5
_MOST_BYTES = 64 << 20
_DAMAGED = (OSError, ValueError, KeyError, TypeError, AttributeError, OverflowError)


@dataclass(frozen=True)
class InstalledPackages:
    """The packages of a prefix.

    Attributes:
        editable: editable installations, with their source directories.
        requested: the requirements from command lines, in the format of a lock.
    """

    interpreter: LockedInterpreter
    conda: tuple[CondaPackage, ...] = ()
    pip: tuple[PipPackage, ...] = ()
    editable: Mapping[str, str] | None = None
    requested: tuple[str, ...] = ()

    @property
    def without_hash(self) -> list[str]:
        """The packages without a known hash of the archive."""
        return [p.name for p in self.conda if not p.sha256] + [p.name for p in self.pip if not p.sha256 + p.commit]

    @property
    def notices(self) -> tuple[str, ...]:
        """A notice about the packages without hashes."""
        names = self.without_hash
        if not names:
            return ()
        return (f"{counted(len(names), 'package')} without a known sha256 of its archive: {some(names, _SHOWN)}",)


@dataclass(frozen=True)
class PackageLists:
    """The listings of a prefix's files: conda's records, with the package names, and pip's metadata directories."""

    conda: tuple[tuple[Path, str], ...] = ()
    pip: tuple[Path, ...] = ()


def kind_of(prefix: Path) -> Kind | None:
    """The tool that made a prefix; None: it is not a prefix."""
    if disk.is_there(prefix / "pyvenv.cfg"):
        return "venv"
    return "conda" if disk.is_directory(prefix / "conda-meta") else None


def installed(prefix: Path) -> InstalledPackages:
    """All packages installed in a prefix.

    Raises:
        StackyardError: a record in it cannot be read, or is incomplete.
    """
    records, conda, python, infos = _looked_at(prefix)
    pairs = sorted((_pip(info) for info in infos), key=lambda pair: pair[0].name)
    return InstalledPackages(
        python,
        tuple(sorted(conda, key=lambda p: p.name)),
        tuple(package for package, _ in pairs),
        {package.name: place for package, place in pairs if place},
        _requested(conda, [package for package, _ in pairs], {**_conda_specs(records), **_named(infos)}),
    )


def listed(prefix: Path) -> PackageLists:
    """The listings of the files of a prefix's packages.

    Raises:
        StackyardError: a record of conda cannot be read.
    """
    records, _, _, infos = _looked_at(prefix)
    return PackageLists(tuple((file, str(value["name"])) for file, value in records.items()), tuple(infos))


def _looked_at(
    prefix: Path,
) -> tuple[dict[Path, dict[str, Any]], tuple[CondaPackage, ...], LockedInterpreter, list[Path]]:
    """conda's records, its packages, the Python, and pip's metadata directories."""
    records = dict(_conda_records(prefix))
    conda = tuple(_conda(file, value) for file, value in records.items())
    python = _interpreter(prefix, conda)
    owned = {name for value in records.values() for name in value["files"]}
    return records, conda, python, list(_infos(prefix, python, conda, owned)) if python.source != "none" else []


def settings(prefix: Path) -> dict[str, str]:
    """The settings of a virtual environment (``pyvenv.cfg``), by their names in small letters."""
    try:
        text = content(prefix / "pyvenv.cfg").decode(errors="replace")
    except (OSError, ValueError):
        return {}
    return {name.lower(): value for name, value in _SETTING.findall(text)}


def site_packages(prefix: Path, version: str, conda: tuple[CondaPackage, ...] = ()) -> Path:
    """The package directory of its Python."""
    inside = next((p.python_site_packages_path for p in conda if p.name == "python"), "")
    if inside:
        return prefix / inside
    return Prefix(prefix).site_packages(version)


# --------------------------------------------------------------------------- conda


def _conda_records(prefix: Path) -> Iterator[tuple[Path, dict[str, Any]]]:
    for file in sorted((prefix / "conda-meta").glob("*.json")):
        try:
            value = formats.content(content(file))
            if not isinstance(value, dict):
                raise ValueError("not an object")
            value["files"] = tuple(map(str, value.get("files") or ()))
        except _DAMAGED as error:
            raise _unreadable(file, error) from error
        yield file, value


def _conda(file: Path, value: Mapping[str, Any]) -> CondaPackage:

    def text(key: str, instead: str = "") -> str:
        return str(value.get(key) or instead)

    try:
        package = CondaPackage(
            name=str(value["name"]),
            version=str(value["version"]),
            build=text("build", text("build_string")),
            build_number=int(value.get("build_number") or 0),
            subdir=text("subdir", "noarch"),
            channel=address(text("channel"), conda=True),
            url=address(text("url", file.as_uri()), conda=True),
            sha256=text("sha256"),
            md5=text("md5"),
            size=int(value.get("size") or 0),
            noarch=text("noarch"),
            timestamp_ms=int(value.get("timestamp") or 0),
            license=text("license"),
            depends=tuple(map(str, value.get("depends") or ())),
            constrains=tuple(map(str, value.get("constrains") or ())),
            python_site_packages_path=text("python_site_packages_path"),
        )
        grammar.check(package)
    except _DAMAGED as error:
        raise _unreadable(file, error) from error
    return package


def _conda_specs(records: Mapping[Path, Mapping[str, Any]]) -> dict[str, str]:
    """The specs from conda command lines, by package name."""
    result: dict[str, str] = {}
    for value in records.values():
        several = value.get("requested_specs")
        specs = several if isinstance(several, list) and several else [value.get("requested_spec")]
        result |= {str(value["name"]): str(spec) for spec in specs if spec and spec != "None"}
    return result


def content(file: Path) -> bytes:
    """The bytes of a file in a third party's prefix, with limits on kind and size.

    Raises:
        OSError: it cannot be read.
        ValueError: it is not a regular file, or larger than the limit.
    """
    with os.fdopen(os.open(file, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as stream:
        status = os.fstat(stream.fileno())
        if not stat.S_ISREG(status.st_mode) or status.st_size > _MOST_BYTES:
            raise ValueError("not a plain file, or too large")
        return stream.read()


def _unreadable(file: Path, error: Exception) -> StackyardError:
    reason = error.strerror if isinstance(error, OSError) else f"{type(error).__name__}: {error}"
    return StackyardError(
        f"cannot read {file}: {reason}",
        hint="wait until nothing installs into the prefix any more; if nothing does, it was left incomplete: "
        "install that package again",
    )


# --------------------------------------------------------------------------- Python


def _interpreter(prefix: Path, conda: tuple[CondaPackage, ...]) -> LockedInterpreter:
    own = next((p.version for p in conda if p.name == "python"), "")
    if own:
        return _checked(LockedInterpreter("conda", own), prefix)
    config = settings(prefix)
    version = config.get("version_info") or config.get("version") or ""
    number = re.match(r"\d{1,2}\.\d{1,3}(\.\d{1,3})?(?!\d)", version)
    if not config or number is None:
        return LockedInterpreter("none")
    return LockedInterpreter("host", number.group(), os.fspath(Prefix(prefix).python.resolve()))


def _checked(python: LockedInterpreter, prefix: Path) -> LockedInterpreter:
    try:
        grammar.check(python)
    except ValueError as error:
        raise _unreadable(prefix / "conda-meta", error) from error
    return python


def _infos(prefix: Path, python: LockedInterpreter, conda: tuple[CondaPackage, ...], owned: set[str]) -> Iterator[Path]:
    """The metadata directories of packages that pip installed, without those of conda packages."""
    directory = site_packages(prefix, python.version, conda)
    for info in disk.entries(directory) if disk.is_directory(directory) else ():
        file = _metadata_file(info)
        if file is not None and not info.name.startswith("~") and file.relative_to(prefix).as_posix() not in owned:
            yield info


def _metadata_file(info: Path) -> Path | None:
    if info.name.endswith(".dist-info"):
        return info / "METADATA"
    if info.name.endswith(".egg-info"):
        return info / "PKG-INFO" if info.is_dir() else info
    return None


def _pip(info: Path) -> tuple[PipPackage, str]:
    """One package, and its source directory if it is an editable installation."""
    file = _metadata_file(info)
    assert file is not None
    try:
        said = HeaderParser().parsestr(content(file).decode(errors="replace"))
        name, version = canonical(str(said["Name"] or "")), str(said["Version"] or "")
        origin = _origin(info)
        package = PipPackage(
            name, version, requires=_requires(said), build_inputs=_identity(info), **_place(info, origin)
        )
        grammar.check(package)
        editable = (origin.get("dir_info") or {}).get("editable")
    except _DAMAGED as error:
        raise _unreadable(file, error) from error
    return package, str(origin["url"]).removeprefix("file://") if editable else ""


def _requires(said: Message) -> tuple[str, ...]:
    lines = [str(line) for line in said.get_all("Requires-Dist") or ()]
    return tuple(line for line in lines if not re.search(r";.*\bextra\s*==", line))


def _origin(info: Path) -> dict[str, Any]:
    """The URL from which it was installed (PEP 610); empty: from an index."""
    value = formats.content(content(info / "direct_url.json")) if disk.is_there(info / "direct_url.json") else {}
    if not isinstance(value, dict) or not isinstance(value.get("url"), str):
        return {}
    return {**value, "url": address(value["url"])}


def _place(info: Path, origin: Mapping[str, Any]) -> dict[str, Any]:
    """Kind, URL and hash: of the archive if pip recorded it, else of the installed metadata."""
    if not origin:
        return {"kind": "wheel", "url": info.as_uri(), "sha256": ""}
    vcs, archive = origin.get("vcs_info") or {}, origin.get("archive_info") or {}
    if vcs:
        return {"kind": "vcs", "url": origin["url"], "sha256": "", "commit": str(vcs.get("commit_id", ""))}
    if "dir_info" in origin:
        return {"kind": "path", "url": origin["url"], "sha256": ""}
    hashed = str((archive.get("hashes") or {}).get("sha256") or archive.get("hash", "")).removeprefix("sha256=")
    kind = "wheel" if origin["url"].endswith(".whl") else "sdist"
    return {"kind": kind, "url": origin["url"], "sha256": hashed if len(hashed) == 64 else ""}


def _identity(info: Path) -> dict[str, str]:
    if not disk.is_there(info / "RECORD"):
        return {}
    return {RECORD_KEY: hashlib.sha256(content(info / "RECORD")).hexdigest()}


def _named(infos: list[Path]) -> dict[str, str]:
    """The requirements from pip command lines, by package name."""
    named = (_pip(info)[0].name for info in infos if info.is_dir() and disk.is_there(info / "REQUESTED"))
    return {name: f"pip: {name}" for name in named}


def _requested(conda: Iterable[CondaPackage], pip: Iterable[PipPackage], named: Mapping[str, str]) -> tuple[str, ...]:
    """The named requirements, and packages that no other requires: not all tools record the named ones."""
    needed = {conda_name(text) for package in conda for text in package.depends}
    needed |= {canonical(pip_name(text)) for package in pip for text in package.requires}
    tops = {p.name: p.name for p in conda if p.name not in needed}
    tops |= {p.name: f"pip: {p.name}" for p in pip if p.name not in needed}
    return tuple(text for _, text in sorted({**tops, **named}.items()))
