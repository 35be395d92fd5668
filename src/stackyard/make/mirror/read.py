"""Serves builds from a mirror: locked files are found by their sha256, independent of their URL in the lock.

With a mirror no other server is used: a missing file is an error. The lock is unchanged, so the same revision is built
with and without it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from urllib.parse import quote

from stackyard.core import secrets
from stackyard.core.errors import InputError, StackyardError, cause
from stackyard.core.secrets import shown
from stackyard.host.net import http
from stackyard.host.tools import uv
from stackyard.host.tools.pipconf import PipSettings
from stackyard.lock.lockfile.model import CondaPackage, PipPackage
from stackyard.yard import formats, members

INDEX = "mirror.json"
FILES, LINKS = "pip/files", "pip/links.html"
_TIMEOUT_S = 60


@dataclass(frozen=True)
class MirrorIndex:
    """The content of ``mirror.json``: paths below the mirror by sha256, and of git bundles by commit."""

    files: Mapping[str, str]
    commits: Mapping[str, str]


def _make(value: Mapping[str, object]) -> MirrorIndex:
    index = members.make(MirrorIndex, dict(value))
    for path in (*index.files.values(), *index.commits.values()):
        if not isinstance(path, str) or path.startswith("/") or ".." in PurePosixPath(path).parts:
            raise ValueError(f"a path that leads out of the mirror: {path!r}")
    return index


KIND = formats.Kind(1, _make, hint=lambda path: f"make {path.parent} again: stackyard mirror FILE... --to DIR")
"""``mirror.json``."""


@dataclass(frozen=True)
class Mirror:
    """An open mirror. `base`: the URL of its directory, with a slash; `place`: its name as given, without login."""

    place: str
    base: str
    held: MirrorIndex

    def conda(self, package: CondaPackage) -> CondaPackage:
        """The package with the mirror's URL of its archive."""
        return replace(package, url=self._file(package.sha256, f"{package.stem} ({shown(package.url)})"))

    def pip(self, package: PipPackage) -> PipPackage:
        """The package with the mirror's URL of its wheel or source archive; a local project is unchanged."""
        if package.kind == "path":
            return package
        label = f"{package.name} {package.version} ({shown(package.url)})"
        if package.kind == "vcs":
            return replace(package, url=self._url(self.held.commits, package.commit, label))
        return replace(package, url=self._file(package.sha256, label))

    def index_options(self, settings: PipSettings) -> list[str]:
        """uv's options for build requirements: only files of the mirror."""
        place = LINKS if self.base.startswith("http") else FILES
        return ["--no-index", f"--find-links={uv.place_for_uv(self.base + place, settings)}"]

    def _file(self, sha256: str, label: str) -> str:
        return self._url(self.held.files, sha256, label)

    def _url(self, paths: Mapping[str, str], key: str, label: str) -> str:
        if key not in paths:
            raise StackyardError(
                f"{label} is not in the mirror {self.place}",
                hint=f"add it on a machine that reaches its server: stackyard mirror FILE... --to {self.place}",
            )
        return self.base + quote(paths[key])


def opened(place: str, settings: PipSettings) -> Mirror:
    """The mirror at a directory or a URL.

    Args:
        settings: network settings.

    Raises:
        InputError: it is not a mirror.
        StackyardError: it cannot be reached, or its list is damaged or of a newer format.
    """
    if "://" in place and not place.startswith("file:"):
        base = f"{secrets.address(place.rstrip('/'), base=True)}/"
        text = http.read(base + INDEX, timeout_s=_TIMEOUT_S, trust=uv.trust(base, settings))
        return Mirror(base, base, held(text, base + INDEX))
    directory = Path(place.removeprefix("file://"))
    if not directory.is_absolute():
        raise InputError(f"the path of a mirror is not absolute: {place}", hint="write it from / on")
    try:
        text = (directory / INDEX).read_bytes()
    except FileNotFoundError as error:
        raise InputError(
            f"no mirror in {directory}: {INDEX} not found", hint=f"make one: stackyard mirror FILE... --to {directory}"
        ) from error
    except OSError as error:
        raise StackyardError(f"cannot read {directory / INDEX}: {cause(error)}") from error
    return Mirror(place, f"{directory.as_uri()}/", held(text, str(directory / INDEX)))


def held(text: bytes, origin: str) -> MirrorIndex:
    """The parsed content of a ``mirror.json``. Raises StackyardError if it is damaged, or of a newer format."""
    try:
        value = formats.content(text)
    except ValueError as error:
        raise formats.damaged(origin, KIND, str(error)) from error
    return formats.read(value, origin, KIND)
