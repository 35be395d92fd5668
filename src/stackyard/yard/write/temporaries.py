"""Temporary files of killed processes: `yard.write.atomic` creates each beside its target, under a hidden name.

The name identifies the process. The file is removed at once if that process is certainly dead, and after a day if that
is unknown: the file is from another host or an earlier version. If the writer still runs, its write fails, without
other damage.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from stackyard.host.files import at
from stackyard.host.run import clock
from stackyard.host.run.identity import MARK, fate_of
from stackyard.yard import disk
from stackyard.yard.layout import Yard
from stackyard.yard.revision import revisions

_NAME = re.compile(
    rf"\..+?\.(?:(?P<mark>{MARK})(?:\.tmp)?|[0-9a-f]{{12}}(?:\.tmp)?|(?:[0-9a-f]{{16}}|[0-9a-z_]{{8}})\.tmp)", re.DOTALL
)
"""Those of this version, and of the earlier ones."""


def found(yard: Yard) -> list[Path]:
    """The removable files, sorted. Unreadable directories are skipped."""
    root = Path(os.path.realpath(yard.root))
    own = (
        directory
        for directory in _directories(yard)
        if _is_in_place(directory, root / directory.relative_to(yard.root))
    )
    return sorted(path for directory in own for path in _in(yard, directory))


def is_one(name: str) -> bool:
    """Whether a name is that of a temporary file."""
    return _NAME.fullmatch(name) is not None


def remove(yard: Yard, path: Path) -> bool:
    """Remove one, if it is still removable.

    Raises:
        OSError: it belongs to another account, which keeps it.
    """
    with at.parent(yard.root, path) as (directory, name):
        try:
            status = os.stat(name, dir_fd=directory, follow_symlinks=False)
        except FileNotFoundError:
            return False
        if not _can_go(name, status):
            return False
        at.remove_tree(directory, name)
    return True


def _directories(yard: Yard) -> Iterator[Path]:
    """The directories in which files are written one by one; caches have their own cleaning."""
    yield yard.root
    flat = (yard.generations, yard.trash, yard.extensions, yard.bases, yard.shares, yard.locks, yard.notes)
    for top in (*flat, yard.uses, yard.children, yard.usage):
        yield from (top, *(_inner(top) if top in flat else ()))
    for paths in revisions.directories(yard):
        yield from (paths.root, paths.signatures, paths.commands, paths.asking, paths.check_scripts)


def _inner(top: Path) -> list[Path]:
    return [path for path in disk.entries(top) if not path.name.startswith(".") and not path.is_symlink()]


def _is_in_place(directory: Path, real: Path) -> bool:
    """Whether it is a directory reached without links of the yard: caches and locks may be elsewhere."""
    return directory.is_dir() and os.path.realpath(directory) == str(real)


def _in(yard: Yard, directory: Path) -> Iterator[Path]:
    with suppress(OSError), at.directory(yard.root, directory) as fd:
        for name in at.names(fd):
            with suppress(FileNotFoundError):
                if name.startswith(".") and _can_go(name, os.stat(name, dir_fd=fd, follow_symlinks=False)):
                    yield directory / name


def _can_go(name: str, status: os.stat_result) -> bool:
    known = _NAME.fullmatch(name)
    if known is None or not (stat.S_ISREG(status.st_mode) or stat.S_ISLNK(status.st_mode) or _is_tree(status)):
        return False
    fate = fate_of(known["mark"] or "")
    return fate == "dead" or (fate == "unknown" and clock.age_s(status.st_mtime) > clock.DAY_S)


def _is_tree(status: os.stat_result) -> bool:
    """Whether it is a directory of this account, as created for check scripts; never another account's in a drop."""
    return stat.S_ISDIR(status.st_mode) and status.st_uid == os.geteuid()
