"""What one rank did, from its trace by PyTorch's profiler: steps, times of each kind, operations, collectives, memory.

The names are those that PyTorch and its profiler give (torch/profiler/profiler.py: ``ProfilerStep#N``;
torch/utils/data/dataloader.py: ``enumerate(DataLoader)#...__next__``; ProcessGroupGloo.cpp: ``gloo:all_reduce``;
libkineto's ActivityType.cpp: the categories). PyTorch before 1.12 has other categories.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from stackyard.study.profiles.intervals import Union, Window
from stackyard.study.profiles.stream import Reading, read_events

KERNELS, COLLECTIVES, TRANSFERS, LOADER, OPERATORS, COPIES, LAUNCHES, WAITS = (1 << bit for bit in range(8))
"""Bits of `RankTrace.times`. On a GPU: kernels, collectives (those of gloo and MPI too), copies. On the CPU: loader,
operators, of those the ones that copy, and those that start a collective, and waits for the GPU."""
_CATEGORIES = {"operator": "cpu_op", "memcpy": "gpu_memcpy", "memset": "gpu_memset", "runtime": "cuda_runtime"}
_STEP = re.compile(r"ProfilerStep#(\d{1,9})")
_LOADER = re.compile(r"enumerate\(DataLoader\)#|.*\.?(?:train|val)_dataloader_next$")
_COLLECTIVE = re.compile(r"(?:gloo|mpi|ucc):(\w+)")
LAUNCH = re.compile(r"c10d::|_c10d_functional::|record_param_comms|gloo:|mpi:|ucc:|nccl:")
"""Operators that start a collective, and may wait for it."""
_COLLECTIVE_KERNEL = re.compile(r"(?:nccl|rccl|msccl|oneccl)", re.IGNORECASE)
_KIND_OF_KERNEL = re.compile(r"(AllReduce|AllGather|ReduceScatter|Broadcast|Reduce|SendRecv|AlltoAll)", re.IGNORECASE)
COPY = re.compile(r"aten::(?:copy_|_copy_from|_foreach_copy_|_pin_memory|pin_memory)$")
_WAIT = re.compile(r"(?:cuda|hip)\w*Synchronize$")
_BYTES = {"Float": 4, "Half": 2, "BFloat16": 2, "Double": 8, "Long": 8, "Int": 4, "Byte": 1, "Char": 1}
MOST_NAMES, MOST_STEPS, MOST_COLLECTIVES, MOST_THREADS, MOST_DEPTH = 20_000, 100_000, 100_000, 10_000, 1_000
LONGEST = 200
"""Characters of a name."""
OTHERS = "others"


class Sums:
    """Calls by name, and their time in microseconds; of too many names those of all others together."""

    def __init__(self) -> None:
        self.calls: Counter[str] = Counter()
        self.us: Counter[str] = Counter()

    def add(self, name: str, us: float) -> None:
        """One more call."""
        name = name if name in self.calls or len(self.calls) < MOST_NAMES else OTHERS
        self.calls[name] += 1
        self.us[name] += us  # type: ignore[assignment]


@dataclass(frozen=True)
class Call:
    """One collective, in microseconds. `bytes` is 0 where the trace does not have them."""

    name: str
    start: float
    us: float
    bytes: float = 0


@dataclass
class RankTrace:
    """What is kept of a trace.

    Attributes:
        steps: number, start and end of each profiled step.
        windows: the times of its steps; of a trace without steps the whole.
        times: when something of each kind was going on; keys are the bits above.
        until: to where all kinds of events are kept: of too many only the first ones are.
        has_gpu: whether work of a GPU is in the trace.
        operations: time of each CPU operator without those that it calls; the loader's own are left out.
        kernels, transfers: time of each kernel, and of each kind of copy between memories.
        copied_by: of the operators that copy: the outermost operator that asked for it.
        loaders: of each kind of loader the time in it.
        memory: the most that was allocated on each device, where the trace has it.
        calls_gpu: whether the program called the runtime of a GPU.
        last: the end of the last operator.
        strays: events that do not follow those before them; times of operators are then approximate.
    """

    path: Path
    rank: int = 0
    world: int = 0
    host: str = ""
    reading: Reading = field(default_factory=Reading)
    events: int = 0
    steps: list[tuple[int, float, float]] = field(default_factory=list)
    windows: list[Window] = field(default_factory=list)
    until: float = math.inf
    has_gpu: bool = False
    times: dict[int, Union] = field(default_factory=lambda: {1 << bit: Union() for bit in range(8)})
    operations: Sums = field(default_factory=Sums)
    kernels: Sums = field(default_factory=Sums)
    transfers: Sums = field(default_factory=Sums)
    copied_by: Sums = field(default_factory=Sums)
    loaders: Sums = field(default_factory=Sums)
    collectives: list[Call] = field(default_factory=list)
    memory: dict[str, float] = field(default_factory=dict)
    calls_gpu: bool = False
    last: float = -math.inf
    strays: int = 0

    @property
    def is_partial(self) -> bool:
        """Whether a kind of events is missing: kernels were not recorded, or what is cut off had all of a kind.

        A trace has one thread after the other, and those of the GPU last.
        """
        is_without = bool(self.reading.cut) and self.world > 1 and not self.collectives
        return is_without or (self.calls_gpu and not self.has_gpu)


class _Thread:
    """The operators going on in a thread: of each its end, name, time in those that it calls, and outermost one."""

    def __init__(self) -> None:
        self.stack: list[tuple[float, str, list[float], str]] = []
        self.loading_until = self.begun = -math.inf


def read_trace(path: Path, rank: int) -> RankTrace:
    """Read a trace as far as it can be read.

    Args:
        rank: of a trace that does not say it.

    Raises:
        OSError: not a regular file, or it cannot be opened.
    """
    trace = RankTrace(path, rank)
    reader = _Reader(trace)
    for event in read_events(path, trace.reading):
        trace.events += 1
        reader.add(event)
    reader.finish()
    return trace


class _Reader:
    """Sorts the events of a trace into it."""

    def __init__(self, trace: RankTrace) -> None:
        self._trace = trace
        self._threads: dict[object, _Thread] = {}
        self._add: Mapping[str, Callable[[str, float, float, dict[str, Any]], None]] = {
            "cpu_op": self._operator, "user_annotation": self._annotation, "kernel": self._kernel,
            "gpu_memset": self._kernel, "gpu_memcpy": self._transfer, "cuda_runtime": self._runtime,
            "cuda_driver": self._runtime, "xpu_runtime": self._runtime, "mtia_runtime": self._runtime,
        }  # fmt: skip

    def add(self, event: dict[str, Any]) -> None:
        """One event; what is not understood is left out."""
        kind, name = event.get("ph"), event.get("name")
        if kind == "i" and name == "[memory]":
            self._memory(event.get("args"))
        category = str(event.get("cat")).lower()
        add = self._add.get(_CATEGORIES.get(category, category))
        if kind != "X" or add is None or not isinstance(name, str):
            return
        start, us = _number(event.get("ts")), _number(event.get("dur"))
        if math.isfinite(start) and us >= 0:
            add(name[:LONGEST], start, us, event)

    def finish(self) -> None:
        """Close what is still going on, and put the steps in order."""
        for thread in self._threads.values():
            self._leave(thread, math.inf)
        trace, head = self._trace, self._trace.reading.head
        about = (head.get(name) for name in ("stackyard", "distributedInfo"))
        ours, group = (one if isinstance(one, dict) else {} for one in about)
        trace.rank = _count(ours.get("rank"), _count(group.get("rank"), trace.rank))
        trace.world = _count(group.get("world_size"), 0)
        trace.host = str(ours.get("host") or head.get("host_name") or "")[:LONGEST]
        spans = [union.span for union in trace.times.values() if union]
        trace.until = min(union.until for union in trace.times.values())
        trace.has_gpu = bool(trace.times[KERNELS]) or bool(trace.times[TRANSFERS])
        steps: list[tuple[int, float, float]] = []
        numbers: set[int] = set()
        for step in sorted(trace.steps, key=lambda one: one[1]):
            is_whole = not trace.reading.cut or step[2] <= trace.last + 0.05 * (step[2] - step[1])
            is_whole = is_whole and step[2] <= trace.until
            if is_whole and step[0] not in numbers and (not steps or step[1] >= steps[-1][2]):
                steps.append(step)
                numbers.add(step[0])
        trace.steps, trace.windows = steps, [(start, end) for _, start, end in steps]
        if spans and not steps:
            trace.windows = [(min(start for start, _ in spans), min(trace.until, max(end for _, end in spans)))]

    def _thread(self, event: dict[str, Any]) -> _Thread:
        key = f"{event.get('pid')!s:.50} {event.get('tid')!s:.50}"
        is_known = key in self._threads or len(self._threads) < MOST_THREADS
        return self._threads.setdefault(key if is_known else "", _Thread())

    def _annotation(self, name: str, start: float, us: float, event: dict[str, Any]) -> None:
        trace = self._trace
        if match := _STEP.fullmatch(name):
            if len(trace.steps) < MOST_STEPS:
                trace.steps.append((int(match[1]), start, start + us))
        elif _LOADER.match(name):
            trace.times[LOADER].add(start, start + us)
            trace.loaders.add(name, us)
            thread = self._thread(event)
            thread.loading_until = max(thread.loading_until, start + us)
            trace.last = max(trace.last, start + us)
        elif match := _COLLECTIVE.match(name):
            self._collective(match[1], start, us, 0)

    def _collective(self, name: str, start: float, us: float, size: float) -> None:
        self._trace.times[COLLECTIVES].add(start, start + us)
        if len(self._trace.collectives) < MOST_COLLECTIVES:
            self._trace.collectives.append(Call(name, start, us, size))

    def _kernel(self, name: str, start: float, us: float, event: dict[str, Any]) -> None:
        self._trace.kernels.add(name, us)
        if _COLLECTIVE_KERNEL.match(name):
            args = event.get("args")
            args = args if isinstance(args, dict) else {}
            kind = _KIND_OF_KERNEL.search(name)
            told = str(args.get("Collective name") or (kind[1] if kind else name))
            size = _number(args.get("In msg nelems")) * _BYTES.get(str(args.get("dtype")), 0)
            self._collective(told[:LONGEST], start, us, size if size > 0 else 0)
        else:
            self._trace.times[KERNELS].add(start, start + us)

    def _transfer(self, name: str, start: float, us: float, _event: dict[str, Any]) -> None:
        self._trace.transfers.add(name, us)
        self._trace.times[TRANSFERS].add(start, start + us)

    def _runtime(self, name: str, start: float, us: float, _event: dict[str, Any]) -> None:
        self._trace.calls_gpu = True
        if _WAIT.match(name):
            self._trace.times[WAITS].add(start, start + us)

    def _operator(self, name: str, start: float, us: float, event: dict[str, Any]) -> None:
        """An operator: those that contain it come before it in its thread."""
        if _STEP.fullmatch(name) or _LOADER.match(name):  # PyTorch before 1.12
            self._annotation(name, start, us, event)
            return
        trace, thread, end = self._trace, self._thread(event), start + us
        trace.last = max(trace.last, end)
        if end <= thread.loading_until:
            return
        self._leave(thread, start)
        outer = thread.stack[-1] if thread.stack else None
        is_stray = start < thread.begun or bool(outer and end > outer[0] + 1)  # times are rounded
        thread.begun = max(thread.begun, start)
        if is_stray:
            trace.strays, outer = trace.strays + 1, None
        if outer:
            outer[2][0] += us
        else:
            trace.times[OPERATORS].add(start, end)
        origin = (outer[3] if outer else "") or (name if name.startswith("aten::") else "")
        if COPY.match(name):
            trace.times[COPIES].add(start, end)
            trace.copied_by.add(origin, us)
        elif LAUNCH.match(name):
            trace.times[LAUNCHES].add(start, end)
        if is_stray or len(thread.stack) >= MOST_DEPTH:
            trace.operations.add(name, us)
        else:
            thread.stack.append((end, name, [0.0, us], origin))

    def _leave(self, thread: _Thread, now: float) -> None:
        while thread.stack and thread.stack[-1][0] <= now:
            _, name, (inner, us), _ = thread.stack.pop()
            self._trace.operations.add(name, max(us - inner, 0.0))

    def _memory(self, args: object) -> None:
        if isinstance(args, dict) and (size := _number(args.get("Total Allocated"))) > 0:
            kind, number = _count(args.get("Device Type"), 0), _count(args.get("Device Id"), 0)
            device = f"GPU {number}" if kind else "CPU"
            if device in self._trace.memory or len(self._trace.memory) < 64:
                self._trace.memory[device] = max(size, self._trace.memory.get(device, 0.0))


def _number(value: object) -> float:
    """A number of a trace, which may be written as text; NaN for anything else."""
    try:
        number = float(value) if isinstance(value, int | float | str) else math.nan
    except (ValueError, OverflowError):
        return math.nan
    return number if abs(number) < 1e18 else math.nan


def _count(value: object, default: int) -> int:
    number = _number(value)
    return int(number) if 0 <= number < 1e8 else default
