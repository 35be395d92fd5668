"""What agents that were killed have left on this node's disk: found by its name, told from what is in use, removed.

An agent holds the lock of its directory as long as it lives, whatever process ids are reused. One without a holder is
removed by the next agent of the same user. Part of the agent: any Python from 3.6 on, standard library alone, few
imports (see `stackyard.launch.node.agent`).
"""
# ruff: noqa: PTH101, PTH106, PTH108, PTH116, PTH118, PTH120, PTH208

import contextlib
import fcntl
import os
import re
import stat
import time

from stackyard.launch.node.machine import listed

LEFT_S = 600.0
"""A directory without a holder is left alone for so long: its agent, or the next attempt of a job, may come."""


def sweep(own: "str", start: "str", host: "str", lock: "str" = "") -> "None":
    """Remove what was left beside a directory of this agent by others of this user.

    Args:
        own: the directory, which stays.
        start: what the names begin with: an id and the host's name follow, and a number where a name was taken.
        lock: the file in each that its agent has locked; empty: the directory itself.
    """
    base = os.path.dirname(own)
    named = re.compile(re.escape(start) + "[0-9a-z]+-" + re.escape(host) + r"(\.\d)?")
    for name in listed(base):
        path = os.path.join(base, name)
        if named.fullmatch(name) and path != own:
            with contextlib.suppress(OSError):
                _remove_if_left(path, lock)


def is_private(path: "str") -> "bool":
    """Whether it is a directory of this user that no other one may enter."""
    found = os.lstat(path)
    return stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid() and not found.st_mode & 0o077


def locked(path: "str", flags: "int" = 0) -> "int":
    """The descriptor that holds the lock of a file or directory; -1 where another process holds it. Raises OSError."""
    lock = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | flags, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(lock)
        return -1
    return lock


def remove(path: "str") -> "None":
    """Remove a tree, however its directories are protected; links are not followed."""
    try:
        if not stat.S_ISDIR(os.lstat(path).st_mode):
            os.unlink(path)
            return
        os.chmod(path, 0o700)
        for name in os.listdir(path):
            remove(os.path.join(path, name))
        os.rmdir(path)
    except OSError:
        pass


def _remove_if_left(path: "str", lock: "str") -> "None":
    if time.time() - os.stat(path).st_mtime < LEFT_S or not is_private(path):
        return
    held = locked(os.path.join(path, lock))
    if held >= 0:
        remove(path)
        os.close(held)
