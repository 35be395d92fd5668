"""Usage counts of revisions: a line per use, in a file for each user, node and month.

    <yard>/usage/<host>.<uid>.<month>.log      2026-11-23 run tool/1.0-py311-1
    <yard>/usage/since                         2026-11-01

The directory is like /tmp, as that of `yard.others.uses`; a yard without it records nothing. `run`, `shell` and
`launch` write here, and a hook of the module system (`expose.hooks`), which appends a line and runs no program. The
owner of a file is the user who is counted. Any account may write there, so files are read with the limits of
`yard.others.drops`.
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
    """The uses of one revision: the number on each day, and by each account."""

    days: Counter[str] = field(default_factory=Counter)
    users: Counter[str] = field(default_factory=Counter)
    kinds: Counter[str] = field(default_factory=Counter)

    @property
    def total(self) -> int:
        """The number of all uses."""
        return sum(self.days.values())

    @property
    def last(self) -> str:
        """The last day of use; empty: never."""
        return max(self.days, default="")


def count(directory: str | Path, kind: str) -> None:
    """Count one use of a revision; skipped if its yard keeps no counts, or this account may not write there."""
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
        unread: receives the months with unreadable counts, each with a reason.

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
    """The count files in the directory by name, with the month."""
    return [(name, match[1]) for name in sorted(drop.files) if (match := _NAME.fullmatch(name))]


@dataclass
class OldCounts:
    """The count files of past months, oldest first, with the month; and a sentence for each other entry."""

    files: list[tuple[Path, str, int]] = field(default_factory=list)
    left: list[str] = field(default_factory=list)


def before(yard: Yard, day: date) -> OldCounts:
    """The count files of months that had ended on a day.

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
    """Remove count files; returns the removed ones, and the reason for the others.

    They are not moved to the trash: otherwise a directory that another account put in place of a file would be moved
    too.
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
    """Add the lines of a file; returns its size."""
    data, status = drop.read(name, MOST_BYTES)
    user = account_name(status.st_uid)
    for day, kind, module in _lines(data, month):
        usage = usages.setdefault(module, Usage())
        usage.days[day] += 1
        usage.users[user] += 1
        usage.kinds[kind] += 1
    return len(data)


def since(yard: Yard) -> str:
    """The day on which the owner of the yard enabled counting; empty: unknown.

    It is not derived from the counts, into which any account may write lines of past days.
    """
    with suppress(OSError, ValueError), at.parent(yard.root, yard.usage_since) as (directory, name):
        data, status = at.read_bounded(directory, name, 100)
        if status.st_uid == os.fstat(directory).st_uid:
            return date.fromisoformat(data.decode().strip()).isoformat()
    return ""


def _lines(data: bytes, month: str) -> Iterator[tuple[str, str, str]]:
    """Day, kind and module of each valid line of a month; others, which any account may have written, are left out."""
    for line in data.decode("utf-8", "replace").splitlines():
        match = _LINE.fullmatch(line)
        if match and _is_day(match[1], month) and all(grammar.LABEL.accepts(part) for part in match[3].split("/")):
            yield match[1], match[2], match[3]


def _is_day(text: str, month: str) -> bool:
    """Whether a text is a valid date in that month."""
    with suppress(ValueError):
        return date.fromisoformat(text).isoformat()[:7] == month
    return False
