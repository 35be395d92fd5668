"""The memory, GPUs and MPI that the ranks of a node use, sampled seldom, so that it does not slow down the ranks.

The kernel keeps the largest resident size of a process (VmHWM of proc(5)) until it ends, so sampling misses only the
growth of a process after the last sample. Part of the agent: any Python from 3.6 on, standard library alone, few
imports (see `stackyard.launch.node.agent`).
"""
# ruff: noqa: PTH110, PTH118, PTH120, PTH121

import _thread
import os
import time

from stackyard.launch.node.machine import slurp
from stackyard.launch.node.monitoring.gpuprobe import GpuProbe

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from typing import Any

    from stackyard.launch.node.ranks import Rank

VENDORS = ("nvidia", "amd")
"""Those whose GPUs have energy counters that are read."""
LOOK_SHARE, FREE_S = 2000, 0.05
"""Looks at the memory take at most one part in so many of a CPU's time, besides this many seconds, so that the first
ones are not far apart and a short run is seen too. Time in which the agent waits for a CPU costs the ranks nothing."""
MOST_MAPS = 4 << 20
NO_LIMIT = 1 << 60
"""A limit from which on there is none: control groups of version 1 write the largest multiple of a page."""


class Usage:
    """The resources that the ranks of this node have used so far."""

    def __init__(self, gpu_vendor: "str", mpi: "MpiLibraries | None" = None) -> "None":
        self._memory = {}  # type: dict[int, dict[str, float]]
        self._begun = self._spent = 0.0
        self._group = Group()
        self._gpus = GpuProbe(gpu_vendor)
        self._mpi = mpi or MpiLibraries("", ())
        self._vendor = gpu_vendor
        self._energy = None  # type: Any

    def begin_energy(self, visible: "str") -> "None":
        """Read the energy counters once, before a rank runs that sees GPUs (``-``: none)."""
        if visible != "-" and self._vendor in VENDORS and self._energy is None:
            from stackyard.launch.node.monitoring.energy import GpuEnergy

            self._energy = GpuEnergy(self._vendor)

    def end_energy(self, went: "float", send: "Callable[[str, Any], None]") -> "None":
        """Send the energy that the GPUs have used, once no rank runs; nothing without GPUs."""
        if self._energy is not None:
            send("energy", self._energy.used(went))

    def look(self, ranks: "list[Rank]", now: "float", at_once: "bool" = False) -> "None":
        """Take a sample if it is due; with `at_once` before the ranks are terminated."""
        self._gpus.step(now)
        self._begun = self._begun or now
        if self._spent > FREE_S + (now - self._begun) / LOOK_SHARE and not at_once:
            return
        start = time.clock_gettime(time.CLOCK_THREAD_CPUTIME_ID)
        for rank in ranks:
            self._measure(rank, now)
        self._spent += time.clock_gettime(time.CLOCK_THREAD_CPUTIME_ID) - start

    def _measure(self, rank: "Rank", now: "float") -> "None":
        if not rank.below:
            rank.refresh()
        sizes = [size for size in map(largest_resident, rank.below) if size]
        if not sizes:
            return
        known = self._memory.setdefault(rank.task, {"peak": 0, "largest": 0, "processes": 0})
        if sum(sizes) > known["peak"]:
            known.update(peak=sum(sizes), processes=len(sizes))
        known.update(largest=max(known["largest"], *sizes), at=now)
        self._mpi.look(rank)

    def of(self, task: "int", failed: "bool") -> "dict[str, Any]":
        """For an ended rank: bytes, processes, GPUs; for a failed one also the limit and OOM kills."""
        values = dict(self._memory.get(task, ()))  # type: dict[str, Any]
        if "at" in values:
            values["ago"] = round(time.monotonic() - values.pop("at"), 1)
        if failed:
            values.update(limit=self._group.limit, oom_kills=self._group.kills())
        if self._gpus.peaks:
            values["gpus"] = self._gpus.peaks
        if task in self._mpi.found:
            values["mpi"] = self._mpi.found[task]
        return values


def largest_resident(pid: "int") -> "int":
    """VmHWM in bytes; 0 if the process has ended."""
    text = slurp(f"/proc/{pid}/status", 4096)
    at = text.find("VmHWM:")
    return int(text[at + 6 :].split(None, 1)[0]) << 10 if at >= 0 else 0


class MpiLibraries:
    """The MPI library that each rank has mapped, by its path inside, and whether it is the host's file.

    A rank in an image that uses the image's own MPI ends with status 0, and may be alone in its world. The search stops
    once a library is found. Its file may be on a stalled file system, so a thread compares it.
    """

    def __init__(self, library: "str", names: "Sequence[str]") -> "None":
        self._library, self._names = library, tuple(names)
        self.found = {}  # type: dict[int, tuple[str, bool]]
        self._seen = set()  # type: set[int]

    def look(self, rank: "Rank") -> "None":
        """Read the maps of a rank's processes, until one of them has an MPI."""
        if not self._library or rank.task in self._seen:
            return
        for pid in rank.below:
            for path in libraries(pid):
                if path.rpartition("/")[2].startswith(self._names):
                    self._seen.add(rank.task)
                    _thread.start_new_thread(self._compare, (rank.task, pid, path))
                    return

    def _compare(self, task: "int", pid: "int", path: "str") -> "None":
        """Compare by stat(2) of both files: on btrfs and overlayfs the device in proc(5)'s maps differs."""
        try:
            self.found[task] = path, os.path.samefile(f"/proc/{pid}/root{path}", self._library)
        except OSError:  # the rank has ended, or the node does not have the host's
            if not os.path.exists(self._library):
                self.found[task] = path, False


def libraries(pid: "int") -> "Iterator[str]":
    """The path of every shared library that a process has mapped, as seen by the process (proc(5))."""
    for line in slurp(f"/proc/{pid}/maps", MOST_MAPS).splitlines():
        words = line.split(None, 5)
        if len(words) == 6 and ".so" in words[5]:
            yield words[5]


class Group:
    """The memory limit of the agent's control group (its task's or its job's), and the OOM kills below it.

    Without a limit the kills of the whole node count (``oom_kill`` of /proc/vmstat). Sources: cgroup-v2.rst and
    cgroup-v1/memory.rst of the kernel's documentation.
    """

    def __init__(self, own: "str" = "/proc/self/cgroup", root: "str" = "/sys/fs/cgroup") -> "None":
        self.limit, self._counter = 0, "/proc/vmstat"
        for line in slurp(own).splitlines():
            _, names, path = line.split(":", 2)
            if not names:
                self._find(root, path, "memory.max", "memory.events")
            elif "memory" in names.split(","):
                self._find(os.path.join(root, "memory"), path, "memory.limit_in_bytes", "memory.oom_control")
        self._before = self._count()

    def _find(self, root: "str", path: "str", limit: "str", counter: "str") -> "None":
        """The lowest limit of the group and its parents."""
        while True:
            directory = os.path.join(root, path.strip("/"))
            text = slurp(os.path.join(directory, limit)).strip()
            if text.isdigit() and int(text) < min(self.limit or NO_LIMIT, NO_LIMIT):
                self.limit, self._counter = int(text), os.path.join(directory, counter)
            if not path.strip("/"):
                return
            path = os.path.dirname(path)

    def _count(self) -> "int":
        rows = (line.split() for line in slurp(self._counter).splitlines())
        return sum(int(row[1]) for row in rows if row[:1] == ["oom_kill"])

    def kills(self) -> "int":
        """The number of processes that the kernel's OOM killer has killed since the agent started."""
        return self._count() - self._before
