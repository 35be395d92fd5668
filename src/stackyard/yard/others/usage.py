"""How often revisions are used: a line per use, in a file of each user on each node and month.

    <yard>/usage/<host>.<uid>.<month>.log      2026-11-23 run tool/1.0-py311-1
    <yard>/usage/since                         2026-11-01

The directory is like /tmp, as that of `yard.others.uses`; a yard without it records nothing. `run`, `shell` and
`launch` write here, and a hook of the module system (`expose.hooks`), which appends a line and runs no program. The
owner of a file is who used the revisions. Any account may write there, so it is read as `yard.others.drops` says.
"""

from __future__ import annotations

import errno
import os
import re
import stat
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import date
from pathlib import Path

from stackyard.core import grammar
from stackyard.core.errors import cause
from stackyard.core.quoting import LONG, plain
from stackyard.host.files import at
from stackyard.host.run import clock
from stackyard.host.run.identity import account_name, hostname
from stackyard.yard.layout import Yard
from stackyard.yard.others import drops
from stackyard.yard.revision.directories import RevisionPaths

_NAME = re.compile(r"[^/]+\.\d+\.(\d{4}-\d\d)\.log")
_LINE = re.compile(r"(\d{4}-\d\d-\d\d) (run|shell|launch|load) (\S{1,300})")
MOST_BYTES, _MOST_IN_ALL, _MOST_FILES = 1 << 24, 1 << 28, 100_000
"""Of a file; of all files of an account, and their number: it has one for each node and month."""


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


def count(directory: str | Path, kind: str) -> None:
    """Note one use of a revision; nothing where its yard keeps no count, or this account may not write there."""
    paths = RevisionPaths.of(directory)
    today = clock.today().isoformat()
    file = Yard(paths.yard).usage_log(hostname()[:64], os.getuid(), today[:7])
    line = f"{today} {kind} {paths.root.parent.name}/{paths.root.name}\n"
    with suppress(OSError):
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        with at.closing(os.open(file, flags, 0o644)) as handle:
            status = os.fstat(handle)  # any account may have made it, also by giving another file this name
            if stat.S_ISREG(status.st_mode) and status.st_uid == os.geteuid() and status.st_nlink == 1:
                if not status.st_size:
                    os.fchmod(handle, 0o644)  # whatever the umask is: the owner of the yard counts
                os.write(handle, line.encode())


def read(yard: Yard, unread: dict[str, str] | None = None) -> dict[str, Usage]:
    """The uses of every revision by its module.

    Args:
        unread: gets the months whose counts cannot all be read, each with a reason.

    Raises:
        OSError: the directory cannot be listed.
    """
    usages: dict[str, Usage] = {}
    problems, size = {} if unread is None else unread, Counter[int]()
    with drops.opened(yard.usage, _MOST_FILES) as drop:
        for name, month in _named(drop):
            uid = drop.files[name].st_uid
            try:
                if size[uid] > _MOST_IN_ALL:
                    raise OSError(errno.EFBIG, f"more than {_MOST_IN_ALL:,} bytes of one account")
                size[uid] += _read_one(drop, name, month, usages)
            except FileNotFoundError:
                continue
            except OSError as error:
                problems.setdefault(month, f"cannot read {plain(str(drop.directory / name), LONG)}: {cause(error)}")
        for uid in drop.crowded:
            problems["9999-12"] = f"cannot read {yard.usage}: more than {_MOST_FILES:,} files of {account_name(uid)}"
    return usages


def _named(drop: drops.Drop) -> list[tuple[str, str]]:
    """The counts in the directory by their names, with the month."""
    return [(name, match[1]) for name in sorted(drop.files) if (match := _NAME.fullmatch(name))]


@dataclass
class OldCounts:
    """Counts of months that have ended, with the month, the oldest first; and what else is there, a sentence each."""

    files: list[tuple[Path, str, int]] = field(default_factory=list)
    left: list[str] = field(default_factory=list)


def before(yard: Yard, day: date) -> OldCounts:
    """The counts of months that had ended on a day.

    Raises:
        OSError: the directory cannot be listed.
    """
    with drops.opened(yard.usage, _MOST_FILES) as drop:
        for name in [name for name in drop.files if not _NAME.fullmatch(name) and name != yard.usage_since.name]:
            drop.leave(name)
        months = sorted((month, name) for name, month in _named(drop) if month < day.isoformat()[:7])
        files = [(drop.directory / name, month, drop.files[name].st_blocks * 512) for month, name in months]
        return OldCounts(files, drop.left)


def forget(yard: Yard, files: Iterable[Path]) -> tuple[list[Path], dict[str, tuple[str, ...]]]:
    """Remove counts; those that are gone, and why the others are not.

    They are not put aside: a directory that an account has put in the place of one would be moved too.
    """
    gone: list[Path] = []
    counts: dict[str, tuple[str, ...]] = {}
    with at.directory(yard.root, yard.usage) as directory:
        for file in files:
            try:
                os.unlink(file.name, dir_fd=directory)
                gone.append(file)
            except FileNotFoundError:  # another collection was faster
                continue
            except OSError as error:
                counts[str(file)] = (cause(error),)
    return gone, counts


def _read_one(drop: drops.Drop, name: str, month: str, usages: dict[str, Usage]) -> int:
    """Add the lines of a file; its size."""
    data, status = drop.read(name, MOST_BYTES)
    user = account_name(status.st_uid)
    for day, kind, module in _lines(data, month):
        usage = usages.setdefault(module, Usage())
        usage.days[day] += 1
        usage.users[user] += 1
        usage.kinds[kind] += 1
    return len(data)


def since(yard: Yard) -> str:
    """The day on which the owner of the yard switched counting on; empty: not known.

    It is not taken from the counts: anybody may write a line of a day long ago.
    """
    with suppress(OSError, ValueError), at.parent(yard.root, yard.usage_since) as (directory, name):
        data, status = at.read_bounded(directory, name, 100)
        if status.st_uid == os.fstat(directory).st_uid:
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
