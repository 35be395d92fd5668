"""The file system of a path, and whether other machines share it, judged by its type."""

from __future__ import annotations

import grp
import os
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from stackyard.host.run.readonly import unescaped

_IN_MEMORY = ("tmpfs", "ramfs", "devtmpfs", "hugetlbfs")
_ON_DISKS = ("ext2", "ext3", "ext4", "xfs", "btrfs", "zfs", "f2fs", "overlay", "bcachefs", "jfs", "reiserfs")


class MountedFileSystem(NamedTuple):
    """One line of mountinfo: mount point, type, source, and the file system's options."""

    where: str
    kind: str
    source: str
    options: str


def mounts() -> list[MountedFileSystem]:
    """The mounts in this namespace; of several at one place the last is in effect. Source: proc(5)."""
    systems = []
    for line in Path("/proc/self/mountinfo").read_bytes().splitlines():
        before, _, after = line.partition(b" - ")
        kind, source, *options = after.split(b" ")
        texts = (unescaped(before.split(b" ")[4]), kind, unescaped(source), b" ".join(options))
        systems.append(MountedFileSystem(*map(os.fsdecode, texts)))
    return systems


def kind_of(path: Path) -> str:
    """The type of a path's file system, by the kernel's name; empty: unknown."""
    place, best, kind = os.path.realpath(path), "", ""
    with suppress(OSError):
        for mount in mounts():
            inside = place == mount.where or place.startswith(f"{mount.where.rstrip('/')}/")
            if inside and len(mount.where) >= len(best):  # of two at one place the later one covers the other
                best, kind = mount.where, mount.kind
    return kind


def only_here(path: Path) -> str:
    """The type of a file system local to this machine: in memory, or on its own disks; empty: a shared one.

    A disk may be exported to others by this very machine; that cannot be told from its type.
    """
    kind = kind_of(path)
    return kind if kind in (*_IN_MEMORY, *_ON_DISKS) else ""


def group_name(gid: int) -> str:
    """The name of a group, or its number if it has none."""
    try:
        return grp.getgrgid(gid).gr_name
    except KeyError:
        return str(gid)
