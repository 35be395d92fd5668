"""Checks whether the launcher of a revision is the program in its record.

Every command of an image starts through it, and the image's content is visible only through it, so it is checked before
any other check uses it.
"""

from __future__ import annotations

import hashlib
import os
import stat
from pathlib import Path
from typing import Literal

from stackyard.core.errors import cause
from stackyard.core.late import dataclass
from stackyard.host.files import at
from stackyard.yard import disk
from stackyard.yard.revision.directories import RevisionPaths
from stackyard.yard.revision.record import BuildRecord

_MOST_BYTES = 1 << 26
_MODE = 0o555


@dataclass(frozen=True)
class Problem:
    """The problem of a launcher, as a phrase that follows its path."""

    path: Path
    what: Literal["missing", "changed", "permissions", "unreadable"]
    text: str

    def __str__(self) -> str:
        return f"{self.path} {self.text}" if self.what == "missing" else f"{self.path}: {self.text}"


def has_launcher(record: BuildRecord) -> bool:
    """Whether the commands of a revision start through a launcher."""
    return record.payload.launcher is not None


def is_recorded(record: BuildRecord) -> bool:
    """Whether the record has the hash of the launcher; records of earlier versions do not."""
    return bool(record.payload.launcher_sha256) or not has_launcher(record)


def problem(record: BuildRecord) -> Problem | None:
    """The problem of the launcher; None: it has none, or the revision has no launcher.

    Without a recorded hash (`is_recorded`), only that it is a program is checked.

    Raises:
        OSError: it cannot be read: the file system does not answer.
    """
    if not has_launcher(record):
        return None
    path = RevisionPaths.of(record.path).launcher
    if path.is_symlink():
        return Problem(path, "changed", f"is a link to {path.readlink()}")
    if not disk.is_there(path):
        return Problem(path, "missing", "is missing: no command of the revision starts")
    try:
        data, status = disk.of_anybody(path, _MOST_BYTES)
    except at.UnexpectedFileError as error:
        return Problem(path, "changed", f"is {cause(error)}")
    except PermissionError as error:
        return Problem(path, "unreadable", f"cannot be read: {cause(error)}")
    return _of_bytes(path, data, record.payload.launcher_sha256) or _of_mode(path, status)


def _of_bytes(path: Path, data: bytes, recorded: str) -> Problem | None:
    digest = hashlib.sha256(data).hexdigest()
    if recorded and digest != recorded:
        return Problem(path, "changed", f"sha256 {digest[:16]} instead of {recorded[:16]}: it is another program")
    is_program = data.startswith((b"#!", b"\x7fELF"))
    return None if is_program else Problem(path, "changed", "is not a program")


def _of_mode(path: Path, status: os.stat_result) -> Problem | None:
    mode = stat.S_IMODE(status.st_mode)
    wrong = not mode & stat.S_IXUSR or mode & (0o022 | stat.S_ISUID | stat.S_ISGID)
    return Problem(path, "permissions", f"mode {mode:04o} instead of {_MODE:04o}") if wrong else None
