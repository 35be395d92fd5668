"""The reserve of a yard: a little space that is freed when the file system, or a quota, is full.

A removal writes before it frees anything: a lease, a note, a generation. These are small files, so the reserve consists
of small files too: some quotas and file systems limit only the number of files.
"""

from __future__ import annotations

import os
from contextlib import suppress

from stackyard.host.files import at
from stackyard.yard import disk
from stackyard.yard.layout import Yard
from stackyard.yard.write import within

FILES, BYTES = 32, 4096
_PLENTY = 8
"""It is made where there is room for so many of it: otherwise it would be what fills the file system."""


def keep(yard: Yard) -> None:
    """Create missing files of the reserve. A full disk, or another account's reserve, is not an error."""
    with suppress(OSError):
        there = set(disk.entries(yard.reserve))
        missing = [path for path in map(yard.reserved, range(FILES)) if path not in there]
        if missing and _has_room(yard):
            with at.directory(yard.root, yard.reserve, make=True) as directory:
                for path in missing:
                    _write(directory, path.name)


def _write(directory: int, name: str) -> None:
    """Write one file atomically: a quota may be used up even if the file system has space."""
    try:
        with at.open_new(directory, name, 0o666) as stream:
            stream.write(os.urandom(BYTES))  # no file system can store these as less
    except FileExistsError:
        raise
    except OSError:
        at.remove_tree(directory, name)
        raise


def _has_room(yard: Yard) -> bool:
    room = os.statvfs(yard.root)
    enough = room.f_bavail * room.f_frsize > _PLENTY * FILES * BYTES
    return enough and (room.f_files == 0 or room.f_favail > _PLENTY * FILES)


def give_up(yard: Yard) -> bool:
    """Remove the reserve; whether that freed anything. The next deploy creates it again."""
    freed = False
    with suppress(OSError):
        for path in disk.entries(yard.reserve):
            within.unlink(yard.root, path)
            freed = True
    return freed
