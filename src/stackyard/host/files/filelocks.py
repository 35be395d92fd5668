"""Lock files (flock(2)) of other programs in a cache: protected from read-only accounts, with messages while waiting.

An account that can open a file, even only for reading, can lock it; the program that needs the lock then waits
silently.
"""

from __future__ import annotations

import errno
import fcntl
import os
import stat
import time
from collections.abc import Callable
from pathlib import Path

from stackyard.core.errors import StackyardError
from stackyard.core.quoting import plain
from stackyard.host.files import at
from stackyard.host.run.identity import account_name

LIMIT_S = 900.0
PATIENCE_S = 1.0
"""How long a lock may be held before anything is said about it: most are given back at once."""
_POLL_S = 0.2


def secure(path: Path, tell: Callable[[str], None], *, shared: bool = False, limit_s: float = LIMIT_S) -> None:
    """Make a lock file accessible only to accounts that may write beside it, and return once it is free.

    Args:
        tell: called once, after `PATIENCE_S`, with a sentence about the processes that hold it.
        shared: whether the program needs only a shared lock, so that other shared locks do not matter.
        limit_s: seconds to wait for them.

    Raises:
        StackyardError: it stayed locked for that time.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    mode = 0o660 if path.parent.stat().st_mode & stat.S_IWGRP else 0o600  # a reader has no need of a lock
    kind = fcntl.LOCK_SH if shared else fcntl.LOCK_EX
    began = time.monotonic()
    told = False
    while _is_held(path, mode, kind):
        waited_s = time.monotonic() - began
        if waited_s > limit_s:
            raise StackyardError(
                f"timed out after {limit_s:g} s waiting for the lock {path}: held by {_named(path)}",
                hint=f"end that process, or remove {path} if it does not write to this cache",
            )
        if not told and waited_s >= PATIENCE_S:
            tell(f"waiting for the lock {path}: held by {_named(path)}")
            told = True
        time.sleep(_POLL_S)


def holders(path: Path) -> list[str]:
    """The processes that lock a file, as far as this machine shows them: account, number, program."""
    try:
        number = path.stat().st_ino
        rows = [line.split() for line in Path("/proc/locks").read_text(encoding="ascii").splitlines()]
    except OSError:
        return []
    locks = [row for row in rows if row[1] != "->" and row[5].rpartition(":")[2] == str(number)]
    return sorted({_process(int(row[4])) for row in locks})


def _process(pid: int) -> str:
    place = Path("/proc", str(pid))
    try:
        name = (place / "comm").read_text(errors="surrogateescape").strip()
        return f"{account_name(place.stat().st_uid)}, process {pid} ({plain(name)})"
    except OSError:
        return f"process {pid}" if pid > 0 else "a process of another host or container"


def _named(path: Path) -> str:
    return "; ".join(holders(path)) or "a process that this machine does not show"


def _is_held(path: Path, mode: int, kind: int) -> bool:
    """Whether a lock is unavailable now. The file is opened each time, since it may have been replaced."""
    try:
        handle = os.open(path, os.O_RDWR | os.O_CREAT, mode)
    except PermissionError:
        return False  # another writer's, who does not share it: the program that needs it reports that
    with at.closing(handle):  # and with it the lock
        _restrict(handle, mode)
        return not take(handle, kind)


def take(handle: int, kind: int) -> bool:
    """Take a lock without waiting; whether it is taken. On a file system without locks that always succeeds."""
    try:
        fcntl.flock(handle, kind | fcntl.LOCK_NB)
    except OSError as error:
        return error.errno not in (errno.EWOULDBLOCK, errno.EACCES)
    return True


def _restrict(handle: int, mode: int) -> None:
    status = os.fstat(handle)
    if status.st_uid == os.geteuid() and stat.S_IMODE(status.st_mode) != mode:
        os.fchmod(handle, mode)
