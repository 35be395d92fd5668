"""Recognises a full file system: by an error, by a program's output, and by its free space."""

from __future__ import annotations

import errno
import os
import re
from pathlib import Path

_FULL = (errno.ENOSPC, errno.EDQUOT)
_SAYS_FULL = "no space left on device|disk quota exceeded"
_NEXT_TO_NOTHING = 64 << 10


def is_full(error: BaseException) -> bool:
    """Whether an error means that the file system, or this user's quota, is full."""
    return isinstance(error, OSError) and error.errno in _FULL


def says_full(text: str) -> bool:
    """Whether a program's output or a library's error reports a full file system."""
    return re.search(_SAYS_FULL, text, re.IGNORECASE) is not None


def is_used_up(directory: Path) -> bool:
    """Whether a directory's file system is nearly full: for failures without a reason."""
    try:
        room = os.statvfs(directory)
    except OSError:
        return False
    return room.f_bavail * room.f_frsize < _NEXT_TO_NOTHING or (room.f_files > 0 and room.f_favail == 0)
