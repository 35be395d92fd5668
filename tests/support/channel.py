"""Makes real conda channels on disk: packages with files, links, prefixes to replace, scripts; and their repodata.

    channel = make_channel(tmp_path / "ch", [Package("tool", "1.0", files={"bin/tool": ("#!/bin/sh\\n", 0o755)})])
    channel.as_uri()

Content that holds `PLACEHOLDER` is recorded for prefix replacement by itself: as text, or as binary if it has a NUL.
Activation is a file under ``etc/conda/activate.d``; a link script is the file ``bin/.<name>-post-link.sh``.
The repodata carries sha256, md5, size and timestamp, and no ``indexed_timestamp``, so ``exclude_newer`` goes by the
package's own date.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from support.archive import WRITERS, Member

PLACEHOLDER = "/conda_prefix_placeholder" + "_placehold" * 23
"""The prefix written into packages; 255 characters long, so prefixes up to that length can be put in."""

JANUARY_2024_MS = 1_704_067_200_000
SUBDIRS = ("noarch", "linux-64", "linux-aarch64", "linux-ppc64le")


@dataclass(frozen=True)
class Link:
    """A symbolic link inside a package."""

    target: str


Content = str | bytes | Path | Link | tuple[str | bytes | Path, int]
"""Text, bytes, a file of this machine, a link, or one of the first three with a mode."""


@dataclass(frozen=True)
class Package:
    """One conda package.

    Args:
        subdir: its platform, or ``noarch``.
        noarch_python: files under ``site-packages/`` and ``python-scripts/`` go where the prefix's Python wants them.
        entry_points: ``name = module:function``; made by the installer for noarch Python, written as scripts otherwise.
        timestamp_ms: when it was built, milliseconds since 1970.
        site_packages: for a ``python`` package: where it looks for packages, if not ``lib/pythonX.Y/site-packages``.
        suffix: ``.tar.bz2`` or ``.conda``.
        extra: more keys for ``info/index.json`` and the repodata.
    """

    name: str
    version: str
    build: str = "0"
    subdir: str = "linux-64"
    depends: tuple[str, ...] = ()
    constrains: tuple[str, ...] = ()
    files: Mapping[str, Content] = field(default_factory=dict)
    noarch_python: bool = False
    entry_points: tuple[str, ...] = ()
    build_number: int = 0
    timestamp_ms: int = JANUARY_2024_MS
    license: str = "LicenseRef-Test"
    track_features: str = ""
    site_packages: str = ""
    suffix: str = ".tar.bz2"
    extra: Mapping[str, Any] = field(default_factory=dict)

    @property
    def filename(self) -> str:
        """The archive's name, which is also its key in the repodata."""
        return f"{self.name}-{self.version}-{self.build}{self.suffix}"


def make_channel(directory: Path, packages: Iterable[Package]) -> Path:
    """Write the packages and the repodata of every subdir; packages already in the channel stay.

    Returns:
        The absolute directory, whose ``as_uri()`` is the channel.
    """
    for subdir in SUBDIRS:
        (directory / subdir).mkdir(parents=True, exist_ok=True)
    records: dict[str, dict[str, Any]] = {}
    for package in packages:
        path = write_package(directory, package)
        records.setdefault(package.subdir, {})[path.name] = index_entry(package) | digests(path)
    for subdir in SUBDIRS:
        _write_repodata(directory / subdir, subdir, records.get(subdir, {}))
    return directory.resolve()


