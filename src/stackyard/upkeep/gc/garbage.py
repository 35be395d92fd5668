"""Garbage of a yard, which no valid revision needs: interrupted builds, leftovers, unshared cache entries.

Age alone, or an unknown name, does not make garbage: each finder recognises files of this program by name or content.
Unknown files are not touched.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

from stackyard.core.errors import StackyardError
from stackyard.host.account import supervised
from stackyard.host.run import clock
from stackyard.inputs.models import Site
from stackyard.inputs.workspace import Workspace
from stackyard.upkeep.gc import unneeded
from stackyard.yard import disk
from stackyard.yard.cache import caches, notes
from stackyard.yard.cache.caches import CONDA, KINDS, PYTHONS, Kind
from stackyard.yard.generation import generations, manifestfile
from stackyard.yard.layout import Yard
from stackyard.yard.others import usage
from stackyard.yard.others.children import Children
from stackyard.yard.revision import revisions
from stackyard.yard.revision.directories import GenerationPaths, RevisionPaths
from stackyard.yard.revision.manifest import read_manifest
from stackyard.yard.revision.record import KEY_START, BuildRecord
from stackyard.yard.write import lease
from stackyard.yard.write.trash import Sort

_BLOCK = 512
_INNER_LINKS = 4
"""Names that a file may have in one entry: conda packages have programs with two, seldom more."""


_UNUSED = "an interpreter that no revision uses"


@dataclass(frozen=True)
class Garbage:
    """An item to collect: its unshared bytes and inodes, and the reason."""

    sort: Sort
    path: Path
    why: str
    bytes: int = 0
    inodes: int = 0
    kind: Kind | None = None
    yard: Yard | None = None


@dataclass(frozen=True)
class _Size:
    bytes: int
    inodes: int
    age_s: float


def interrupted_builds(yard: Yard, stack: str | None = None) -> Iterator[Garbage]:
    """Directories of revisions whose build ended without a record, and copies that an interrupted repair left.

    Directories in which a process on any host may still be building are left out.
    """
    for paths in revisions.directories(yard, stack):
        if disk.is_there(paths.record) or disk.is_there(paths.spare) or _is_building(yard, paths):
            continue
        if disk.is_directory(paths.building):
            yield _sized("build", paths.root, "an interrupted build")
        elif _is_copy(paths):
            yield _sized("leftover", paths.root, "left by an interrupted repair or removal")


def _is_building(yard: Yard, paths: RevisionPaths) -> bool:
    stack = yard.lease(f"stack {paths.root.parent.name}")
    return lease.is_occupied(paths.building) or lease.is_occupied(stack)


def _is_copy(paths: RevisionPaths) -> bool:
    """Whether a directory is a repair's build beside a revision, or was renamed by a removal."""
    name, directory = paths.root.name, paths.root.parent
    if not name.startswith("."):
        return False
    return paths.root in disk.leftovers(directory) or any(
        other != name and not other.startswith(".") and other[1:] == name[1:] for other in disk.names(directory)
    )


def leftovers(yard: Yard) -> Iterator[Garbage]:
    """Files that killed processes left in the caches and among the generations; none while a build may be running."""
    for path in [path for part in caches.parts(yard) for kind in KINDS for path in kind.leftovers(part)]:
        yield _sized("leftover", path, "left by a killed build")
    for draft in yard.generations.glob(yard.draft("*").root.name):
        if lease.is_abandoned(GenerationPaths(draft).owner, draft):
            yield _sized("leftover", draft, "left by a killed deploy")


def old_modules(yard: Yard, keep: int) -> Iterator[Garbage]:
    """The modulefiles of generations before the last ones; manifests are kept, since names are never reused."""
    for paths in former(yard, keep):
        if disk.is_directory(paths.modules):
            yield _sized("modules", paths.modules, f"the modulefiles of generation {paths.root.name}")


def long_manifests(yard: Yard, keep: int) -> dict[Path, int]:
    """The uncompressed manifests of the same generations, each with the bytes that compressing it frees.

    Unreadable manifests and those of other accounts are left out.
    """
    counts = {}
    for paths in former(yard, keep):
        with suppress(OSError, StackyardError):
            if supervised.is_active() or os.geteuid() == paths.manifest.stat().st_uid:
                read_manifest(paths.manifest)
                counts[paths.manifest] = manifestfile.freed(paths.manifest)
    return counts


def former(yard: Yard, keep: int) -> Iterator[GenerationPaths]:
    """The generations before the last ones, except those to which a process may still move the link."""
    shown = generations.current_number(yard)
    for number in list(generations.numbers(yard))[keep + 1 :]:
        paths = yard.generation(number)
        marked = any(name.startswith("owner") for name in disk.names(paths.root))
        if number < shown and not marked:
            yield paths


def old_counts(workspace: Workspace) -> tuple[list[Garbage], list[str]]:
    """The usage counts of months older than the site's limit, and a message for each unknown file."""
    days = workspace.site.usage.keep_days
    old = usage.before(workspace.yard, clock.today() - timedelta(days=days))
    why = "the uses of {}, which are kept for {} days"
    return [Garbage("leftover", path, why.format(month, days), size, 1) for path, month, size in old.files], old.left


