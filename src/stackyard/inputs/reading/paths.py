"""Paths in spec files: relative to a directory, with ``~``; and checks of named files."""

from __future__ import annotations

import os
from pathlib import Path

from stackyard.core.errors import InputError, Where, cause
from stackyard.core.quoting import cut
from stackyard.host.files import home
from stackyard.yard import disk


def absolute(text: str, base_dir: Path) -> Path:
    """The absolute path for `text`, relative to the base directory, with links and ``..`` resolved.

    NUL, which no path can contain, is removed. A loop of links is kept: opening it raises an OSError.
    """
    return Path(os.path.realpath(base_dir / with_home(text.replace("\0", ""))))


def with_home(text: str) -> Path:
    """A path with ``~`` replaced by the home directory; ``~name`` of an unknown account is kept.

    Raises:
        MissingError: it is below your home, and you have none (`host.files.home`).
    """
    try:
        return home.expanded(text)
    except KeyError:
        return Path(text)


def require_file(path: Path, hint: str, where: Where | None = None, *, kind: str = "file") -> None:
    """Raise InputError if a file that another one names does not exist, or cannot be looked up.

    Args:
        hint: where the path is searched, or what to name.
        where: the place that names it.
        kind: for the message: ``included file``.
    """
    try:
        is_there = disk.is_file(path)
    except OSError as error:  # too long, a loop of links, below a directory without permission
        message = f"cannot look up the {kind} {cut(str(path))}: {cause(error)}"
        raise InputError(message, where=where, hint="check the path and its permissions") from error
    if not is_there:
        raise InputError(f"no such {kind}: {path}", where=where, hint=hint)
