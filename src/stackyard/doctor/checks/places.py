"""Directories and mounts: those that do not answer, stale ones, and their free room."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from stackyard.core.errors import StackyardError
from stackyard.core.findings import Finding
from stackyard.doctor.checks.base import Surroundings, listed, said
from stackyard.host.files import filesystem
from stackyard.yard import disk

ANSWER_S = 1.0
"""How long a directory may take to be opened. A loaded parallel file system takes some tenths."""
_AT_ONCE = 100
_LISTS = ("PATH", "PYTHONPATH", "LD_LIBRARY_PATH")
_SINGLE = ("HOME", "TMPDIR", "VIRTUAL_ENV", "CONDA_PREFIX")


def look_at_mounts(around: Surroundings) -> Iterator[Finding]:
    """Network and FUSE mounts, and directories of the shell, that do not answer, or whose server has ended."""
    kinds = tuple(listed("mounts_with_a_server"))
    rows = filesystem.mounts() if Path("/proc/self/mountinfo").exists() else []
    mounts = {Path(one.where): one.kind for one in rows if one.kind.startswith(kinds)}
    named = [*(part for name in _LISTS for part in around.paths(name)), *map(around.environ.get, _SINGLE)]
    directories = list(dict.fromkeys([*(Path(part) for part in named if part and part.startswith("/")), *mounts]))
    for start in range(0, len(directories), _AT_ONCE):  # those of the shell first: the deadline may end it
        found = dict(disk.looked_into(directories[start : start + _AT_ONCE], ANSWER_S))
        silent = [directory for directory, error in found.items() if isinstance(error, StackyardError)]
        for directory, error in (found | dict(disk.looked_into(silent, ANSWER_S / 2))).items():
            if getattr(error, "errno", None) in (errno.ENOTCONN, errno.ESTALE):
                is_fuse = mounts.get(directory, "").startswith("fuse")
                yield said("mount-stale", "remedy_fuse" if is_fuse else "remedy", directory=directory)
            elif isinstance(error, StackyardError):
                yield said("no-answer", what=directory, seconds=f"{ANSWER_S:g}")


def look_at_room(around: Surroundings) -> Iterator[Finding]:
    """The home directory and the one for temporary files: missing, full, read-only, noexec."""
    temporary = around.environ.get("TMPDIR") or "/tmp"
    if not disk.is_directory(Path(temporary)) or not os.access(temporary, os.W_OK | os.X_OK):
        yield said("temporary-missing", directory=temporary)
    elif os.statvfs(temporary).f_flag & os.ST_NOEXEC:
        yield said("temporary-noexec", directory=temporary)
    for directory in dict.fromkeys((around.environ.get("HOME", ""), temporary)):
        yield from of(directory)


def of(directory: str | Path) -> Iterator[Finding]:
    """The free room and the free inodes of a directory's file system. A quota shows here on few file systems."""
    least_bytes, least_inodes = listed("least_room")
    with suppress(OSError):
        room = os.statvfs(directory)
        free = room.f_bavail * room.f_frsize
        if free < least_bytes and room.f_blocks:
            yield said("room", directory=directory, free=f"{free >> 20:,}")
        elif room.f_files and room.f_favail < min(least_inodes, room.f_files // 20):
            yield said("inodes", directory=directory, free=f"{room.f_favail:,}")
