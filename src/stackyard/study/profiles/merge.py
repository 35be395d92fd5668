"""One timeline of all ranks, from the traces of PyTorch, JAX and Horovod: ``timeline.json.gz`` for ui.perfetto.dev.

Each process of each trace is a process of its own, named by rank, on the clock of its node; what breaks the rules of
Google's "Trace Event Format" is left out and counted. One event is held at a time, since the traces of a run may be
larger than the memory.
"""

from __future__ import annotations

import gzip
import json
import math
import os
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import field
from itertools import count
from pathlib import Path
from typing import Any

from stackyard.core.errors import InputError
from stackyard.core.late import dataclass
from stackyard.host.files.at import open_regular
from stackyard.study.profiles.stream import EndError, Reading, blocks, read_events
from stackyard.yard.write.atomic import temporary

SOURCES = {
    "torch": "torch/rank-*.pt.trace.json.gz",
    "jax": "jax/plugins/profile/*/rank-*.trace.json.gz",
    "tensorflow": "tensorflow/plugins/profile/*/rank-*.trace.json.gz",
    "horovod": "horovod/timeline.json",
}
"""The traces of a run that are trace events, below its ``profile/``."""
_CLOCK = re.compile(rb'"(baseTimeNanoseconds|start_time_since_epoch_in_micros)"\s*:\s*(\d{1,19})\D')
_RANK = re.compile(r"rank-(\d{1,9})")
_METADATA = {"process_name": "name", "process_labels": "labels", "process_sort_index": "sort_index",
             "thread_name": "name", "thread_sort_index": "sort_index"}  # fmt: skip
MOST_MB = 1000
"""Megabytes of traces, as they are on disk, that are merged; a viewer takes less."""


@dataclass
class Timeline:
    """What was merged.

    Attributes:
        traces: the files, relative to ``profile/``, each with the number of its events.
        left_out: by the rule that they break, the number of events.
        unread: by file, why it is not, or not wholly, in the timeline.
    """

    traces: dict[str, int] = field(default_factory=dict)
    left_out: Counter[str] = field(default_factory=Counter)
    unread: dict[str, str] = field(default_factory=dict)


def merge(profile: Path, target: Path) -> Timeline:
    """Write the traces below a run's ``profile/`` to one file, packed.

    Raises:
        InputError: there is none.
        OSError: the file cannot be written; there is nothing then.
    """
    files = [(kind, path) for kind, pattern in SOURCES.items() for path in sorted(profile.glob(pattern))]
    if not files:
        hint = "profile some ranks: `stackyard launch --profile torch:ranks=all ...`, or horovod, or jax"
        raise InputError(f"{profile} has no traces to merge", hint=hint)
    timeline, part = Timeline(), temporary(target)
    clocks = _clocks(files)
    try:
        with part.open("wb") as raw:
            with gzip.GzipFile("", "wb", 4, raw) as packed:
                packed.write(b'{"displayTimeUnit":"ms","traceEvents":[')
                separator = b"\n"
                for event in _merged(profile, files, clocks, timeline):
                    packed.write(separator + json.dumps(event, separators=(",", ":"), allow_nan=False).encode())
                    separator = b",\n"
                packed.write(b"\n]}\n")
            raw.flush()
            os.fsync(raw.fileno())
        part.replace(target)
    finally:
        part.unlink(missing_ok=True)
    return timeline


def _clocks(files: list[tuple[str, Path]]) -> dict[Path, float]:
    """When each trace's time 0 is, in microseconds of the earliest; a trace that is cut off has that of its kind."""
    known = {path: _clock(path) for _, path in files}
    of_kind = {kind: known[path] for kind, path in reversed(files) if known[path]}
    clocks = {path: known[path] or of_kind.get(kind, 0) for kind, path in files}
    first = min((clock for clock in clocks.values() if clock), default=0)
    return {path: (clock - first) / 1000 if clock else 0.0 for path, clock in clocks.items()}


def _clock(path: Path) -> int:
    """The time of day of a trace's time 0 in nanoseconds; 0: unknown."""
    text = b""
    try:
        with open_regular(path) as stream:
            for block in blocks(stream, Reading()):
                text = text[-100:] + block
                if match := _CLOCK.search(text):
                    return int(match[2]) * (1 if match[1].startswith(b"base") else 1000)
    except (OSError, EndError):
        pass  # said when its events are read
    return 0


