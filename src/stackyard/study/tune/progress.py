"""What a journal says: the trials of a search, each with its reports and its result at each rung. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from stackyard.study.tune.journal import Event

MOST_REPORTS = 2_000
"""Of one trial that are kept."""
MOST_LOSSES = 3
"""So often a trial may take its slot with it, before it counts as failed."""


@dataclass(frozen=True)
class RungResult:
    """How a trial left a rung; `value` is None without a number."""

    state: str
    value: float | None
    seconds: float = 0
    message: str = ""
    code: int | None = None


@dataclass
class TrialProgress:
    """One trial.

    Attributes:
        known: the events that were there when it was asked for.
        reports: the value at each resource; the first report of one counts.
        results: by rung.
        running: the rung that it is at; -1: none.
        waits: the rung whose run was interrupted, or has not started; -1: none.
        losses: how often it was lost with its slot.
    """

    number: int
    params: dict[str, Any]
    seed: int = 0
    known: int = 0
    reports: dict[int, float] = field(default_factory=dict)
    results: dict[int, RungResult] = field(default_factory=dict)
    running: int = -1
    waits: int = -1
    losses: int = 0
    slot: str = ""
    host: str = ""
    started: float = 0
    seconds: float = 0

    @property
    def last(self) -> RungResult | None:
        """The result at the highest rung."""
        return self.results[max(self.results)] if self.results else None

    @property
    def value(self) -> float | None:
        """The value at the highest rung that has one."""
        return next((one.value for _, one in sorted(self.results.items(), reverse=True) if one.value is not None), None)

    @property
    def is_bad(self) -> bool:
        """Whether it has failed, or has no value, at its last rung."""
        return self.last is not None and self.last.state != "done"


class SearchProgress:
    """All trials, and how the events so far have changed them."""

    def __init__(self, events: Iterable[Event] = ()) -> None:
        self.trials: dict[int, TrialProgress] = {}
        self._finished: dict[int, None] = {}
        self.repeated = 0
        self.engine_done = False
        for event in events:
            self.apply(event)

    def apply(self, event: Event) -> None:
        """One more event. Of what cannot happen twice only the first counts (`repeated`)."""
        kind, number = event["event"], event.get("trial", -1)
        if kind == "asked" and number not in self.trials:
            self.trials[number] = TrialProgress(
                number, dict(event["params"]), int(event.get("seed", 0)), int(event.get("known", 0)), waits=0
            )
            return
        self.engine_done |= kind == "engine"
        if (trial := self.trials.get(number)) is None:
            return
        if kind == "started":
            trial.running, trial.waits = event["rung"], -1
            trial.slot, trial.host = str(event.get("slot", "")), str(event.get("host", ""))
            trial.started = float(event.get("at", 0))
        elif kind == "report":
            self._report(trial, event["resource"], event["value"])
        elif kind == "ended":
            self._ended(trial, event)

    def _report(self, trial: TrialProgress, resource: int, value: float) -> None:
        if resource in trial.reports:
            self.repeated += 1
        elif len(trial.reports) < MOST_REPORTS:
            trial.reports[resource] = value

    def _ended(self, trial: TrialProgress, event: Event) -> None:
        rung, trial.running = event["rung"], -1
        trial.seconds += event["seconds"]
        if event["state"] == "interrupted":
            trial.losses += bool(event.get("lost"))
            trial.waits = rung if rung not in trial.results else -1
        elif event.get("again"):
            trial.results.pop(rung, None)
            trial.waits = rung
            if not trial.results:
                self._finished.pop(trial.number, None)
        elif rung in trial.results:
            self.repeated += 1
        else:
            trial.waits = -1
            self._finished.pop(trial.number, None)
            self._finished[trial.number] = None
            trial.results[rung] = RungResult(
                event["state"], event["value"], event["seconds"], str(event.get("message", "")), event.get("code")
            )

    @property
    def running(self) -> list[TrialProgress]:
        """The trials that have started and not ended."""
        return [trial for trial in self.trials.values() if trial.running >= 0]

    @property
    def finished(self) -> list[TrialProgress]:
        """The trials with a result, in the order of their last ones."""
        return [self.trials[number] for number in self._finished]

    @property
    def asked(self) -> Sequence[Mapping[str, Any]]:
        """The parameters of all trials, in their order."""
        return [trial.params for trial in self.trials.values()]

    def at(self, rung: int) -> dict[int, RungResult]:
        """The results at a rung, by trial."""
        return {number: trial.results[rung] for number, trial in self.trials.items() if rung in trial.results}

    def best(self, better: str) -> TrialProgress | None:
        """The trial with the best value, among those that came furthest."""
        have = [trial for trial in self.trials.values() if trial.value is not None and not trial.is_bad]
        if not have:
            return None
        top = max(max(trial.results) for trial in have)
        return min(
            (one for one in have if max(one.results) == top), key=lambda one: order(better, one.value, one.number)
        )


def order(better: str, value: float | None, number: int) -> tuple[bool, float, int]:
    """A key that sorts the best first, trials without a value last, and equal ones by their number."""
    worth = 0.0 if value is None else value if better == "lower" else -value
    return value is None, worth, number
