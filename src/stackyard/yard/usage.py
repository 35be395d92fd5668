"""How often revisions are used: a line per use, in a file of each user on each node and month.

    <yard>/usage/<host>.<uid>.<month>.log      2026-11-23 run tool/1.0-py311-1
    <yard>/usage/since                         2026-11-01

The directory is like /tmp, as that of `yard.uses`; a yard without it records nothing. `run`, `shell` and `launch` write
here, and a hook of the module system (`expose.hooks`), which appends a line and runs no program. The owner of a file is
who used the revisions.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import date
from pathlib import Path

from stackyard import grammar
from stackyard.host import clock
from stackyard.host.identity import account_name, hostname
from stackyard.yard import disk
from stackyard.yard.folders import RevisionPaths
from stackyard.yard.layout import Yard

_FILE = re.compile(r".+\.\d+\.(\d{4}-\d\d)\.log")
_LINE = re.compile(r"(\d{4}-\d\d-\d\d) (run|shell|launch|load) (\S{1,300})")
_NAME = re.compile(r"[^/]+\.\d+\.(\d{4}-\d\d)\.log")
MOST_BYTES = 1 << 26


@dataclass
class Usage:
    """The uses of one revision: how many on each day, and by each account."""

    days: Counter[str] = field(default_factory=Counter)
    users: Counter[str] = field(default_factory=Counter)
    kinds: Counter[str] = field(default_factory=Counter)

    @property
    def total(self) -> int:
        """All uses."""
        return sum(self.days.values())

    @property
    def last(self) -> str:
        """The last day on which it was used; empty: never."""
        return max(self.days, default="")


def count(folder: str | Path, kind: str) -> None:
    """Note one use of a revision; nothing where its yard keeps no count, or this account may not write there."""
    paths = RevisionPaths.of(folder)
    today = clock.today().isoformat()
    file = Yard(paths.yard).usage_log(hostname()[:64], os.getuid(), today[:7])
    line = f"{today} {kind} {paths.root.parent.name}/{paths.root.name}\n"
    with suppress(OSError):
        handle = os.open(file, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644)
        try:
            os.write(handle, line.encode())
        finally:
            os.close(handle)


def read(yard: Yard) -> dict[str, Usage]:
    """The uses of every revision by its module.

    Raises:
        OSError: the directory cannot be listed.
    """
    found: dict[str, Usage] = {}
    for file in sorted(disk.entries(yard.usage)):
        with suppress(OSError, ValueError):
            _read_one(file, found)
    return found


def files_before(yard: Yard, day: date) -> list[tuple[Path, str]]:
    """The files of months that had ended on a day, with the month; the oldest first.

    Raises:
        OSError: the directory cannot be listed.
    """
    named = ((file, _NAME.fullmatch(file.name)) for file in disk.entries(yard.usage) if file.is_file())
    months = sorted((found[1], file) for file, found in named if found and not file.is_symlink())
    return [(file, month) for month, file in months if month < day.isoformat()[:7]]


def _read_one(file: Path, found: dict[str, Usage]) -> None:
    name = _FILE.fullmatch(file.name)
    if name is None:
        return
    data, status = disk.of_anybody(file, MOST_BYTES)
    user = account_name(status.st_uid)
    for day, kind, module in _lines(data, name[1]):
        usage = found.setdefault(module, Usage())
        usage.days[day] += 1
        usage.users[user] += 1
        usage.kinds[kind] += 1


def since(yard: Yard) -> str:
    """The day on which the owner of the yard switched counting on; empty: not known.

    It is not taken from the counts: anybody may write a line of a day long ago.
    """
    with suppress(OSError, ValueError):
        data, status = disk.of_anybody(yard.usage_since, 100)
        if status.st_uid == yard.usage.stat().st_uid:
            return date.fromisoformat(data.decode().strip()).isoformat()
    return ""


def _lines(data: bytes, month: str) -> Iterator[tuple[str, str, str]]:
    """Day, kind and module of each line of a month; others, which anybody may have written, are left out."""
    for line in data.decode("utf-8", "replace").splitlines():
        match = _LINE.fullmatch(line)
        if match and _is_day(match[1], month) and all(grammar.LABEL.accepts(part) for part in match[3].split("/")):
            yield match[1], match[2], match[3]


def _is_day(text: str, month: str) -> bool:
    """Whether a text is a day of the calendar in that month."""
    with suppress(ValueError):
        return date.fromisoformat(text).isoformat()[:7] == month
    return False
