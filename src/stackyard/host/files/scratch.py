"""Temporary directories: the one door to $TMPDIR. The next process removes those of killed ones.

A directory is locked (flock(2)) while its process lives, and gets its name once it is locked. The name has the boot id:
an unlocked directory of this boot is a leftover, independent of its process's namespace.
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
from functools import cache
from pathlib import Path

from stackyard.core.errors import StackyardError
from stackyard.core.grammar import YARD
from stackyard.host.files import at, space
from stackyard.host.run import clock
from stackyard.host.run.identity import boot

_PREFIX, _NEW = "stackyard.", ".stackyard-new-"
_UNLOCKED = (_NEW, *(f"stackyard-{what}-" for what in ("modules", "verify", "activation", "uv", "given")))
"""How names without a lock begin: of directories that are being made, and of former versions."""


@contextmanager
def scratch(purpose: str, beside: Path | None = None) -> Iterator[Path]:
    """A new temporary directory, removed at the end of the ``with`` block.

    Args:
        purpose: a readable word for its name.
        beside: the directory in which to create it, for files that are then renamed into place; None: $TMPDIR.

    Raises:
        StackyardError: it cannot be created, or its file system is full; the hint says what to do.
    """
    place = beside or _place()
    _remove_left(place)
    try:
        directory, lock = _make(place, purpose)
    except OSError as error:
        raise _unusable(place, error.strerror, beside=beside) from error
    try:
        yield directory
    except (OSError, StackyardError) as error:
        if _may_be_full(error) and space.is_used_up(directory):
            raise _unusable(place, os.strerror(errno.ENOSPC), error, beside) from error
        raise
    finally:
        shutil.rmtree(directory, ignore_errors=True)
        os.close(lock)


def _place() -> Path:
    """$TMPDIR, else /tmp: the first of the usual directories that exists, may be written to, and can be a module path:
    a path with a blank cannot, and verifications load modules from here."""
    named = [os.environ.get(name, "") for name in ("TMPDIR", "TEMP", "TMP")]
    usual = [Path(name).absolute() for name in (*named, "/tmp", "/var/tmp") if name]
    places = (place for place in usual if place.is_dir() and os.access(place, os.W_OK | os.X_OK))
    return next((place for place in places if YARD.accepts(str(place))), usual[0])


def _make(place: Path, purpose: str) -> tuple[Path, int]:
    new = Path(tempfile.mkdtemp(prefix=_NEW, dir=place))
    lock = os.open(new, os.O_RDONLY | os.O_DIRECTORY)
    try:
        with suppress(OSError):  # a file system without locks: what is left there stays
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return new.rename(place / f"{_PREFIX}{purpose}-{boot()}-{new.name.removeprefix(_NEW)}"), lock
    except BaseException:
        os.close(lock)
        shutil.rmtree(new, ignore_errors=True)
        raise


@cache
def _remove_left(place: Path) -> None:
    """Remove leftovers of this user's processes, once in this process; failures are left for the next one."""
    with suppress(OSError), os.scandir(place) as entries:
        for entry in entries:
            with suppress(OSError):
                if _is_left(entry):
                    shutil.rmtree(entry.path, ignore_errors=True)


def _is_left(entry: os.DirEntry[str]) -> bool:
    """Whether a directory is ours and a leftover.

    A lock shows it at once where all its processes are on this machine: a file system may keep locks to each host. Any
    other is left alone for a day.
    """
    locked = entry.name.startswith(_PREFIX)
    if not (locked or entry.name.startswith(_UNLOCKED)) or not entry.is_dir(follow_symlinks=False):
        return False
    status = entry.stat(follow_symlinks=False)
    if status.st_uid != os.geteuid() or (locked and not _is_unlocked(entry.path)):
        return False
    return (locked and f"-{boot()}-" in entry.name) or time.time() - status.st_mtime > clock.DAY_S


def _is_unlocked(directory: str) -> bool:
    try:
        with at.closing(os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)) as lock:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def _may_be_full(error: OSError | StackyardError) -> bool:
    """Whether an error may be due to lack of space: it says so, or has no specific cause."""
    return space.is_full(error) or (isinstance(error, StackyardError) and error.exit_code == StackyardError.exit_code)


def _unusable(
    place: Path, reason: str | None, error: Exception | None = None, beside: Path | None = None
) -> StackyardError:
    other = "choose another directory" if beside else "set TMPDIR to a directory that has some"
    hints = [f"free some space there, or {other}", getattr(error, "hint", None)]
    return StackyardError(
        f"cannot write to the {'' if beside else 'temporary '}directory {place}: {reason}",
        hint="; ".join(filter(None, hints)),
        detail=str(error) if error else None,
    )
