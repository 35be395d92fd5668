"""Claims a name: processes on any hosts agree on one owner, without locks, hard links or clocks."""

from __future__ import annotations

import errno
import os
from pathlib import Path

_TAKEN = (errno.ENOTEMPTY, errno.EEXIST)


def claim(draft: Path, name: Path) -> bool:
    """Rename a prepared directory to its final name, with its contents; False if the name was taken.

    rename(2) never replaces a directory with content, and the server of a network file system decides which process was
    first. So a name is claimed once, and every process sees it complete.

    Args:
        draft: a directory beside `name` that holds at least one file.

    Raises:
        OSError: the file system failed, and the name was not taken.
    """
    mine = draft.stat()
    try:
        os.rename(draft, name)
    except OSError as error:
        if _is(name, mine):
            return True  # done by the server, whose answer was lost: the client asked again
        if error.errno in _TAKEN or os.path.lexists(name):
            return False  # also where what had it is gone meanwhile
        raise
    return True


def _is(name: Path, mine: os.stat_result) -> bool:
    try:
        return os.path.samestat(name.stat(), mine)
    except OSError:
        return False
