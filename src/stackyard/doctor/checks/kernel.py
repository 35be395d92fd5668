"""The kernel: what it allows accounts to do, shared memory, and the clock."""

from __future__ import annotations

import ctypes
import os
import re
from collections.abc import Iterator

from stackyard.core.findings import Finding
from stackyard.doctor.checks.base import Surroundings, listed, said
from stackyard.images.squashfs import mounts

_TIME_ERROR = 5  # adjtimex(2): the clock is not synchronised
_TIMEX_BYTES = 512  # more than struct timex has; its modes are 0: nothing is set


def look_at_mounting(around: Surroundings) -> Iterator[Finding]:
    """User namespaces and FUSE, with which accounts mount images."""
    if why := mounts.why_no_namespace():
        apparmor = around.read("proc/sys/kernel/apparmor_restrict_unprivileged_userns") == "1"
        yield said("user-namespaces", "remedy_apparmor" if apparmor else "remedy", why=why)
    if why := mounts.why_no_fuse():
        yield said("fuse", why=why)


def look_at_settings(around: Surroundings) -> Iterator[Finding]:
    """Files of the kernel with a value that findings.yaml describes, and a /proc that is not mounted."""
    if not (around.root / "proc/self").exists():
        yield said("proc-missing")
    for row in listed("kernel_files"):
        if re.fullmatch(row["value"], around.read(row["file"])):
            yield said(row["rule"])


def look_at_shared_memory(around: Surroundings) -> Iterator[Finding]:
    """The size of /dev/shm, and whether this account can write there."""
    place = around.root / "dev/shm"
    try:
        room = os.statvfs(place)
    except OSError:
        yield said("shm-missing")
        return
    size, free = room.f_blocks * room.f_frsize, room.f_bavail * room.f_frsize
    if not os.access(place, os.W_OK | os.X_OK) or room.f_flag & os.ST_RDONLY:
        yield said("shm-missing")
    elif size < listed("shared_memory")[0]:
        yield said("shm-small", size=f"{size >> 20:,}")
    elif free < listed("shared_memory")[1]:
        yield said("shm-full", free=f"{free >> 20:,}", size=f"{size >> 20:,}")


def look_at_clock(around: Surroundings) -> Iterator[Finding]:
    """Whether the kernel's clock is kept by a time server, on a machine that works with others."""
    if around.cluster and ctypes.CDLL(None).adjtimex(ctypes.create_string_buffer(_TIMEX_BYTES)) == _TIME_ERROR:
        yield said("clock-free")
