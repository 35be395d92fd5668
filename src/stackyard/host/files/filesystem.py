"""Which file system a path is on, and whether other machines see it too, as far as its type tells."""

from __future__ import annotations

import grp
import os
from pathlib import Path

from stackyard.host.run.readonly import unescaped

_IN_MEMORY = ("tmpfs", "ramfs", "devtmpfs", "hugetlbfs")
_ON_DISKS = ("ext2", "ext3", "ext4", "xfs", "btrfs", "zfs", "f2fs", "overlay", "bcachefs", "jfs", "reiserfs")


def kind_of(path: Path) -> str:
    """The type of the file system that a path is on, as the kernel names it; empty: not known."""
    place, best, kind = os.path.realpath(path), "", ""
    try:
        lines = Path("/proc/self/mountinfo").read_bytes().splitlines()
    except OSError:
        return ""
    for line in lines:
        before, _, after = line.partition(b" - ")
        point = os.fsdecode(unescaped(before.split()[4]))
        inside = place == point or place.startswith(f"{point.rstrip('/')}/")
        if inside and len(point) >= len(best):  # of two at one place the later one covers the other
            best, kind = point, os.fsdecode(after.split()[0])
    return kind


def only_here(path: Path) -> str:
    """The type of a file system that is this machine's alone: in memory, or on its own disks; empty: a shared one.

    A disk may be exported to others by this very machine; that cannot be told from its type.
    """
    kind = kind_of(path)
    return kind if kind in (*_IN_MEMORY, *_ON_DISKS) else ""


def group_name(gid: int) -> str:
    """The name of a group; its number where the system has none."""
    try:
        return grp.getgrgid(gid).gr_name
    except KeyError:
        return str(gid)
