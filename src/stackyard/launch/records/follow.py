"""Follows a run from outside: its phases and the output of its first rank, read from its directory.

Works for a queued job, for a running one, and again after a lost connection: it needs only the run directory and the
scheduler's client programs.
"""

from __future__ import annotations

import json
import math
import os
import time
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO

from stackyard.core.progress import Listener
from stackyard.launch.records import arrays
from stackyard.launch.records.paths import RunPaths
from stackyard.launch.records.record import RunStatus, read_status
from stackyard.launch.records.status import array_tasks, current_status, why_ended

ASK_FIRST_S, ASK_MOST_S = 1.0, 30.0
"""Seconds between queries of the scheduler: short at first, then longer, to keep the load on it low."""
LOOK_S = 1.0
"""Seconds between two look-ups of a name on the shared file system."""
LOOKS_PER_S = 200
"""Look-ups in a second at most, of the logs of ranks that have not begun."""


class Watch:
    """Checks the status of a run repeatedly: its files each time, the scheduler seldom."""

    def __init__(self, paths: RunPaths) -> None:
        self.paths = paths
        self._ask, self._asked = ASK_FIRST_S, -math.inf

    def due(self) -> bool:
        """Whether to query the scheduler now; if so, the interval to the next query grows."""
        now = time.monotonic()
        if now - self._asked < self._ask:
            return False
        self._asked, self._ask = now, min(self._ask * 1.3, ASK_MOST_S)
        return True

    def look(self) -> RunStatus:
        """The present status; after the end with the scheduler's own reason."""
        status = current_status(self.paths, ask=self.due())
        return why_ended(self.paths, status) if status.over else status


class _Tail:
    """Reads the text appended to a file since the last read.

    The file stays open: each check costs one read, and only every `LOOK_S` a look-up of its name; before it exists
    every `wait_s`.
    """

    def __init__(self, path: Path, wait_s: float = 0.0) -> None:
        self.path, self._wait_s = path, wait_s
        self._stream: BinaryIO | None = None
        self._looked = -math.inf

    def new(self, *, at_end: bool = False) -> str:
        """Text appended since; empty while the file does not exist.

        A file that was replaced (the run was started again) is read to its end, then the new one from its beginning.

        Args:
            at_end: writing has finished: look the name up now, since an attempt may have been shorter than `LOOK_S`.
        """
        try:
            data = self._read()
            if not data and (at_end or time.monotonic() > self._looked + (LOOK_S if self._stream else self._wait_s)):
                self._look()
                data = self._read()
        except OSError:
            return ""
        return data.decode("utf-8", "replace")

    def _read(self) -> bytes:
        return self._stream.read(1 << 20) if self._stream else b""

    def _look(self) -> None:
        """Open the file that now has the name, unless it is open already."""
        self._looked = time.monotonic() if self._stream or self._wait_s else -math.inf
        status = self.path.stat()
        if self._stream is not None:
            now = os.fstat(self._stream.fileno())
            if (now.st_ino, now.st_dev) == (status.st_ino, status.st_dev) and status.st_size >= self._stream.tell():
                return
            self._stream.close()
        self._stream = self.path.open("rb")


class _Events:
    """The phases, nodes and notices appended to events.jsonl since the last read.

    Of those before the first read, only the last phase and later events count; for a run that is `over`, no phase.
    """

    def __init__(self, paths: RunPaths, *, over: bool) -> None:
        self._tail, self._rest, self._first = _Tail(paths.events), "", True
        self._over = over

    def tell(self, listener: Listener, *, at_end: bool = False) -> bool:
        """Pass new events on; whether there are any."""
        *lines, self._rest = (self._rest + self._tail.new(at_end=at_end)).split("\n")
        events: list[dict[str, Any]] = []
        for line in lines:
            with suppress(ValueError):
                events.append(json.loads(line))
        if self._first and events:
            self._first = False
            phases = [at for at, event in enumerate(events) if event.get("event") == "phase"]
            events = events[phases[-1] :] if phases else events
        for event in events:
            self._one(event, listener)
        return bool(events)

    def _one(self, event: dict[str, Any], listener: Listener) -> None:
        kind = event.get("event")
        if kind == "phase" and not self._over:
            listener.phase(event.get("phase", ""), event.get("detail", ""))
        elif kind == "notice":
            listener.notice(event.get("text", ""))


def follow(
    paths: RunPaths, listener: Listener, *, logs: tuple[Path, ...] | None = None, poll_s: float = 0.1,
    late_s: float = 0.0,
) -> RunStatus:  # fmt: skip
    """Report to `listener` until the run has ended; returns its final status.

    Args:
        logs: the files to show as output; None: the first rank's log.
        late_s: how long after the end something may still be written to them.
    """
    logs = (paths.main.rank_log(0),) if logs is None else logs
    tails = [_Tail(path, wait_s=min(LOOK_S, (len(logs) - 1) / LOOKS_PER_S)) for path in logs]
    events, seen, before = _Events(paths, over=read_status(paths).over), "", dict[str, RunStatus]()
    watch, status, looked = Watch(paths), RunStatus(), 0.0
    while True:
        due = watch.due()
        if events.tell(listener) or due or time.monotonic() > looked + LOOK_S:
            status, looked = current_status(paths, ask=due), time.monotonic()
            if status.tasks:
                before = _tasks(paths, before, listener)
            seen = _phase(status, seen, listener)
        for number, tail in enumerate(tails):
            while text := tail.new():
                listener.output(number, text)
        if status.over:
            _rest(tails, late_s, listener)
            events.tell(listener, at_end=True)
            return why_ended(paths, status)
        time.sleep(poll_s)


def _rest(tails: list[_Tail], wait_s: float, listener: Listener) -> None:
    """Report the last output. A batch script's own output arrives shortly after the end that it records."""
    until = time.monotonic() + wait_s
    while True:
        for number, tail in enumerate(tails):
            while text := tail.new(at_end=True):
                listener.output(number, text)
        if time.monotonic() >= until:
            return
        time.sleep(0.1)


def _tasks(paths: RunPaths, before: dict[str, RunStatus], listener: Listener) -> dict[str, RunStatus]:
    """Report the tasks of an array that have ended since."""
    now = array_tasks(paths, ask=False)
    for sentence in arrays.news(before, now):
        listener.notice(sentence)
    return now


def _phase(status: RunStatus, seen: str, listener: Listener) -> str:
    """Report a changed reason why the job is queued, or an array's tasks. A running job reports its own phases."""
    if status.state != "queued" and not status.tasks:
        return seen if status.state == "planned" else ""
    now = f"{status.state} {status.message}".rstrip()
    if now != seen and (status.message or not seen):
        listener.phase(status.state, status.message)
        return now
    return seen