def solutions(workspace: Workspace, below: Children) -> Iterator[Garbage]:
    """Kept solutions and locks that no revision uses and that are older than the limit for cache entries."""
    for path in unneeded.old_solutions(workspace, below):
        what = "lock of a file in a read-only directory" if path.parent == workspace.yard.file_locks else "solution"
        yield _sized("leftover", path, f"a kept {what} that no revision was built from")


def unshared(workspace: Workspace, records: Collection[BuildRecord], below: Children) -> list[Garbage]:
    """Cache entries that no revision needs, beyond the site's limits: those too old, then the oldest if too many.

    Args:
        records: the records of all revisions.
        below: the yards that extend revisions of this one.
    """
    names = {text for record in records for package in record.packages for text in (package.build, package.sha256)}
    pythons = unneeded.used_interpreters(workspace.yard, records, below)
    rows = [
        (part, kind, entry, size)
        for part in caches.parts(workspace.yard)
        for kind in KINDS
        if kind.name != "notes"  # a note goes with its entry
        for entry in kind.complete(part)
        if not entry.is_symlink() and not (kind is PYTHONS and (pythons is None or entry.name in pythons))
        if (kind.linked or not _is_named(entry, names)) and (size := _own_size(entry)) is not None
    ]
    rows.sort(key=lambda item: -item[3].age_s)
    left, garbage = sum(item[3].bytes for item in rows), []
    for part, kind, entry, size in rows:
        why = _beyond(size, left, workspace.site)
        why = why and (_UNUSED if kind is PYTHONS else why)
        if why:
            left -= size.bytes
            garbage.append(Garbage("cache", entry, why, size.bytes, size.inodes, kind, part))
    return garbage


def _is_named(entry: Path, names: set[str]) -> bool:
    """Whether a record names the archive or the wheel that an entry holds: a wheel by the start of its key."""
    return not names.isdisjoint((entry.parent.name, entry.name.partition("-")[0], entry.name[:KEY_START]))


def _beyond(size: _Size, left: int, site: Site) -> str:
    days, limits = size.age_s / clock.DAY_S, site.cache
    if days > limits.max_age_days:
        return f"a cache entry that nothing has used for {days:.0f} days"
    if limits.max_bytes and left > limits.max_bytes:
        return f"the oldest of a cache of more than {limits.max_bytes:,} bytes"
    return ""


def _own_size(entry: Path) -> _Size | None:
    """The bytes that removing an entry frees, and since when it has been unshared; None if a file of it is shared.

    A change of the link count updates ctime, so ctime tells when the last revision with the file was deleted.
    """
    total, inodes, newest = 0, 0, 0.0
    most = _INNER_LINKS if entry.is_dir() else 1
    links: dict[tuple[int, int], list[int]] = {}
    for status in _statuses(entry):
        newest = max(newest, status.st_ctime)
        if stat.S_ISREG(status.st_mode) and status.st_nlink > 1:
            seen = links.setdefault((status.st_dev, status.st_ino), [0, status.st_nlink])
            seen[0] += 1
            if seen[0] > 1:
                continue
            if status.st_nlink > most:
                return None
        total, inodes = total + status.st_blocks * _BLOCK, inodes + 1
    if any(names < count for names, count in links.values()):
        return None
    return _Size(total, inodes, clock.age_s(newest))


def _statuses(path: str | Path) -> Iterator[os.stat_result]:
    """The status of a path and of everything below it, without following links; vanished files are left out.

    No Path is made for each file: a collection visits every cache entry every night.
    """
    with suppress(FileNotFoundError):
        status = os.lstat(path)
        yield status
        if stat.S_ISDIR(status.st_mode):
            with os.scandir(path) as entries:
                for entry in entries:
                    yield from _statuses(entry.path)


def _sized(sort: Sort, path: Path, why: str) -> Garbage:
    statuses = list(_statuses(path))
    return Garbage(sort, path, why, sum(status.st_blocks * _BLOCK for status in statuses), len(statuses))


def freed_in_cache(yard: Yard, doomed: Iterable[BuildRecord], records: Iterable[BuildRecord]) -> tuple[int, int]:
    """Bytes and files of the unpacked packages that only these revisions share with the cache, from their notes.

    A later collection removes them, after the files of the revisions are deleted.
    """
    only = _stems(doomed).keys() - _stems(records).keys()
    there, total, count = set(disk.names(yard.conda)), 0, 0
    for stem in sorted(only & there):
        noted = notes.read(yard, CONDA, yard.package(stem))
        if noted:
            total += sum(item.size for item in noted.files.values())
            count += len(noted.files)
    return total, count


def _stems(records: Iterable[BuildRecord]) -> Mapping[str, None]:
    return {
        f"{package.name}-{package.version}-{package.build}": None
        for record in records
        for package in record.packages
        if package.kind == "conda"
    }
