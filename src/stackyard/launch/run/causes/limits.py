"""The limits of this process that rules of causes name, for their remedies. Ranks on this machine inherit them."""

from __future__ import annotations

import os
import resource
from contextlib import suppress
from dataclasses import replace

from stackyard.host.machine import cgroups
from stackyard.launch.records.outcome import Cause

_RLIMITS = {
    "files": (resource.RLIMIT_NOFILE, "open files", 0),
    "processes": (resource.RLIMIT_NPROC, "processes and threads", 0),
    "locked-memory": (resource.RLIMIT_MEMLOCK, "locked memory", 1),
    "address-space": (resource.RLIMIT_AS, "address space", 1),
    "stack": (resource.RLIMIT_STACK, "stack", 1),
    "file-size": (resource.RLIMIT_FSIZE, "file size", 1),
}
LIMITS = (*_RLIMITS, "memory", "shared-memory", "temporary")
"""What a rule's `limit` can name."""


def with_limit(cause: Cause, limit: str) -> Cause:
    """The cause, whose remedy ends with the limit here; unchanged if it cannot be read."""
    here = stated(limit)
    return replace(cause, remedy=f"{cause.remedy}; {here}") if here else cause


def stated(limit: str) -> str:
    """``here a process can have 1024 open files (ulimit -n; up to 524288 without an administrator)``; or empty."""
    with suppress(OSError, ValueError):
        if limit in _RLIMITS:
            return _of_process(*_RLIMITS[limit])
        if limit == "memory":
            return f"here a job can use {_gib(_memory())}"
        place = "/dev/shm" if limit == "shared-memory" else os.environ.get("TMPDIR") or "/tmp"
        found = os.statvfs(place)
        size, free = found.f_frsize * found.f_blocks, found.f_frsize * found.f_bavail
        return f"here {place} has {_gib(size)}, of which {_gib(free)} are free"
    return ""


def _of_process(which: int, what: str, is_bytes: int) -> str:
    soft, hard = resource.getrlimit(which)
    if soft == resource.RLIM_INFINITY:
        return f"here the limit of {what} is not set"
    shown = _gib if is_bytes else str
    most = "any value" if hard == resource.RLIM_INFINITY else shown(hard)
    raised = "" if soft == hard else f", up to {most} by ulimit"
    return f"here the limit of {what} is {shown(soft)}{raised}"


def _memory() -> int:
    """Bytes: the limit of this process's control group, or the memory of the machine."""
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return min(total, cgroups.limits().memory or total)


def _gib(size: float) -> str:
    return f"{size / (1 << 30):.1f} GiB" if size >= 1 << 30 else f"{size / (1 << 10):.0f} KiB"
