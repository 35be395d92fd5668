"""Progress of long operations, independent of terminals. `stackyard.cli` displays it."""

from __future__ import annotations

from typing import Protocol


class Progress(Protocol):
    """Receives what happens; every method returns at once and never raises."""

    def phase(self, subject: str, phase: str, detail: str = "") -> None:
        """`subject` (a module name or a variant) enters a phase: solve, fetch, link, compile, bytecode, verify ..."""

    def advance(self, subject: str, done: int, total: int) -> None:
        """How far the phase is, in items."""

    def notice(self, text: str) -> None:
        """A notice for the user: one sentence."""


class Silent:
    """A `Progress` that keeps the notices and shows nothing."""

    def __init__(self) -> None:
        self.notices: list[str] = []

    def phase(self, subject: str, phase: str, detail: str = "") -> None:
        """Ignored."""

    def advance(self, subject: str, done: int, total: int) -> None:
        """Ignored."""

    def notice(self, text: str) -> None:
        """Kept."""
        self.notices.append(text)
