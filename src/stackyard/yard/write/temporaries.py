"""What a process was killed before renaming: `yard.write.atomic` makes each file beside its place, under a hidden name.

The name tells whose it is. It goes at once where that process is dead for certain, and after a day where that cannot
be told: it is of another host, or an earlier version made it. A writer that lives nevertheless fails, and nothing more.
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
    """What can go, sorted. Directories that cannot be listed are left out."""
    root = Path(os.path.realpath(yard.root))
    own = (
        directory
        for directory in _directories(yard)
        if _is_in_place(directory, root / directory.relative_to(yard.root))
    )
    return sorted(path for directory in own for path in _in(yard, directory))


def is_one(name: str) -> bool:
    """Whether a name is that of a file that is being written, or was."""
    return _NAME.fullmatch(name) is not None


def remove(yard: Yard, path: Path) -> bool:
    """Remove one, if it still can go.

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
    """The directories in which files are written one by one; those of caches have a cleaning of their own."""
    yield yard.root
    flat = (yard.generations, yard.trash, yard.extensions, yard.bases, yard.shares, yard.locks, yard.notes)
    for top in (*flat, yard.uses, yard.children, yard.usage):
        yield from (top, *(_inner(top) if top in flat else ()))
    for paths in revisions.directories(yard):
        yield from (paths.root, paths.signatures, paths.commands, paths.asking, paths.check_scripts)


def _inner(top: Path) -> list[Path]:
    return [path for path in disk.entries(top) if not path.name.startswith(".") and not path.is_symlink()]


def _is_in_place(directory: Path, real: Path) -> bool:
    """Whether it is a directory, to which no link of the yard leads: caches and locks may be elsewhere."""
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
    """Whether it is a directory of this account, as checks' scripts are made; never what others put into a drop."""
    return stat.S_ISDIR(status.st_mode) and status.st_uid == os.geteuid()
