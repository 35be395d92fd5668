"""What a directory takes on disk."""

from __future__ import annotations

import os
from pathlib import Path


def taken(root: Path) -> tuple[int, int]:
    """Bytes and inodes below a directory and of itself; a file with several names there counts once."""
    found = {}
    for directory, names, files in os.walk(root):
        for name in (".", *names, *files):
            status = Path(directory, name).lstat()
            found[status.st_dev, status.st_ino] = status.st_blocks * 512
    return sum(found.values()), len(found)
