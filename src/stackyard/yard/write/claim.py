"""Claiming a name: how processes on any host agree which of them has it, without locks, hard links or clocks."""

from __future__ import annotations

import errno
import os
from pathlib import Path

_TAKEN = (errno.ENOTEMPTY, errno.EEXIST)


def claim(draft: Path, name: Path) -> bool:
    """Give a prepared directory its final name, with all that is in it; False where the name was taken.

    A directory with content is never replaced by rename(2), and the server of a network file system decides who was
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
