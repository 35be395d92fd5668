"""Traces made by hand, in the form of PyTorch's profiler: steps of 10 ms on a GPU or a CPU."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

STEP_US = 10_000.0
Event = dict[str, Any]
_GPU_THREAD, _MAIN, _GLOO = (0, 7), (100, 100), (100, 101)


def event(category: str, name: str, start: float, us: float, thread: tuple[int, int] = _MAIN, **args: Any) -> Event:
    """One complete event."""
    return {"ph": "X", "cat": category, "name": name, "pid": thread[0], "tid": thread[1], "ts": start, "dur": us,
            "args": args}  # fmt: skip


def steps(count: int) -> list[Event]:
    """The marks of steps 3, 4 ..."""
    return [event("user_annotation", f"ProfilerStep#{n + 3}", n * STEP_US, STEP_US) for n in range(count)]


def each_step(count: int, *parts: tuple[str, str, float, float]) -> list[Event]:
    """In each step events of a category and name, from a time to a time in milliseconds."""
    threads = {"kernel": _GPU_THREAD, "gpu_memcpy": _GPU_THREAD}
    found = []
    for number in range(count):
        for category, name, start, end in parts:
            thread = _GLOO if name.startswith("gloo:") else threads.get(category, _MAIN)
            begin = number * STEP_US + 1000 * start
            found.append(event(category, name, begin, 1000 * (end - start), thread))
    return found


def write(path: Path, events: Iterable[Event], rank: int = 0, world: int = 1, *, host: str = "n1") -> Path:
    """Write a trace as PyTorch does: the events last, packed if the name says so."""
    head = {"schemaVersion": 1, "distributedInfo": {"backend": "gloo", "rank": rank, "world_size": world},
            "host_name": host, "displayTimeUnit": "ms"}  # fmt: skip
    text = json.dumps({**head, "traceEvents": list(events), "traceName": "x"}, indent=1)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(gzip.compress(text.encode()) if path.suffix == ".gz" else text.encode())
    return path


def file_of(directory: Path, rank: int) -> Path:
    """The name of a rank's trace."""
    return directory / f"rank-{rank:05d}.pt.trace.json.gz"
