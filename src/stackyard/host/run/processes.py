"""Finds processes of this machine that use a path: as program, mapped or open file, working directory or variable."""

from __future__ import annotations

import contextlib
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
_KEEPER = b"stackyard-image\n"
"""The name that it gives itself: images/squashfs/launcher/layers.c."""


@dataclass(frozen=True)
class ProcessMatch:
    """A process, and the names of it that match. Its account chose its `name`."""

    pid: int
    user: str
    name: str
    paths: frozenset[bytes]

    def __str__(self) -> str:
        return f"process {self.pid} of {self.user} ({plain(self.name)})"


def of_yard(roots: Iterable[bytes]) -> re.Pattern[bytes]:
    """The pattern for paths of a yard's revisions or trash items, given the paths of the yard."""
    places = b"|".join(map(re.escape, roots))
    return re.compile(b"(?:" + places + rb")/(?:stacks/[^/\0\n:]+/[^/\0\n:]+|trash/[^/\0\n:]+)(?=[/\0\n:\s]|$)")


def naming(pattern: re.Pattern[bytes]) -> tuple[list[ProcessMatch], int]:
    """The processes that name something matching this pattern, and the number of inaccessible ones.

    The file system server of an image has that open for some minutes after the last command in it. In its place the
    commands are found that share its mount namespace; a server alone is idle, and keeps nothing.

    Variables set in a running shell are not visible (the kernel shows those at its start), but those of its children
    are, including this process.
    """
    processes, hidden, pids = [], 0, sorted(int(name) for name in os.listdir("/proc") if name.isdecimal())  # noqa: PTH208
    for pid in pids:
        try:
            paths = frozenset(match for text in _names(pid) for match in pattern.findall(text))
            if paths:
                processes += [_found(identity, paths) for identity in _users(pid, pids)]
        except PermissionError:
            hidden += 1
        except (FileNotFoundError, ProcessLookupError):
            continue
    return list({process.pid: process for process in processes}.values()), hidden


def _users(pid: int, pids: Iterable[int]) -> list[int]:
    """The process itself; of a server of an image instead the commands that run where it is mounted."""
    if not _is_server(pid):
        return [pid]
    keeper, commands = _keeper(pid), []
    space = _target(Path("/proc", str(keeper or pid), "ns/mnt"))
    for other in pids:
        try:
            if _target(Path("/proc", str(other), "ns/mnt")) == space and not _is_server(other):
                commands.append(other)
        except OSError:  # another account's: this server is not in its namespaces
            continue
    return [pid] if os.getpid() in commands else commands  # mounted for the whole machine: anything may use it


def _is_server(pid: int) -> bool:
    """Whether it serves the image of a revision, as the launcher of an image starts it: ``... IMAGE PREFIX``."""
    if _keeper(pid):
        return True
    words = Path("/proc", str(pid), "cmdline").read_bytes().rstrip(b"\0").split(b"\0")
    program = os.path.basename(_target(Path("/proc", str(pid), "exe")))  # noqa: PTH119 - bytes
    return program == b"squashfuse_ll" and len(words) > 2 and words[-2].endswith(b".sqsh")  # a staged copy, too


def _keeper(pid: int) -> int:
    """The process that keeps the container of an image of several partitions, if this is that or one of its servers."""
    parent = int(Path("/proc", str(pid), "stat").read_bytes().rpartition(b")")[2].split()[1])
    for process in (pid, parent):
        place = Path("/proc", str(process))
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            if (place / "comm").read_bytes() == _KEEPER and os.path.basename(_target(place / "exe")) == b"launch":  # noqa: PTH119
                return process
    return 0


def _names(pid: int) -> Iterator[bytes]:
    """The names that the kernel shows for a process. Kernel threads, without memory of their own, have none."""
    place = Path("/proc", str(pid))
    for name in _TEXTS:
        with (place / name).open("rb") as stream:
            yield stream.read(_MOST_BYTES)
    for link in _LINKS:
        yield _target(place / link)
    if pid != os.getpid():
        yield from map(_target, (place / "fd").iterdir())


def _target(link: Path) -> bytes:
    """The target of a kernel link; empty for a closed file or a too long path, which cannot be in a yard."""
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
