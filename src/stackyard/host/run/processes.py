"""Which processes of this machine name a path: as program, mapped or open file, working directory or in a variable."""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from stackyard.core.late import dataclass
from stackyard.core.quoting import plain
from stackyard.host.run.identity import account_name

_LINKS = ("exe", "cwd", "root")
_TEXTS = ("maps", "environ")
_MOST_BYTES = 1 << 26


@dataclass(frozen=True)
class ProcessMatch:
    """A process, and what of its names matches. Its account chose its `name`."""

    pid: int
    user: str
    name: str
    paths: frozenset[bytes]

    def __str__(self) -> str:
        return f"process {self.pid} of {self.user} ({plain(self.name)})"


def of_yard(roots: Iterable[bytes]) -> re.Pattern[bytes]:
    """What names a revision of a yard, or something in its trash, given the paths by which the yard is named."""
    places = b"|".join(map(re.escape, roots))
    return re.compile(b"(?:" + places + rb")/(?:stacks/[^/\0\n:]+/[^/\0\n:]+|trash/[^/\0\n:]+)(?=[/\0\n:\s]|$)")


def naming(pattern: re.Pattern[bytes]) -> tuple[list[ProcessMatch], int]:
    """The processes that name something with this pattern, and how many could not be looked into.

    A shell's own variables are not seen (the kernel shows those with which it was started), but those of what it
    starts are: this process among them.
    """
    processes, hidden = [], 0
    for pid in sorted(int(name) for name in os.listdir("/proc") if name.isdecimal()):  # noqa: PTH208
        try:
            paths = frozenset(match for text in _names(pid) for match in pattern.findall(text))
        except PermissionError:
            hidden += 1
            continue
        except (FileNotFoundError, ProcessLookupError):
            continue
        if paths:
            processes.append(_found(pid, paths))
    return processes, hidden


def _names(pid: int) -> Iterator[bytes]:
    """What the kernel shows of a process. One without memory of its own, as those of the kernel, names nothing."""
    place = Path("/proc", str(pid))
    for name in _TEXTS:
        with (place / name).open("rb") as stream:
            yield stream.read(_MOST_BYTES)
    for link in _LINKS:
        yield _target(place / link)
    if pid != os.getpid():
        yield from map(_target, (place / "fd").iterdir())


def _target(link: Path) -> bytes:
    """Where a link of the kernel leads; nothing for what is closed, or has a longer path than can be opened: every
    account can make such a directory, and nothing of a yard is in one.
    """
    try:
        return os.fsencode(link.readlink())
    except OSError as error:
        if error.errno in (errno.ENOENT, errno.ENAMETOOLONG):
            return b""
        raise


def _found(pid: int, paths: frozenset[bytes]) -> ProcessMatch:
    place = Path("/proc", str(pid))
    try:
        name = (place / "comm").read_text(errors="surrogateescape").strip()
        return ProcessMatch(pid, account_name(place.stat().st_uid), name, paths)
    except OSError:  # it has ended meanwhile
        return ProcessMatch(pid, "?", "?", paths)
