"""Notices that a step prints nothing any more, collects where its ranks are, and names the rank that is behind."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from stackyard.launch.run.hang.behind import behind
from stackyard.launch.run.link import Link
from stackyard.launch.run.reports import Reports
from stackyard.launch.run.seen import StepFacts
from stackyard.launch.run.start import WatchOptions

NO_STACKS = "states of the processes (neither probe nor py-spy found)"
STACKS_S = 30.0
"""Time limit for the stack traces of hanging ranks."""


@dataclass(frozen=True)
class Hung:
    """The message of a hang, and the sentence about the rank that is behind; `host` is that rank's, or empty."""

    text: str
    host: str = ""
    tail: tuple[str, ...] = ()


class HangWatch:
    """The hang timeout of a step."""

    def __init__(self, seen: StepFacts, reports: Reports, options: WatchOptions) -> None:
        self._seen, self._reports, self._options = seen, reports, options
        self._until = 0.0
        self._recorders: dict[int, dict[str, Any]] = {}
        self._hosts: dict[int, str] = {}

    def heard(self, link: Link, value: dict[str, Any]) -> None:
        """Keep the stack trace of a task, and where its ranks are in their collective operations."""
        task = int(value["task"])
        self._seen.stacks_of.add(task)
        for one in value.get("recorders", ()):
            self._recorders[int(one["rank"])] = dict(one["groups"])
            self._hosts[int(one["rank"])] = link.host
        file = self._seen.step.stacks / f"rank-{task:05d}.txt"
        self._reports.stack(file, f"rank {task} on {link.host}\n{value['text']}\n")

    def look(self, now: float, since: float, ask: Callable[[str], None]) -> Hung | None:
        """The hang, once the stack traces are there; `ask` for them after the timeout.

        Args:
            since: when the step last printed something; 0: it has not started.
        """
        minutes = self._options.hang_min
        if self._until:
            return self._hung() if now > self._until or self._seen.stacks_of >= set(self._seen.running) else None
        if minutes and since and now > since + minutes * 60:
            self._until = now + STACKS_S
            ask(f"no output for {minutes:g} min")
        return None

    def _hung(self) -> Hung:
        options = self._options
        shown = "stack traces" if options.py_spy or options.probe_signal else NO_STACKS
        late = behind(self._recorders)
        self._reports.event("hang", {
            "minutes": options.hang_min, "stacks": sorted(self._seen.stacks_of),
            **({"behind": {"ranks": late.ranks, "operation": late.operation, "number": late.number}} if late else {}),
        })  # fmt: skip
        where = f"no output for {options.hang_min:g} min; {shown}: {self._seen.step.stacks}"
        host = self._hosts.get(late.ranks[0], "") if late else ""
        return Hung(f"hang timeout: {where}", host, (str(late),) if late else ())
