"""`Recorder`: a `Listener` that keeps the status and the events of a run, and passes everything on."""

from __future__ import annotations

import os
import signal
import threading
from dataclasses import replace
from typing import Any

from stackyard.launch.records.outcome import Listener
from stackyard.launch.records.paths import RunPaths
from stackyard.launch.records.record import RunStatus, add_event, write_status


class Recorder:
    """Keeps what happens to a run; `shown` is the listener that displays it.

    Attributes:
        end_within_s: after SIGUSR1, seconds until this process gets SIGTERM, so that the job can be requeued before
            the scheduler kills it; 0: never.
        out_of_time: SIGUSR1 was received, the scheduler's warning before the time limit.
    """

    def __init__(self, paths: RunPaths, shown: Listener, status: RunStatus) -> None:
        self._paths, self._shown = paths, shown
        self.status = status
        self.end_within_s = 0.0
        self.out_of_time = False
        self._timer: threading.Timer | None = None
        write_status(paths, status)

    def change(self, **values: Any) -> None:
        """Set values of the status, and write it at once."""
        self.status = replace(self.status, **values)
        write_status(self._paths, self.status)

    def phase(self, name: str, detail: str = "") -> None:
        """A new phase; kept in the status too, for other processes that follow the run."""
        self.change(phase=f"{name} {detail}".rstrip())
        add_event(self._paths, "phase", {"phase": name, "detail": detail})
        self._shown.phase(name, detail)

    def nodes(self, there: int, expected: int) -> None:
        """Passed on."""
        self._shown.nodes(there, expected)

    def output(self, task: int, text: str) -> None:
        """Passed on."""
        self._shown.output(task, text)

    def event(self, kind: str, data: dict[str, Any]) -> None:
        """Kept and passed on; `phase` keeps the phases."""
        if kind != "phase":
            add_event(self._paths, kind, data)
        if kind == "signal" and data.get("received") == "SIGUSR1":
            self._start_timer()
        self._shown.event(kind, data)

    def notice(self, text: str) -> None:
        """Kept and passed on."""
        add_event(self._paths, "notice", {"text": text})
        self._shown.notice(text)

    def stop_timer(self) -> None:
        """The ranks have ended."""
        if self._timer is not None:
            self._timer.cancel()

    def _start_timer(self) -> None:
        """Near the time limit: terminate ranks that do not end by themselves before the scheduler kills them."""
        self.out_of_time = True
        if self.end_within_s and self._timer is None:
            self._timer = threading.Timer(self.end_within_s, os.kill, (os.getpid(), signal.SIGTERM))
            self._timer.daemon = True
            self._timer.start()
