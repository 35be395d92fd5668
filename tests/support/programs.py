"""The programs that tests run, by the table that also installs them (``scripts/test-programs.txt``).

A test that can do without none of them asks with `need`; the skip names the Debian package. What is not in the table
cannot be asked for, so that no test is skipped everywhere for something that nothing installs.
"""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

from stackyard.core.errors import MissingError

TABLE = Path(__file__).parents[2] / "scripts" / "test-programs.txt"
PATH = ":".join((os.environ.get("PATH", os.defpath), "/usr/sbin", "/sbin"))


@dataclass(frozen=True)
class Program:
    """A row of the table.

    Attributes:
        found_by: programs on PATH and files, with ``*`` for a directory named after the architecture; all are needed.
    """

    name: str
    package: str
    found_by: tuple[str, ...]
    what_for: str

    @property
    def here(self) -> bool:
        """Whether all that it consists of is on this machine."""
        return all(map(_places, self.found_by))


@cache
def table(path: Path = TABLE) -> dict[str, Program]:
    """The rows by name."""
    rows = (line.split(maxsplit=3) for line in path.read_text().splitlines() if line.strip() and line[0] != "#")
    return {name: Program(name, package, tuple(found.split(",")), why) for name, package, found, why in rows}


def missing(*names: str) -> str | None:
    """Why a test cannot run, with the packages that would help, or None.

    Raises:
        KeyError: a name is not in the table.
    """
    absent = [program for program in map(table().__getitem__, names) if not program.here]
    return f"not on this machine: {', '.join(f'{p.name} (package {p.package})' for p in absent)}" if absent else None


def require(*names: str) -> None:
    """For what tests share: as `need`, but the caller says what becomes of it.

    Raises:
        MissingError: one of these is missing.
    """
    if why := missing(*names):
        raise MissingError(why, hint="run scripts/test-programs.sh long")


def need(*names: str) -> str:
    """Skip the test where one of these is missing. Returns the path of the first."""
    if why := missing(*names):
        pytest.skip(why)
    return _places(table()[names[0]].found_by[0])[0]


def _places(found_by: str) -> list[str]:
    """The program of this name on PATH, or the files of this pattern."""
    if "/" in found_by:
        return sorted(map(str, Path("/").glob(found_by.lstrip("/"))))
    found = shutil.which(found_by, path=PATH)
    return [found] if found else []
