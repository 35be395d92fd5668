"""The names of runs, ``<date>-<number>``, unique among your runs in all directories.

A name is claimed in your state directory (``$XDG_STATE_HOME/stackyard/names``) before the run's directory is made, so
that a name identifies one run. The claim is a file that only one process can create: nothing is locked.
"""

from __future__ import annotations

import re
import time
from contextlib import suppress
from pathlib import Path

from stackyard.core.errors import StackyardError
from stackyard.host.files import home
from stackyard.launch.records.paths import RunPaths

_NAME = re.compile(r"(\d{4}-\d\d-\d\d)-(\d{3,})")
_KEPT_S = 3 * 86400
"""How long a claim is kept: a day is not the same one in all time zones, and two hosts may differ in theirs."""


def new_run(parent: Path) -> RunPaths:
    """Create a run directory below `parent`, private to you; concurrent processes get different ones.

    Raises:
        StackyardError: the directory cannot be created.
    """
    try:
        parent.mkdir(parents=True, exist_ok=True)
        paths = next_run(parent)
        while not (_claim(paths.name) and _made(paths.root)):
            day, number = _parts(paths.name)
            paths = RunPaths(paths.root.with_name(f"{day}-{number + 1:03d}"))
        return paths
    except OSError as error:
        hint = "runs are recorded below the current directory: change to one that you can write to"
        raise StackyardError(f"cannot create a run directory in {parent}: {error.strerror}", hint=hint) from error


def next_run(parent: Path) -> RunPaths:
    """The directory that `new_run` would create now; creates nothing."""
    day = time.strftime("%Y-%m-%d")
    taken = [_parts(path.name)[1] for where in (parent, names_directory()) for path in _of_day(where, day)]
    return RunPaths((parent / f"{day}-{max(taken, default=0) + 1:03d}").absolute())


def order(paths: RunPaths) -> tuple[str, int]:
    """The sort key of runs by age: the date, then the number as an integer, since it may exceed 999."""
    return _parts(paths.name)


def fits(paths: RunPaths, end: str) -> bool:
    """Whether a run's name ends with these parts of a name: ``21-003``; leading zeros may be omitted."""
    if end.isdecimal():
        return _parts(paths.name)[1] == int(end)
    return paths.name.endswith(f"-{end}")


def state_directory() -> Path:
    """The directory with your index of all runs; a path that cannot exist for an account without a home."""
    path = home.xdg("XDG_STATE_HOME", ".local/state")
    return path / "stackyard" if path else home.NOWHERE


def names_directory() -> Path:
    """The directory with one empty file for each recent name."""
    return state_directory() / "names"


def _parts(name: str) -> tuple[str, int]:
    match = _NAME.fullmatch(name)
    return (match[1], int(match[2])) if match else (name, 0)


def _of_day(directory: Path, day: str) -> list[Path]:
    with suppress(OSError):
        return [path for path in directory.iterdir() if _parts(path.name)[0] == day]
    return []


def _made(root: Path) -> bool:
    try:
        root.mkdir(mode=0o700)
    except FileExistsError:
        return False
    return True


def _claim(name: str) -> bool:
    """Claim a name; whether it succeeded. Without a writable home the run continues, with a name that may be in use."""
    directory = names_directory()
    try:
        directory.mkdir(parents=True, exist_ok=True)
        (directory / name).touch(exist_ok=False)
    except FileExistsError:
        return False
    except OSError:
        return True
    _forget_old(directory)
    return True


def _forget_old(directory: Path) -> None:
    """Remove the claims of past days, whose names are not used again."""
    today, oldest = time.strftime("%Y-%m-%d"), time.time() - _KEPT_S
    with suppress(OSError):
        for path in directory.iterdir():
            if _parts(path.name)[0] < today and path.stat().st_mtime < oldest:
                path.unlink(missing_ok=True)
