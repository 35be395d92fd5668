"""The launcher of a step, as watched by the hub: detects its exit, and terminates it if needed."""

from __future__ import annotations

import signal

from stackyard.host.run import process
from stackyard.launch.run.seen import StepFacts

LAUNCHER_S = 3.0
"""Time in which a launcher exits by itself after its last task, before it is signalled (`LAUNCHER_SIGNALS`)."""
LAUNCHER_SIGNALS = ((0.0, signal.SIGTERM), (1.5, signal.SIGTERM), (8.0, signal.SIGKILL))
"""Signals for a launcher that does not exit, with the seconds: srun requires SIGTERM twice, and releases its allocation
before it exits."""


class Launcher:
    """`ended` is the time of its exit; 0 before."""

    def __init__(self, child: process.Child, seen: StepFacts) -> None:
        self._child, self._seen = child, seen
        self._signals: list[tuple[float, int]] = []
        self.ended = 0.0

    def end(self, at: float) -> None:
        """Send signals from this time on; see `LAUNCHER_SIGNALS`."""
        if not self._signals:
            self._signals = [(at + after_s, number) for after_s, number in LAUNCHER_SIGNALS]

    def look(self, now: float, *, alone: bool) -> None:
        """Check whether it has exited, and send signals that are due. `alone`: no agent is connected."""
        if self.ended:
            return
        code = self._child.poll()
        if code is not None:
            self.ended, self._seen.launcher_code = now, code
        elif alone and self._seen.hosts and not self._signals:
            self.end(now + LAUNCHER_S)
        elif self._signals and (now > self._signals[0][0] or (alone and self._is_left)):
            _, number = self._signals.pop(0)
            self._seen.launcher_ended_by_us = True
            self._child.signal(number, whole=number != signal.SIGKILL)  # see Child.end

    @property
    def _is_left(self) -> bool:
        """Whether it should be terminated but was not signalled yet."""
        return self._seen.state not in (None, "done") and len(self._signals) == len(LAUNCHER_SIGNALS)
