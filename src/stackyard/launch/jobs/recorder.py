"""`Recorder`: a `Listener` that writes the status and the events of a run to files."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from stackyard.core.progress import Listener
from stackyard.launch.records.paths import RunPaths
from stackyard.launch.records.record import EventsFile, RunStatus, write_status
from stackyard.yard.write import atomic


class Recorder(Listener):
    """Records the events of a run. Write errors do not stop the run; `lost` has the reason."""

    ignores = frozenset({"nodes", "output"})

    def __init__(self, paths: RunPaths, status: RunStatus) -> None:
        self._paths, self._events = paths, EventsFile(paths)
        self.status = status
        self.lost = ""
        self.change()

    def change(self, **values: Any) -> None:
        """Set values of the status, and write it at once."""
        self.status = replace(self.status, **values)
        try:
            write_status(self._paths, self.status)
            self.lost = ""
        except OSError as error:
            self.lost = f"cannot write {self._paths.status}: {error.strerror}"

    def phase(self, name: str, detail: str = "") -> None:
        """Record a new phase; also in the status, for other processes that follow the run."""
        self._events.add("phase", {"phase": name, "detail": detail})
        self._events.flush()
        self.change(phase=f"{name} {detail}".rstrip())

    def event(self, kind: str, data: dict[str, Any]) -> None:
        """Record the event, except for phases, which `phase` records."""
        if kind != "phase":
            self._events.add(kind, data)

    def notice(self, text: str) -> None:
        """Record the notice."""
        self._events.add("notice", {"text": text})

    def stack(self, file: Path, text: str) -> None:
        """Record the stack trace."""
        with suppress(OSError):
            atomic.write_text(file, text)

    def flush(self) -> None:
        """Write all recorded events."""
        self._events.flush()

    def close(self) -> None:
        """Accept no more events."""
        self._events.close()
