"""Creates and extends a mirror: all files that locks need, for all their platforms, fetched once and verified.

Files appear by renaming, and `mirror.json` is written last: the same command continues after an interruption, and a
mirror stays usable while it is extended.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from threading import Lock
from urllib.parse import urlsplit

from stackyard.core.errors import InputError, StackyardError, cause
from stackyard.core.progress import Progress
from stackyard.core.secrets import host_of, shown
from stackyard.host.files import space
from stackyard.host.files.hashing import sha256_file, sha256_text
from stackyard.host.net.trust import PLAIN, Trust
from stackyard.host.tools import uv
from stackyard.host.tools.pipconf import PipSettings
from stackyard.lock.conda.records import file_name
from stackyard.lock.lockfile.model import CondaPackage, LockedVariant, PipPackage
from stackyard.make.fetch import download
from stackyard.make.mirror import pages
from stackyard.make.mirror.git import bundle
from stackyard.make.mirror.read import FILES, INDEX, KIND, MirrorIndex, held
from stackyard.yard import disk
from stackyard.yard.write import atomic, lease
from stackyard.yard.write.atomic import fault_point
from stackyard.yard.write.permissions import Policy, applied

_AT_ONCE = 8
_CONDA, _GIT = "conda", "git"
_LEASES = ".leases"


@dataclass(frozen=True)
class MirrorFile:
    """One file for the mirror. `path` is below it; `size` in bytes, 0 if the lock has none."""

    url: str
    sha256: str
    path: str
    size: int
    trust: Trust = field(default=PLAIN, compare=False)


@dataclass(frozen=True)
class Repository:
    """One commit for the mirror."""

    url: str
    commit: str
    path: str
    settings: PipSettings = field(compare=False)


@dataclass
class Contents:
    """The planned contents of a mirror, without duplicates, and what it cannot contain."""

    files: dict[str, MirrorFile] = field(default_factory=dict)
    repositories: dict[str, Repository] = field(default_factory=dict)
    lacking: list[str] = field(default_factory=list)

    def add(self, locked: LockedVariant, settings: PipSettings) -> None:
        """Add the files of a locked variant. `settings`: its sources of pip packages."""
        self.add_conda(locked.conda)
        self.add_pip(locked.pip, settings)
        if locked.interpreter.source in ("host", "uv"):
            label = f"{locked.stack} {locked.version} {locked.variant}".rstrip()
            self._lack(f"Python {locked.interpreter.version} of {label}: {locked.interpreter.path} has to be there")

    def add_conda(self, packages: Iterable[CondaPackage]) -> None:
        """Add some conda packages."""
        for package in packages:
            self._put(MirrorFile(package.url, package.sha256, _conda_path(package), package.size))

    def add_pip(self, packages: Iterable[PipPackage], settings: PipSettings) -> None:
        """Add some pip packages."""
        for package in packages:
            if package.kind == "vcs":
                path = f"{_GIT}/{_place(package.url)}-{package.commit[:12]}.bundle"
                self.repositories[package.commit] = Repository(package.url, package.commit, path, settings)
            elif package.kind != "path":
                path = f"{FILES}/{file_name(package.url)}"
                self._put(MirrorFile(package.url, package.sha256, path, package.size, uv.trust(package.url, settings)))

    def _put(self, file: MirrorFile) -> None:
        self.files.setdefault(file.sha256, file)

    def _lack(self, text: str) -> None:
        if text not in self.lacking:
            self.lacking.append(text)


def _conda_path(package: CondaPackage) -> str:
    return f"{_CONDA}/{_place(package.url.rsplit('/', 2)[0])}/{package.subdir}/{file_name(package.url)}"


def _place(url: str) -> str:
    """A directory for files of a URL: its server and its path; for local ones, a name and a hash."""
    plain = shown(url).removeprefix("git+")
    parts = urlsplit(plain)
    words = [re.sub(r"[^A-Za-z0-9._-]+", "-", word) for word in parts.path.partition("@")[0].split("/")]
    words = [word for word in words if word.strip(".")]
    if parts.scheme in ("", "file"):
        return f"local/{words[-1] if words else 'root'}-{sha256_text(parts.path)[:8]}"
    return "/".join([re.sub(r"[^A-Za-z0-9._-]+", "-", host_of(plain)), *words])


@dataclass(frozen=True)
class MirrorUpdate:
    """The result: the fetched paths, and their size."""

    fetched: tuple[str, ...]
    bytes: int


def missing(directory: Path, contents: Contents) -> tuple[list[MirrorFile], list[Repository]]:
    """The planned files that a mirror lacks, in order of path."""
    there = present(directory)
    files = [file for file in _placed(contents, there) if not _is_there(directory, there, file)]
    repositories = [
        repository
        for repository in contents.repositories.values()
        if not (directory / there.commits.get(repository.commit, ".none")).is_file()
    ]
    return sorted(files, key=lambda file: file.path), repositories


def _placed(contents: Contents, there: MirrorIndex) -> Iterator[MirrorFile]:
    """Each file with its path: as listed, else by name, in a directory of its own if the name is taken."""
    taken = {path: sha256 for sha256, path in there.files.items()}
    for file in contents.files.values():
        path = there.files.get(file.sha256, file.path)
        if taken.setdefault(path, file.sha256) != file.sha256:
            directory, _, name = path.rpartition("/")
            path = f"{directory}/{file.sha256[:12]}/{name}"
        yield replace(file, path=path)


def present(directory: Path) -> MirrorIndex:
    """The list of a mirror; empty without one."""
    text = disk.content(directory / INDEX)
    return MirrorIndex({}, {}) if text is None else held(text, str(directory / INDEX))


def _is_there(directory: Path, there: MirrorIndex, file: MirrorFile) -> bool:
    """Whether the file exists with its size. Builds verify its bytes."""
    path = directory / there.files.get(file.sha256, ".none")
    try:
        size = path.stat().st_size
    except OSError:
        return False
    return not file.size or size == file.size


def extend(directory: Path, contents: Contents, progress: Progress) -> MirrorUpdate:
    """Fetch the missing files of a mirror, and list them.

    Raises:
        InputError: the directory contains other files.
        StackyardError: a file cannot be fetched or differs from the lock; files fetched before are kept.
    """
    _require_mirror(directory)
    one_at_a_time = lease.lease(directory / _LEASES / "mirror", f"the mirror {directory}", wait_s=3600)
    with applied(Policy(0o022)), one_at_a_time as holding:  # all may read it
        files, repositories = missing(directory, contents)
        index = present(directory)
        paths = dict(index.files)
        commits = dict(index.commits)
        done = _Counter(progress, len(files) + len(repositories))
        try:
            with ThreadPoolExecutor(_AT_ONCE) as pool:
                list(pool.map(lambda file: _fetch(directory, file, done, paths), files))
            for repository in repositories:
                bundle(repository.url, repository.commit, directory / repository.path, repository.settings)
                commits[repository.commit] = repository.path
                done.one(repository.path)
        finally:
            holding.check()
            fault_point("mirror")
            _list(directory, MirrorIndex(paths, commits))
    return MirrorUpdate((*(f.path for f in files), *(r.path for r in repositories)), done.bytes)


def _require_mirror(directory: Path) -> None:
    """Create the directory; reject one with other files."""
    try:
        directory.mkdir(parents=True, exist_ok=True)
        others = [
            name
            for name in sorted(p.name for p in directory.iterdir())
            if name not in (_CONDA, "pip", _GIT, INDEX, "lost+found") and not name.startswith(".")
        ]
    except OSError as error:
        raise InputError(
            f"cannot make a mirror in {directory}: {cause(error)}", hint="name another directory"
        ) from error
    if others:
        raise InputError(f"{directory} has other files: {others[0]}", hint="name a new directory, or a mirror")


class _Counter:
    """Counts finished files and their bytes. Used by several threads."""

    def __init__(self, progress: Progress, total: int) -> None:
        self._progress, self._total, self._guard = progress, total, Lock()
        self._done = self.bytes = 0

    def one(self, path: str, size: int = 0) -> None:
        with self._guard:
            self._done += 1
            self.bytes += size
            self._progress.advance("mirror", self._done, self._total, "files fetched", self.bytes)


def _fetch(directory: Path, file: MirrorFile, done: _Counter, paths: dict[str, str]) -> None:
    """Fetch one file atomically, and note its path, even if another one fails later."""
    target = directory / file.path
    target.parent.mkdir(parents=True, exist_ok=True)
    if not (target.is_file() and sha256_file(target) == file.sha256):  # left by an interrupted command
        try:
            # a killed process's is the next one's: one writes at a time
            part = target.with_name(f".{target.name}.part")
            download(file.url, file.sha256, part, target, mode=0o644, trust=file.trust)
        except OSError as error:
            if space.is_full(error):
                raise disk.no_space(f"writing {target}") from error
            raise StackyardError(f"cannot write {target}: {cause(error)}") from error
    paths[file.sha256] = file.path
    done.one(file.path, target.stat().st_size)


def _list(directory: Path, holding: MirrorIndex) -> None:
    """Write the pages and, last, `mirror.json`; remove leftovers of a killed process."""
    for left in directory.glob(f".{INDEX}.*.tmp"):
        left.unlink(missing_ok=True)
    pages.index_channels(_channels(directory, holding.files.values()))
    pages.write_index(directory, holding.files)
    value = {"format": KIND.version, "files": dict(sorted(holding.files.items())),
             "commits": dict(sorted(holding.commits.items()))}  # fmt: skip
    atomic.write_text(directory / INDEX, json.dumps(value, indent=1) + "\n", mode=0o644)


def _channels(directory: Path, paths: Iterable[str]) -> Iterator[Path]:
    """The conda channels of a mirror: two directories above each archive."""
    directories = {path.rsplit("/", 2)[0] for path in paths if path.startswith(f"{_CONDA}/")}
    return (directory / path for path in sorted(directories))