def write_package(directory: Path, package: Package) -> Path:
    """Write one archive into its subdir of a channel, without touching the repodata."""
    payload = sorted(_members(package), key=lambda member: member.path)
    path = directory / package.subdir / package.filename
    path.parent.mkdir(parents=True, exist_ok=True)
    WRITERS[package.suffix](path, _info(package, payload), payload, package.timestamp_ms // 1000)
    return path


def index_entry(package: Package) -> dict[str, Any]:
    """What ``info/index.json`` says; the repodata says the same and the archive's digests."""
    entry: dict[str, Any] = {
        "name": package.name,
        "version": package.version,
        "build": package.build,
        "build_number": package.build_number,
        "depends": list(package.depends),
        "constrains": list(package.constrains),
        "subdir": package.subdir,
        "timestamp": package.timestamp_ms,
        "license": package.license,
        **_platform(package.subdir),
        **package.extra,
    }
    if package.noarch_python:
        entry["noarch"] = "python"
    elif package.subdir == "noarch":
        entry["noarch"] = "generic"
    if package.track_features:
        entry["track_features"] = package.track_features
    if package.site_packages:
        entry["python_site_packages_path"] = package.site_packages
    return entry


def digests(path: Path) -> dict[str, Any]:
    """Hashes and size of an archive as the repodata names them."""
    data = path.read_bytes()
    return {
        "sha256": hashlib.sha256(data).hexdigest(),
        "md5": hashlib.md5(data).hexdigest(),
        "size": len(data),
    }


def set_record(channel: Path, subdir: str, filename: str, **changes: Any) -> None:
    """Change fields of one package in a channel's repodata, e.g. to make a hash wrong."""
    path = channel / subdir / "repodata.json"
    repodata = json.loads(path.read_text())
    repodata[_section(filename)][filename].update(changes)
    path.write_text(json.dumps(repodata, indent=1, sort_keys=True))


def _platform(subdir: str) -> dict[str, Any]:
    if subdir == "noarch":
        return {"arch": None, "platform": None}
    platform, arch = subdir.split("-")
    return {"arch": {"64": "x86_64"}.get(arch, arch), "platform": platform}


def _section(filename: str) -> str:
    return "packages.conda" if filename.endswith(".conda") else "packages"


def _write_repodata(directory: Path, subdir: str, records: Mapping[str, dict[str, Any]]) -> None:
    path = directory / "repodata.json"
    repodata: dict[str, Any] = {"info": {"subdir": subdir}, "packages": {}, "packages.conda": {}, "repodata_version": 1}
    if path.exists():
        repodata = json.loads(path.read_text())
    for filename, record in records.items():
        repodata[_section(filename)][filename] = record
    path.write_text(json.dumps(repodata, indent=1, sort_keys=True))


def _members(package: Package) -> Iterable[Member]:
    for path, content in package.files.items():
        yield _member(path, content)
    if not package.noarch_python:
        for line in package.entry_points:
            yield _member(f"bin/{line.split('=')[0].strip()}", (script_text(line), 0o755))


def script_text(entry_point: str) -> str:
    """The program of an entry point ``name = module:function``, with the placeholder's Python."""
    module, function = entry_point.split("=", 1)[1].split("[", maxsplit=1)[0].strip().split(":")
    top = function.split(".")[0]
    return (
        f"#!{PLACEHOLDER}/bin/python\n"
        f"import sys\n\nfrom {module} import {top}\n\n"
        f'if __name__ == "__main__":\n    sys.exit({function}())\n'
    )


def _member(path: str, content: Content) -> Member:
    if isinstance(content, Link):
        return Member(path, b"", 0o777, content.target)
    data, mode = content if isinstance(content, tuple) else (content, None)
    if isinstance(data, Path):
        return Member(path, data.read_bytes(), (data.stat().st_mode & 0o777 if mode is None else mode) | 0o644)
    return Member(path, data.encode() if isinstance(data, str) else data, 0o644 if mode is None else mode)


def _info(package: Package, payload: list[Member]) -> list[Member]:
    documents: dict[str, Any] = {
        "info/index.json": index_entry(package),
        "info/paths.json": {"paths": [_path_entry(member, package) for member in payload], "paths_version": 1},
        "info/about.json": {"summary": f"{package.name} for tests", "license": package.license},
    }
    if package.noarch_python:
        link = {"type": "python", "entry_points": list(package.entry_points)}
        documents["info/link.json"] = {"noarch": link, "package_metadata_version": 1}
    return [Member(path, json.dumps(value, indent=1).encode(), 0o644) for path, value in documents.items()]


def _path_entry(member: Member, package: Package) -> dict[str, Any]:
    entry: dict[str, Any] = {
        "_path": member.path,
        "path_type": "softlink" if member.link else "hardlink",
        "sha256": hashlib.sha256(member.content).hexdigest(),
        "size_in_bytes": len(member.content),
    }
    if PLACEHOLDER.encode() in member.content:
        entry["prefix_placeholder"] = PLACEHOLDER
        entry["file_mode"] = "binary" if b"\0" in member.content else "text"
    return entry
