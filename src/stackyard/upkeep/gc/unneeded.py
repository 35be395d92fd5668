"""Finds solutions and interpreters in the caches that no revision needs any more."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from contextlib import suppress
from itertools import pairwise
from pathlib import Path

from stackyard.host.run import clock
from stackyard.inputs.workspace import Workspace
from stackyard.yard import disk
from stackyard.yard.cache import caches
from stackyard.yard.layout import Yard
from stackyard.yard.others import children
from stackyard.yard.others.children import Children
from stackyard.yard.revision import revisions
from stackyard.yard.revision.directories import RevisionPaths
from stackyard.yard.revision.record import BuildRecord
from stackyard.yard.write import trash

_MOST_BYTES = 1 << 25
_SPEC_HASH = re.compile(rb'^spec_hash = "([^"]+)"', re.MULTILINE)


def old_solutions(workspace: Workspace, below: Children) -> list[Path]:
    """Kept solutions and locks that are older than the limit for cache entries and that no revision's lock uses.

    The locks are those of files in read-only directories. None is returned if a yard could not be read. Solutions of a
    revision are kept: its lock can be restored from them, and its file is locked to them.

    Args:
        below: the yards that extend revisions of this one.
    """
    yard = workspace.yard
    limit = workspace.site.cache.max_age_days * clock.DAY_S
    paths = (*yard.locks.glob("*.lock"), *yard.file_locks.glob("*.lock"))
    old = {path: names for path in sorted(paths) if _age_s(path) > limit and (names := _solutions(path, yard))}
    used = below.solutions() if old else None
    if used is None:
        return []
    used |= _spec_hashes(yard)
    return [path for path, names in old.items() if not names & used]


def _solutions(path: Path, yard: Yard) -> set[str]:
    """The spec hashes of the solutions in a file; none if it cannot be read or its format is unknown."""
    return {path.stem} if path.parent == yard.locks else _hashes_in(path)


def _age_s(path: Path) -> float:
    try:
        return clock.age_s(path.stat().st_mtime)
    except OSError:
        return 0.0


def _spec_hashes(yard: Yard) -> set[str]:
    """The spec hashes in the locks of all revisions, including those in the trash, which can be restored."""
    built = (_hashes_in(paths.lock) for paths in revisions.directories(yard))
    removed = (RevisionPaths(content) for content in disk.matching(yard.trash, f"*/{trash.CONTENT}"))
    return set().union(*built, *(_hashes_in(paths.lock, yard.root) for paths in removed))


def _hashes_in(lock: Path, top: Path | None = None) -> set[str]:
    with suppress(OSError, ValueError):
        text, _ = disk.of_anybody(lock, _MOST_BYTES, top)
        return {digest.decode("utf-8", "replace") for digest in _SPEC_HASH.findall(text)}
    return set()


def used_interpreters(yard: Yard, records: Iterable[BuildRecord], below: Children) -> set[str] | None:
    """The names of the cached interpreters that revisions of this yard or of one below run on.

    None if a record or a yard cannot be read, so that this is unknown.

    Args:
        records: those of all revisions of this yard.
    """
    known = {record.path for record in records}
    built = (
        paths for paths in revisions.directories(yard) if disk.is_there(paths.record) or disk.is_there(paths.spare)
    )
    if below.blind or any(str(paths.root) not in known for paths in built):
        return None
    mine = (Path(path) for record in records if (path := record.interpreter.get("path", "")))
    theirs = ((Path(item[0]), child.root) for child, item in below.of("interpreter") if item)
    every = (*((path, yard.root) for path in (*mine, *children.interpreters(yard))), *theirs)
    named = {name for path, root in every for name in _named(path, root, yard)}
    homes = (part.interpreter(name) for part in caches.parts(yard) for name in named)
    return named | {home.resolve().name for home in homes if home.is_symlink()}


def _named(path: Path, root: Path, yard: Yard) -> Iterator[str]:
    """The name of the cached interpreter at a path; nothing if it is in another yard's cache.

    A yard can be reached through several paths, so a path outside the naming yard's caches counts as one of this yard.
    """
    if root != yard.root and path.is_relative_to(root):
        return
    parts, directory = path.parts, yard.pythons.name
    yield from (name for before, name in pairwise(parts) if before == directory)
