"""Progress on a terminal (a live line per running step) or in a log (a line per step). Both go to standard error.

On a terminal, a finished step leaves one permanent line with its time, and notices appear between those lines. So the
screen looks like a log afterwards, and only running steps are redrawn.
"""

from __future__ import annotations

import os
import sys
import time
from typing import TYPE_CHECKING

from stackyard.cli.output import show_notice
from stackyard.core.progress import Progress
from stackyard.core.quoting import harmless, one_line

if TYPE_CHECKING:
    from rich.progress import TaskID

ENDS = {
    "locked": "[green]✔[/]",
    "built": "[green]✔[/]",
    "passed": "[green]✔[/]",
    "failed": "[red]✘[/]",
    "stopped": "[red]✘[/]",
    "unverified": "[yellow]![/]",
}
"""The phases that end a step, with their marks."""


class Lines(Progress):
    """Progress for logs: a line for each new phase of a variant, with the seconds since the start."""

    def __init__(self) -> None:
        self.notices: list[str] = []
        self._started = time.monotonic()
        self._last: dict[str, str] = {}

    def __enter__(self) -> Lines:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def phase(self, subject: str, phase: str, detail: str = "") -> None:
        """Print one line, unless nothing changed."""
        text = f"{phase} {detail}".rstrip()
        if self._last.get(subject) != text:
            self._last[subject] = text
            line = one_line(f"[{time.monotonic() - self._started:6.1f} s] {subject}: {text}")
            print(line, file=sys.stderr, flush=True)

    def notice(self, text: str) -> None:
        """Print one line; repeated notices are dropped."""
        if text not in self.notices:
            self.notices.append(text)
            show_notice(text)


class Bars(Progress):
    """Progress for a terminal: per step its phase, a bar if items are counted, and the elapsed time."""

    def __init__(self) -> None:
        from rich.console import Console
        from rich.progress import Progress as Display
        from rich.progress import SpinnerColumn, TextColumn, TimeElapsedColumn
        from rich.table import Column

        def text(form: str) -> TextColumn:
            return TextColumn(form, table_column=Column(no_wrap=True))

        self.notices: list[str] = []
        self._console = Console(stderr=True, highlight=False)
        self._display = Display(
            SpinnerColumn(),
            text("[bold]{task.description}[/]"),
            text("[cyan]{task.fields[phase]}[/]"),
            text("{task.fields[bar]}"),
            text("[dim]{task.fields[detail]}[/]"),
            TimeElapsedColumn(),
            console=self._console,
            transient=True,
        )
        self._tasks: dict[str, TaskID] = {}
        self._started: dict[str, float] = {}

    def __enter__(self) -> Bars:
        self._display.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._display.stop()

    def phase(self, subject: str, phase: str, detail: str = "") -> None:
        """Show the new phase; one of `ENDS` ends the step and leaves a permanent line."""
        if phase in ENDS:
            self._end(subject, phase, detail)
        else:
            self._display.update(self._task(subject), phase=phase, detail=_plain(detail), bar="")

    def advance(self, subject: str, done: int, total: int) -> None:
        """Show the progress within the phase."""
        if subject in self._tasks and total > 0:
            self._display.update(self._tasks[subject], bar=_bar(done, total), detail=f"{done:,} of {total:,}")

    def notice(self, text: str) -> None:
        """Print a permanent line; repeated notices are dropped."""
        if text not in self.notices:
            self.notices.append(text)
            self._console.print(f"[yellow]note:[/] {_plain(text)}", soft_wrap=True)

    def _task(self, subject: str) -> TaskID:
        if subject not in self._tasks:
            self._started[subject] = time.monotonic()
            self._tasks[subject] = self._display.add_task(_plain(subject), total=None, phase="", detail="", bar="")
        return self._tasks[subject]

    def _end(self, subject: str, phase: str, detail: str) -> None:
        seconds = time.monotonic() - self._started.pop(subject, time.monotonic())
        task = self._tasks.pop(subject, None)
        if task is not None:
            self._display.remove_task(task)
        words = f"{ENDS[phase]} {_plain(subject)}: {phase}{f' ({_plain(detail)})' if detail else ''}"
        self._console.print(f"{words} [dim]{seconds:.1f} s[/]", soft_wrap=True)


def _bar(done: int, total: int, width: int = 20) -> str:
    filled = min(width, width * done // total)
    return f"[green]{'━' * filled}[/][dim]{'━' * (width - filled)}[/]"


def _plain(text: str) -> str:
    """A text with escaped square brackets, which would be markup, and without terminal control sequences."""
    from rich.markup import escape

    return escape(harmless(text))


def display() -> Bars | Lines:
    """The display for standard error: live on a terminal, else lines."""
    return Bars() if sys.stderr.isatty() and os.environ.get("TERM") != "dumb" else Lines()
