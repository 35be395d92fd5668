"""The reserve of a yard: a little room that is given up where the file system, or a quota, is full.

Removing writes before it frees anything: a lease, a note, a generation. Their names and contents are small files, so
the reserve is small files too: of some file systems and quotas only the number of files is used up.
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
    """Create the missing part of it. A full disk, or a reserve that another account made, is not an error."""
    with suppress(OSError):
        there = set(disk.entries(yard.reserve))
        missing = [path for path in map(yard.reserved, range(FILES)) if path not in there]
        if missing and _has_room(yard):
            with at.directory(yard.root, yard.reserve, make=True) as directory:
                for path in missing:
                    _write(directory, path.name)


def _write(directory: int, name: str) -> None:
    """One file, whole or not at all: a quota may be used up where the file system has room."""
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
    """Remove it; whether that freed anything. The next deploy makes it again."""
    freed = False
    with suppress(OSError):
        for path in disk.entries(yard.reserve):
            within.unlink(yard.root, path)
            freed = True
    return freed
