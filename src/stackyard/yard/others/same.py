"""Whether two paths lead to one yard: by a link, or by a second mount, which may have another device number."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from stackyard.core.errors import StackyardError
from stackyard.yard import disk
from stackyard.yard.layout import Yard
from stackyard.yard.write import within


def is_same(one: Path, other: Path) -> bool:
    """Whether two directories are one yard.

    A file system that is mounted twice may have two device numbers. Then their current manifests are compared: a copy
    has another inode number or change time. A snapshot has the same, so only writing distinguishes it (`tell_apart`);
    until then it counts as the yard itself.

    Raises:
        OSError: one of the two cannot be read.
    """
    if one == other or one.samefile(other):
        return True
    return not _were_told_apart(one, other) and _published(one) == _published(other) is not None


_told_apart: set[tuple[Path, Path]] = set()
"""Yards of which this process knows that they are two, each with what it looks like."""


def _were_told_apart(one: Path, other: Path) -> bool:
    pairs = ((a, b) for a, b in ((one, other), (other, one)))
    return any(a.is_relative_to(root) and b == original for a, b in pairs for root, original in _told_apart)


def tell_apart(root: Path, original: Path) -> None:
    """Determine, by writing into it, whether a yard that looks like another one is the same: a snapshot is not.

    Parts put aside in it (`Yard.former`) are included. Without write permission the result stays unknown.
    """
    here = {_published(root), _published(Yard(root).former().root)} - {None}
    with suppress(OSError, StackyardError):
        if not root.samefile(original) and _published(original) in here and not _shows(root, original):
            _told_apart.add((root, original))


def _published(root: Path) -> tuple[int, ...] | None:
    """The identity of a yard's current manifest, which a copy does not share; None before the first publication."""
    yard = Yard(root)
    with suppress(OSError, ValueError):
        status = yard.generation(int(yard.modules.readlink().parent.name)).manifest.stat()
        return status.st_ino, status.st_ctime_ns, status.st_mtime_ns, status.st_size
    return None


def require_other(root: Path, original: Path) -> None:
    """Raise StackyardError unless a copy of a yard is separate: writes to it must not appear in the original.

    This is the check before a copy is emptied. A missing or unreadable original counts as separate.
    """
    try:
        seen = _shows(root, original)
    except OSError as error:
        raise StackyardError(f"cannot create {error.filename}: {error.strerror}") from error
    if seen:
        raise StackyardError(
            f"{root} is the yard {original}, mounted a second time: nothing was changed",
            hint=f"use --yard {original}; or move it to another directory: stackyard move NEWROOT",
        )


def _shows(root: Path, original: Path) -> bool:
    """Whether writes to one yard appear in the other. Raises OSError: it is not writable."""
    name = f"copy-{os.urandom(8).hex()}"
    mark = Yard(root).lease(name)
    within.make(root, mark)
    try:
        return disk.is_there(Yard(original).lease(name))
    except (OSError, StackyardError):
        return False
    finally:
        within.rmdir(root, mark)
