"""Temporary directories: the one door to $TMPDIR. Those that a killed process left are removed by the next one.

A directory is locked (flock(2)) as long as its process lives, and gets its name once it is locked. So one of this name
that is not locked was left behind, whichever namespace its process was in.
"""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from stackyard.errors import StackyardError

_PREFIX, _NEW = "stackyard.", ".stackyard-new-"
_UNLOCKED = (f"{_NEW}*", *(f"stackyard-{what}-*" for what in ("modules", "verify", "activation", "uv", "given")))
"""Names without a lock: of directories that are being made, and of former versions. They are left alone for a day."""

_DAY_S = 86400.0
_FULL = (errno.ENOSPC, errno.EDQUOT)
_LITTLE = 1 << 16  # bytes: what a full file system may still have


@contextmanager
def scratch(purpose: str) -> Iterator[Path]:
    """A new temporary directory, which is removed at the end.

    Args:
        purpose: a word for its name, which people see.

    Raises:
        StackyardError: it cannot be created, or its file system is full; the hint says what to do.
    """
    place = _place()
    _remove_left(place)
    try:
        made, lock = _make(place, purpose)
    except OSError as error:
        raise _unusable(place, error.strerror) from error
    try:
        yield made
    except (OSError, StackyardError) as error:
        number = getattr(error, "errno", None)
        if (number is None or number in _FULL) and _is_full(made):
            raise _unusable(place, os.strerror(errno.ENOSPC), str(error)) from error
        raise
    finally:
        shutil.rmtree(made, ignore_errors=True)
        os.close(lock)


def _place() -> Path:
    """$TMPDIR, else /tmp: the first of the usual directories that exists and may be written to."""
    named = [os.environ.get(name, "") for name in ("TMPDIR", "TEMP", "TMP")]
    usual = [Path(name).absolute() for name in (*named, "/tmp", "/var/tmp") if name]
    found = (place for place in usual if place.is_dir() and os.access(place, os.W_OK | os.X_OK))
    return next(found, usual[0])


def _make(place: Path, purpose: str) -> tuple[Path, int]:
    new = Path(tempfile.mkdtemp(prefix=_NEW, dir=place))
    lock = os.open(new, os.O_RDONLY | os.O_DIRECTORY)
    try:
        with suppress(OSError):  # a file system without locks: nobody removes what is left there
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return new.rename(place / f"{_PREFIX}{purpose}-{new.name.removeprefix(_NEW)}"), lock
    except BaseException:
        os.close(lock)
        shutil.rmtree(new, ignore_errors=True)
        raise


def _remove_left(place: Path) -> None:
    """Remove what processes of this user left; what fails is left for the next one."""
    with suppress(OSError):
        for left in place.glob(f"{_PREFIX}*"):
            if _is_own(left) and _is_unlocked(left):
                shutil.rmtree(left, ignore_errors=True)
        for left in (path for pattern in _UNLOCKED for path in place.glob(pattern)):
            if _is_own(left) and time.time() - left.lstat().st_mtime > _DAY_S:
                shutil.rmtree(left, ignore_errors=True)


def _is_own(path: Path) -> bool:
    return path.is_dir() and not path.is_symlink() and path.lstat().st_uid == os.geteuid()


def _is_unlocked(folder: Path) -> bool:
    try:
        lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    except OSError:
        return False
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    finally:
        os.close(lock)
    return True


def _is_full(folder: Path) -> bool:
    try:
        status = os.statvfs(folder)
    except OSError:
        return False
    return status.f_bavail * status.f_frsize < _LITTLE or (status.f_files > 0 and status.f_favail == 0)


def _unusable(place: Path, reason: str | None, detail: str | None = None) -> StackyardError:
    return StackyardError(
        f"cannot write to the temporary directory {place}: {reason}",
        hint="free some space there, or set TMPDIR to a directory that has some",
        detail=detail,
    )
