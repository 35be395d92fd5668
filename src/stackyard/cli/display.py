"""Progress on a terminal (one live line per variant) or in a log (one line per phase). Both go to standard error."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING

from stackyard.cli.output import show_notice
from stackyard.progress import Progress

if TYPE_CHECKING:
    from rich.progress import TaskID


class Lines:
    """Progress for logs: a line whenever a variant enters a phase, with the seconds since the start."""

    def __init__(self) -> None:
        self._started = time.monotonic()
        self._last: dict[str, str] = {}

    def __enter__(self) -> Progress:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def phase(self, subject: str, phase: str, detail: str = "") -> None:
        """One line, unless nothing changed."""
        text = f"{phase} {detail}".rstrip()
        if self._last.get(subject) != text:
            self._last[subject] = text
            print(f"[{time.monotonic() - self._started:6.1f} s] {subject}: {text}", file=sys.stderr, flush=True)

    def advance(self, subject: str, done: int, total: int) -> None:
        """Not shown in a log."""

    def notice(self, text: str) -> None:
        """A line of its own."""
        show_notice(text)


class Bars:
    """Progress for a terminal: per variant its phase, a bar where items are counted, and the time that passed."""

    def __init__(self) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, SpinnerColumn, TextColumn, TimeElapsedColumn
        from rich.progress import Progress as Display

        self._display = Display(
            SpinnerColumn(finished_text="[green]✔"),
            TextColumn("[bold]{task.description}"),
            TextColumn("[cyan]{task.fields[phase]}"),
            BarColumn(bar_width=24),
            TextColumn("[dim]{task.fields[detail]}"),
            TimeElapsedColumn(),
            console=Console(stderr=True),
        )
        self._tasks: dict[str, TaskID] = {}
        self._notices: list[str] = []

    def __enter__(self) -> Progress:
        self._display.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._display.stop()
        for text in dict.fromkeys(self._notices):
            show_notice(text)

    def phase(self, subject: str, phase: str, detail: str = "") -> None:
        """Show the new phase; passed, failed and unverified end the line."""
        task = self._task(subject)
        if phase in ("passed", "failed", "unverified"):
            self._display.update(task, phase=phase, detail=detail, total=1, completed=1)
        else:
            self._display.update(task, phase=phase, detail=detail, total=None, completed=0)

    def advance(self, subject: str, done: int, total: int) -> None:
        """Fill the bar."""
        self._display.update(self._task(subject), completed=done, total=total)

    def notice(self, text: str) -> None:
        """Shown below the bars when they are done."""
        self._notices.append(text)

    def _task(self, subject: str) -> TaskID:
        if subject not in self._tasks:
            self._tasks[subject] = self._display.add_task(subject, total=None, phase="", detail="")
        return self._tasks[subject]


def display() -> Bars | Lines:
    """The display that fits standard error."""
    return Bars() if sys.stderr.isatty() else Lines()
