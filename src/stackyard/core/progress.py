"""Progress of long operations, independent of terminals. `stackyard.cli` displays it."""

from __future__ import annotations

from pathlib import Path
from typing import Any


class Progress:
    """Receives what happens; every method returns at once and never raises. One that is not overridden ignores it."""

    def phase(self, subject: str, phase: str, detail: str = "") -> None:
        """`subject` (a module name or a variant) enters a phase: solve, fetch, link, compile, bytecode, verify ..."""

    def advance(self, subject: str, done: int, total: int) -> None:
        """How far the phase is, in items."""

    def notice(self, text: str) -> None:
        """A notice for the user: one sentence."""


class SilentProgress(Progress):
    """A `Progress` that keeps the notices and shows nothing."""

    def __init__(self) -> None:
        self.notices: list[str] = []

    def notice(self, text: str) -> None:
        """Kept."""
        self.notices.append(text)


class Listener:
    """Receives the progress of a step of a launch; a class that extends this one ignores what it does not take.

    It may take its time, and an error of it ends nothing (`launch.records.outcome.ListenerGroup`).
    """

    def phase(self, name: str, detail: str = "") -> None:
        """``queued``, ``nodes``, ``preflight``, ``first output``, ``running``, ``ending`` ..."""

    def nodes(self, there: int, expected: int) -> None:
        """How many nodes have reported."""

    def output(self, task: int, text: str) -> None:
        """Output of a rank, whole lines where possible."""

    def event(self, kind: str, data: dict[str, Any]) -> None:
        """For events.jsonl: ``phase``, ``exit``, ``node-lost``, ``hang``, ``signal``."""

    def notice(self, text: str) -> None:
        """One sentence that the user should read now."""

    def stack(self, file: Path, text: str) -> None:
        """The stack traces of a rank that hangs, to be kept in `file`."""

    def flush(self) -> None:
        """Nothing more to report for the moment."""
