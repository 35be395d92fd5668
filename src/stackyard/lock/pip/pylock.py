"""Converts uv's pylock to `PipPackage`: one file per package, which is installed or compiled on the platform."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal
from urllib.parse import unquote, urlsplit

from packaging.tags import Tag

from stackyard.core import secrets
from stackyard.core.errors import InputError, Where
from stackyard.core.late import dataclass
from stackyard.core.names import canonical
from stackyard.host.files.hashing import digest_url
from stackyard.host.tools import uv
from stackyard.host.tools.pipconf import PipSettings
from stackyard.lock.hashed import hashed
from stackyard.lock.lockfile.model import PipPackage
from stackyard.lock.pip.snapshot import sha256_tree
from stackyard.lock.pip.tags import best_wheel


@dataclass(frozen=True)
class RequiredHashes:
    """The hashes that a requirement allows for a package, as ``algorithm:hex``, and the line with them."""

    hashes: tuple[str, ...]
    where: Where


@dataclass(frozen=True)
class Target:
    """The criteria that select a release's file. `locked`: the hashes of locked files, kept if they fit."""

    tags: Mapping[Tag, int]
    settings: PipSettings
    hashes: Mapping[str, RequiredHashes]
    subject: str
    locked: frozenset[str] = frozenset()


@dataclass(frozen=True)
class _File:
    url: str
    sha256: str
    size: int

    @property
    def name(self) -> str:
        return unquote(urlsplit(self.url).path.rsplit("/", 1)[-1])


def package(entry: Mapping[str, Any], target: Target) -> PipPackage:
    """The package for one entry of uv's pylock, with a sha256 from the index or computed.

    Raises:
        InputError: no file of the release fits the platform, or none has a hash that the requirement allows.
        StackyardError: a file that must be hashed cannot be read.
    """
    name = canonical(str(entry["name"]))
    if "vcs" in entry:
        return _vcs(name, entry)
    if "directory" in entry:
        directory = Path(entry["directory"]["path"])
        url, digest = directory.as_uri(), sha256_tree(directory)
        return PipPackage(name, str(entry.get("version", "")), "path", url, digest, subdirectory=_subdirectory(entry))
    if "archive" in entry:
        return _archive(name, entry, target)
    chosen = _choose(name, entry, target)
    kind = _kind(chosen)
    result = PipPackage(name, str(entry["version"]), kind, chosen.url, chosen.sha256, size=chosen.size)
    return _hashed(result, target.settings)


def _kind(file: _File) -> Literal["wheel", "sdist"]:
    return "wheel" if file.name.endswith(".whl") else "sdist"


def _vcs(name: str, entry: Mapping[str, Any]) -> PipPackage:
    vcs = entry["vcs"]
    url = secrets.address(str(vcs.get("url") or Path(vcs["path"]).as_uri()))
    commit = str(vcs["commit-id"])
    return PipPackage(
        name, str(entry.get("version", "")), "vcs", f"git+{url}", "", commit=commit, subdirectory=_subdirectory(entry)
    )


def _archive(name: str, entry: Mapping[str, Any], target: Target) -> PipPackage:
    file = _file(entry["archive"])
    kind = _kind(file)
    if kind == "wheel" and best_wheel([file.name], dict(target.tags)) is None:
        raise InputError(f"{name}: {file.name} does not fit {target.subject}", hint="use a wheel for that platform")
    _allowed(name, [file], target)
    archive = PipPackage(
        name, str(entry.get("version", "")), kind, file.url, file.sha256, size=file.size,
        subdirectory=_subdirectory(entry),
    )  # fmt: skip
    return _hashed(archive, target.settings)


def _subdirectory(entry: Mapping[str, Any]) -> str:
    source = entry.get("vcs") or entry.get("directory") or entry.get("archive") or {}
    return str(source.get("subdirectory", ""))


def _file(source: Mapping[str, Any]) -> _File:
    url = str(source["url"]) if "url" in source else Path(source["path"]).as_uri()
    return _File(url, str(source.get("hashes", {}).get("sha256", "")), int(source.get("size", 0)))


def _choose(name: str, entry: Mapping[str, Any], target: Target) -> _File:
    """The wheel that installers prefer on the platform; if none fits or wheels are excluded, the source."""
    wheels = [] if target.settings.compiled(name) else [_file(w) for w in entry.get("wheels", ())]
    sources = [_file(entry["sdist"])] if "sdist" in entry and not _wheels_only(name, target.settings) else []
    allowed = _allowed(name, [*wheels, *sources], target)
    names = [f.name for f in allowed if f in wheels]
    preferred = [f.name for f in allowed if f in wheels and f.sha256 in target.locked]
    fitting = best_wheel(preferred, dict(target.tags)) or best_wheel(names, dict(target.tags))
    if fitting is not None:
        return next(f for f in allowed if f.name == fitting)
    for file in allowed:
        if file in sources:
            return file
    raise InputError(
        f"{name} {entry.get('version')} has no file for {target.subject}",
        hint="use another version, allow compiling its source, or add an index that has a wheel",
        detail="\n".join(f.name for f in [*wheels, *sources]),
    )


def _wheels_only(name: str, settings: PipSettings) -> bool:
    if name in settings.only_binary:
        return True
    return ":all:" in settings.only_binary and name not in settings.no_binary


def _allowed(name: str, files: Sequence[_File], target: Target) -> list[_File]:
    """The files with a hash that the requirement allows; all of them if it has none."""
    hashes = target.hashes.get(name)
    if hashes is None:
        return list(files)
    matches = [file for file in files if any(_matches(file, text, target.settings) for text in hashes.hashes)]
    if not matches:
        listing = ", ".join(f"{f.name} sha256:{f.sha256}" for f in files[:3])
        raise InputError(
            f"hash mismatch for {name}: no file has the requested hash",
            where=hashes.where,
            detail=f"requested: {', '.join(hashes.hashes)}\nfound: {listing}",
            hint="the file may have been replaced: find out why before you change the hash in the requirement",
        )
    return matches


def _matches(file: _File, text: str, settings: PipSettings) -> bool:
    algorithm, _, value = text.partition(":")
    if algorithm == "sha256" and file.sha256:
        return file.sha256 == value.lower()
    return digest_url(file.url, algorithm, uv.trust(file.url, settings))[0] == value.lower()


def _hashed(pip_package: PipPackage, settings: PipSettings) -> PipPackage:
    trust = uv.trust(pip_package.url, settings)
    return hashed(pip_package, InputError, "its", "rebuild the index, or restore the file", trust)
