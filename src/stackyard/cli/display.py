"""Progress on a terminal (a live line per running step) or in a log (a line per step). Both go to standard error.

On a terminal, a finished step leaves one permanent line with its time, and notices appear between those lines. So the
screen looks like a log afterwards, and only running steps are redrawn. In a log, a long step has a line every
`QUIET_S` with what is done so far.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections import deque
from typing import TYPE_CHECKING

from stackyard.cli.output import show_notice
from stackyard.cli.tables import wrapped
from stackyard.core.findings import human_bytes
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


QUIET_S, STILL_S = 10.0, 60.0
"""After this time without a line, a log says what is done so far; the second, if that is the same as before."""
_WIDE = 120
"""The columns of a terminal with room for a bar beside what it shows."""
_RATE_S = 10.0
"""The time over which a rate is averaged."""


class Amount:
    """What is done of a phase, with its rate: bytes per second where they are measured, else items."""

    def __init__(self) -> None:
        self._seen: deque[tuple[float, int]] = deque()
        self._key: tuple[str, bool] | None = None

    def text(self, done: int, total: int, items: str, size: int, now: float) -> str:
        """``12 of 87 packages fetched, 1.2 GiB, 45.0 MiB/s``; the rate from the second second on."""
        if self._key != (items, bool(size)):
            self._key = (items, bool(size))
            self._seen.clear()
        value = size or done
        if not self._seen or self._seen[-1][1] != value or now - self._seen[-1][0] > _RATE_S / 2:
            self._seen.append((now, value))
        while now - self._seen[0][0] > _RATE_S and len(self._seen) > 2:
            self._seen.popleft()
        items = items.replace("s ", " ", 1) if total == 1 else items
        parts = [f"{done:,} of {total:,} {items}".rstrip(), *([human_bytes(size)] if size else [])]
        seconds, more = self._seen[-1][0] - self._seen[0][0], value - self._seen[0][1]
        if seconds >= 1 and more > 0:
            parts.append(f"{human_bytes(more / seconds)}/s" if size else f"{more / seconds:,.0f}/s")
        return ", ".join(parts)


class Lines(Progress):
    """Progress for logs: a line for each new phase of a variant, with the seconds since the start.

    After `QUIET_S` without one, a line has what is done so far, from a thread of its own, since most steps wait for
    another program.
    """

    def __init__(self) -> None:
        self.notices: list[str] = []
        self._started = self._said = time.monotonic()
        self._last: dict[str, str] = {}
        self._running = self._amount = ""
        self._told: str | None = None
        self._since = self._started
        self._amounts = Amount()
        self._guard, self._over = threading.Lock(), threading.Event()
        self._pulse = threading.Thread(target=self._beat, daemon=True)

    def __enter__(self) -> Lines:
        self._pulse.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._pulse.join()

    def phase(self, subject: str, phase: str, detail: str = "") -> None:
        """Print one line, unless nothing changed."""
        text = f"{phase} {detail}".rstrip()
        with self._guard:
            if self._last.get(subject) != text:
                self._last[subject] = text
                self._running, self._amount, self._told, self._amounts = "", "", None, Amount()
                now = time.monotonic()
                if phase not in ENDS:
                    self._running, self._since = f"{subject}: {text}", now
                self._print(f"{subject}: {text}", now)

    def advance(self, subject: str, done: int, total: int, items: str = "", size: int = 0) -> None:
        """Keep what is done for the next line."""
        with self._guard:
            self._amount = self._amounts.text(done, total, items, size, time.monotonic())

    def tell(self, now: float) -> None:
        """Print what is done so far, if nothing was printed for a while before `now` (by `time.monotonic`)."""
        with self._guard:
            if self._running and now - self._said >= (STILL_S if self._amount == self._told else QUIET_S):
                self._told = self._amount
                self._print(f"{self._running}: {self._amount or f'{now - self._since:.0f} s so far'}", now)

    def _beat(self) -> None:
        while not self._over.wait(1):
            self.tell(time.monotonic())

    def _print(self, text: str, now: float) -> None:
        self._said = now
        line = one_line(f"[{self._said - self._started:6.1f} s] {text}")
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
        self._amounts: dict[str, Amount] = {}
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
            self._amounts[subject] = Amount()
            self._display.update(self._task(subject), phase=phase, detail=_plain(detail), bar="")

    def advance(self, subject: str, done: int, total: int, items: str = "", size: int = 0) -> None:
        """Show the progress within the phase."""
        if subject in self._tasks and total > 0:
            text = self._amounts[subject].text(done, total, items, size, time.monotonic())
            bar = _bar(done, total) if self._console.width >= _WIDE else ""
            self._display.update(self._tasks[subject], bar=bar, detail=_plain(text))

    def notice(self, text: str) -> None:
        """Print a permanent line; repeated notices are dropped."""
        if text not in self.notices:
            self.notices.append(text)
            lines = "\n".join(wrapped(f"note: {one_line(text)}", self._console.width, len("note: ")))
            self._console.print(f"[yellow]note:[/]{_plain(lines.removeprefix('note:'))}", soft_wrap=True)

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