def _merged(
    profile: Path, files: list[tuple[str, Path]], clocks: dict[Path, float], timeline: Timeline
) -> Iterator[dict[str, Any]]:
    numbers, room = count(1), MOST_MB * 10**6
    for kind, path in files:
        name, reading = str(path.relative_to(profile)), Reading()
        try:
            room -= path.stat().st_size
        except OSError as error:
            timeline.unread[name] = error.strerror or str(error)
            continue
        if room < 0:
            timeline.unread[name] = f"the traces before it have {MOST_MB} MB"
            continue
        rank = _RANK.match(path.name)
        track = _Track(f"rank {int(rank[1])}" if rank else "Horovod", kind, clocks[path], numbers, timeline.left_out)
        timeline.traces[name] = 0
        try:
            for event in (made for read in read_events(path, reading) for made in track.converted(read)):
                timeline.traces[name] += event["ph"] != "M"
                yield event
            yield from track.end()
        except OSError as error:
            reading.cut = error.strerror or str(error)
        if reading.cut:
            timeline.unread[name] = reading.cut


class _Track:
    """The events of one trace, with process numbers of their own, its clock, and only what the format allows."""

    def __init__(self, label: str, kind: str, shift_us: float, numbers: Iterator[int], broken: Counter[str]) -> None:
        self.label, self.kind, self.shift_us, self.numbers, self.broken = label, kind, shift_us, numbers, broken
        self.pids: dict[Any, int] = {}
        self.tids: dict[tuple[int, str], int] = {}
        self.open: dict[tuple[int, int], list[float]] = {}
        self.last = 0.0

    def converted(self, event: dict[str, Any]) -> Iterator[dict[str, Any]]:
        """The event as it is in the timeline, after the names of a process and of a thread that are new."""
        if not event:
            return
        made = {key: event[key] for key in ("ph", "name", "cat", "args", "s", "bp", "id") if event.get(key) is not None}
        names: list[dict[str, Any]] = []
        made["pid"] = self._pid(event.get("pid", 0), names)
        made["tid"] = self._tid(made["pid"], event.get("tid", 0), names)
        why = self._metadata(made) if made.get("ph") == "M" else self._timed(made, event)
        yield from names
        if why:
            self.broken[why] += 1
        else:
            yield made

    def end(self) -> Iterator[dict[str, Any]]:
        """Ends of what is open when the trace ends, as in one of a program that was killed."""
        for (pid, tid), begins in self.open.items():
            for _ in begins:
                yield {"ph": "E", "pid": pid, "tid": tid, "ts": self.last}

    def _pid(self, pid: Any, names: list[dict[str, Any]]) -> int:
        key = str(pid)
        if key not in self.pids:
            self.pids[key] = next(self.numbers)
            names.append({"ph": "M", "name": "process_name", "pid": self.pids[key], "tid": 0,
                          "args": {"name": f"{self.label}: {self.kind} {pid}"}})  # fmt: skip
        return self.pids[key]

    def _tid(self, pid: int, tid: Any, names: list[dict[str, Any]]) -> int:
        if isinstance(tid, int):
            return tid
        key = (pid, str(tid))
        if key not in self.tids:
            self.tids[key] = 10**9 + len(self.tids)  # beyond what Linux numbers
            names.append(
                {"ph": "M", "name": "thread_name", "pid": pid, "tid": self.tids[key], "args": {"name": key[1]}}
            )
        return self.tids[key]

    def _metadata(self, made: dict[str, Any]) -> str:
        wanted = _METADATA.get(made.get("name", ""))
        args = made.get("args")
        if wanted is None or not isinstance(args, dict) or wanted not in args:
            return "a known name and its argument in metadata"
        if made["name"] == "process_name":
            made["args"] = {"name": f"{self.label}: {self.kind} {args['name']}"}
        if made["name"] == "process_sort_index":
            made["args"] = {"sort_index": made["pid"]}  # ranks in their order
        return ""

    def _timed(self, made: dict[str, Any], event: dict[str, Any]) -> str:
        """Add times and ids; returns the rule that the event breaks, or nothing."""
        phase, thread = made.get("ph"), (made["pid"], made["tid"])
        if not _is_time(event.get("ts")):
            return "a time"
        made["ts"] = self.last = round(event["ts"] + self.shift_us, 3)
        if phase != "E" and not isinstance(made.get("name"), str):
            return "a name"
        if phase == "X":
            made["dur"] = event.get("dur")
            return "" if _is_time(made["dur"]) and made["dur"] >= 0 else "a duration of 0 or more"
        if phase == "B":
            self.open.setdefault(thread, []).append(made["ts"])
        elif phase == "E":
            if not self.open.get(thread):
                return "a begin for each end"
            self.open[thread].pop()
        elif phase in ("s", "t", "f", "b", "n", "e"):
            if "id" not in made:
                return "an id of a flow or an asynchronous event"
            made["id"] = f"{self.label}/{self.kind}/{made['id']}"
        elif phase == "C":
            args = made.get("args")
            return "" if isinstance(args, dict) and all(map(_is_time, args.values())) else "numbers in a counter"
        elif phase in ("i", "I"):
            made["ph"], made["s"] = "i", made.get("s") if made.get("s") in ("g", "p", "t") else "t"
        else:
            return "a known phase"
        return ""


def _is_time(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
