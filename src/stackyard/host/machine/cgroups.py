"""The limits of this process's control group, and of those above it. Standard library only.

Sources: cgroup-v2.rst, and cgroup-v1/memory.rst, pids.rst and the scheduler's sched-bwc.rst of the kernel's
documentation.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

_NO_LIMIT = 1 << 60
"""From here on there is none: version 1 writes the largest multiple of a page."""


class Limits(NamedTuple):
    """The lowest limits: bytes, processors, and processes with threads; 0: none. `running`: processes of its group."""

    memory: int = 0
    cores: float = 0
    processes: int = 0
    running: int = 0


def limits(root: Path = Path("/")) -> Limits:
    """The limits in force, of version 1 or 2; the files of the control groups are below `root`."""
    memory: list[int] = []
    cores: list[float] = []
    processes: list[int] = []
    running = 0
    for group in _groups(root):
        memory += _numbers(group, "memory.max", "memory.limit_in_bytes")
        words = _words(group, "cpu.max") or [*_words(group, "cpu.cfs_quota_us"), *_words(group, "cpu.cfs_period_us")]
        if len(words) == 2 and words[0].isdecimal() and int(words[1]):
            cores.append(int(words[0]) / int(words[1]))
        processes += _numbers(group, "pids.max")
        running = running or next(iter(_numbers(group, "pids.current")), 0)
    return Limits(min(memory, default=0), min(cores, default=0), min(processes, default=0), running)


def _groups(root: Path) -> Iterator[Path]:
    """The directories of the control groups of this process and of those above, the innermost first."""
    try:
        lines = (root / "proc/self/cgroup").read_text(encoding="utf-8").splitlines()
    except OSError:
        return
    for line in lines:
        _, controllers, path = line.split(":", 2)
        top = root / "sys/fs/cgroup" / controllers
        inner = top / path.strip("/")
        yield from (inner, *(above for above in inner.parents if above.is_relative_to(top)))


def _numbers(group: Path, *names: str) -> list[int]:
    words = (word for name in names for word in _words(group, name))
    return [int(word) for word in words if word.isdecimal() and int(word) < _NO_LIMIT]


def _words(group: Path, name: str) -> list[str]:
    try:
        return (group / name).read_text(encoding="utf-8").split()
    except (OSError, UnicodeDecodeError):
        return []
