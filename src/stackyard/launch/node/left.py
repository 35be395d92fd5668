"""Removes leftovers of killed agents on this node's disk: found by name, and checked not to be in use.

An agent holds the lock of its directory while it runs, so reused process ids do not matter. The next agent of the same
user removes unlocked directories. Part of the agent: any Python from 3.6 on, standard library alone, few imports (see
`stackyard.launch.node.agent`).
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
    """Remove leftovers of other agents of this user beside this agent's directory.

    Args:
        own: this agent's directory, which is kept.
        start: the beginning of the names; an id and the host's name follow, and a number if a name was taken.
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
    """Whether it is a directory of this user that no other user may enter."""
    status = os.lstat(path)
    return stat.S_ISDIR(status.st_mode) and status.st_uid == os.getuid() and not status.st_mode & 0o077


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
    """Remove a tree, even with protected directories; links are not followed."""
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
    descriptor = locked(os.path.join(path, lock))
    if descriptor >= 0:
        remove(path)
        os.close(descriptor)
