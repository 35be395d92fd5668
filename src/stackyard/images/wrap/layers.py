"""Whether the partitions of a SIF file can be joined where they are mounted: overlayfs for users, or fuse-overlayfs.

The launcher of a wrapped image asks the same (images/squashfs/launcher/layers.c) where a command starts.
"""

from __future__ import annotations

import ctypes
import os
from pathlib import Path

from stackyard.host.files.scratch import scratch
from stackyard.host.run.command import which

JOINER = "fuse-overlayfs"
_NEWNS, _NEWUSER = 0x00020000, 0x10000000
_FLAGS = 1 | 2 | 4 | 2048
"""Read-only, nosuid, nodev, nodiratime."""
_NO_NAMESPACE, _NO_OVERLAY = 3, 4


def lacking() -> str:
    """Why the partitions must be unpacked and packed as one; empty: they can be mounted.

    Where namespaces cannot be made at all it is empty too: there the commands need Apptainer, which joins them itself.
    """
    if which(JOINER) is not None:
        return ""
    with scratch("layers") as directory:
        pid = os.fork()
        if pid == 0:
            os._exit(_tried(directory))
        status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    return (
        f"overlayfs cannot be mounted by users of this machine, and {JOINER} was not found"
        if status == _NO_OVERLAY
        else ""
    )


def _tried(directory: Path) -> int:
    """In a child process: an exit status."""
    try:
        libc = ctypes.CDLL(None, use_errno=True)
        user, group = os.geteuid(), os.getegid()
        if libc.unshare(_NEWUSER | _NEWNS):
            return _NO_NAMESPACE
        for name, text in (("setgroups", "deny"), ("uid_map", f"{user} {user} 1"), ("gid_map", f"{group} {group} 1")):
            Path("/proc/self", name).write_text(text, encoding="ascii")
        flags = ctypes.c_ulong(_FLAGS)
        if libc.mount(b"none", os.fsencode(directory), b"tmpfs", ctypes.c_ulong(0), None):
            return _NO_NAMESPACE
        os.chdir(directory)
        for name in ("a", "b", "all"):
            Path(name).mkdir()
        return _NO_OVERLAY if libc.mount(b"overlay", b"all", b"overlay", flags, b"lowerdir=b:a") else 0
    except BaseException:  # the parent's own clean-up must not run here
        return _NO_NAMESPACE
