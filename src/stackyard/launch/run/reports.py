"""`Reports`: forwards events to a step's listeners, each in its own thread, so that none can block the hub.

The display may be a terminal that was stopped or a pipe that was closed, and the run directory may be on a file system
that stalls or is full. The hub only puts reports into queues: it never waits, and errors of listeners do not reach it.
"""

from __future__ import annotations

import queue
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import Any

from stackyard.core.progress import Listener
from stackyard.launch.records.outcome import ForwardingListener, ListenerGroup

LATE_S = 5.0
"""After so many seconds of waiting for one listener, the others are told."""
FLUSH_S = 1.0
"""Seconds between two flushes of a listener: a file is not written once for each of ten thousand nodes."""
_Report = tuple[str, tuple[Any, ...]]


class Reports(ForwardingListener):
    """Forwards events in order to one listener or several; it is a listener itself."""

    def __init__(self, listener: Listener) -> None:
        listeners = listener.each if isinstance(listener, ListenerGroup) else (listener,)
        self._queues = tuple(_Queue(one) for one in listeners)

    @property
    def waiting(self) -> int:
        """Characters of output not yet processed by the slowest listener."""
        return max(one.put - one.taken for one in self._queues)

    def flush(self) -> None:
        """Flush every listener soon."""

    def close(self, interrupts: Sequence[int] = ()) -> None:
        """Wait until all events are forwarded, or until `interrupts` grows."""
        before = len(interrupts)
        for one in self._queues:
            one.end()
        waited = 0.0
        while late := [one for one in self._queues if one.alive]:
            if len(interrupts) > before:
                return
            late[0].join(0.1)
            waited += 0.1
            if LATE_S <= waited < LATE_S + 0.1:
                _tell_others(self._queues)

    def _all(self, what: str, *arguments: Any) -> None:
        for one in self._queues:
            one.add(what, *arguments)


def _tell_others(queues: Sequence[_Queue]) -> None:
    for one in queues:
        if not one.alive:
            with suppress(Exception):
                one.listener.notice("all ranks have ended; waiting for the file system of the run directory")


class _Queue:
    """One listener with its thread. `put` and `taken` count the characters of output."""

    def __init__(self, listener: Listener) -> None:
        self.listener = listener
        self.put = self.taken = 0
        self._ignores: frozenset[str] = getattr(listener, "ignores", frozenset())
        self._queue: queue.SimpleQueue[_Report | None] = queue.SimpleQueue()
        self._errors: Counter[str] = Counter()
        self._thread = threading.Thread(target=self._pass_on, name="reports", daemon=True)
        self._thread.start()

    @property
    def alive(self) -> bool:
        """Whether events remain to be forwarded."""
        return self._thread.is_alive()

    def add(self, what: str, *arguments: Any) -> None:
        """Queue an event."""
        if what in self._ignores:
            return
        if what == "output":
            self.put += len(arguments[1])
        self._queue.put((what, arguments))

    def end(self) -> None:
        """End the thread once all events are forwarded."""
        self._queue.put(None)

    def join(self, timeout_s: float) -> None:
        """Wait for the thread's end."""
        self._thread.join(timeout_s)

    def _pass_on(self) -> None:
        flushed = time.monotonic()
        for report in self._reports():
            if report:
                what, arguments = report
                self._do(getattr(self.listener, what), *arguments)
                if what == "output":
                    self.taken += len(arguments[1])
            if not report or time.monotonic() > flushed + FLUSH_S:
                self._do(self.listener.flush)
                flushed = time.monotonic()
        for text, count in self._errors.items():
            self._do(self.listener.notice, f"{count} report{'s' * (count > 1)} lost: {text}")
        self._do(self.listener.flush)

    def _reports(self) -> Iterator[_Report | None]:
        """The events, and None after a pause."""
        told = False
        while True:
            try:
                report = self._queue.get(timeout=FLUSH_S if told else None)
            except queue.Empty:
                told = False
                yield None
                continue
            if report is None:
                return
            told = True
            yield report

    def _do(self, what: Callable[..., None], *arguments: Any) -> None:
        try:
            what(*arguments)
        except Exception as error:
            self._errors[str(error) or type(error).__name__] += 1
