"""Progress of long operations, independent of terminals. `stackyard.cli` displays it."""

from __future__ import annotations

from pathlib import Path
from typing import Any


class Progress:
    """Receives progress events; every method returns at once and never raises. By default events are ignored."""

    def phase(self, subject: str, phase: str, detail: str = "") -> None:
        """`subject` (a module name or a variant) enters a phase: solve, fetch, link, compile, bytecode, verify ..."""

    def advance(self, subject: str, done: int, total: int, items: str = "", size: int = 0) -> None:
        """The progress of the phase.

        Args:
            done, total: the number of items.
            items: what is counted, with the participle that it needs: "packages fetched".
            size: the bytes that were written for them; 0: not measured.
        """

    def notice(self, text: str) -> None:
        """A notice for the user: one sentence."""


class SilentProgress(Progress):
    """A `Progress` that stores notices and shows nothing."""

    def __init__(self) -> None:
        self.notices: list[str] = []

    def notice(self, text: str) -> None:
        """Store the notice."""
        self.notices.append(text)


class Listener:
    """Receives the progress of a launch's step; by default events are ignored.

    It may be slow, and its errors do not affect the launch (`launch.records.outcome.ListenerGroup`).
    """

    def phase(self, name: str, detail: str = "") -> None:
        """``queued``, ``nodes``, ``preflight``, ``first output``, ``running``, ``ending`` ..."""

    def nodes(self, there: int, expected: int) -> None:
        """The number of nodes that have reported."""

    def output(self, task: int, text: str) -> None:
        """Output of a rank, whole lines where possible."""

    def event(self, kind: str, data: dict[str, Any]) -> None:
        """An event for events.jsonl: ``phase``, ``exit``, ``node-lost``, ``hang``, ``signal``."""

    def notice(self, text: str) -> None:
        """A sentence for the user."""

    def stack(self, file: Path, text: str) -> None:
        """The stack traces of a hanging rank, to be stored in `file`."""

    def flush(self) -> None:
        """The end of the events for the moment."""
