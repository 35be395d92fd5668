"""The one process that carries a search out: it decides what a free slot does, and appends to the journal.

It may be killed at any moment. The next one reads the journal: trials that had begun a rung and not ended it are
interrupted, and start again with their checkpoint directory.
"""

from __future__ import annotations

import math
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from stackyard.core.errors import StackyardError
from stackyard.core.findings import counted
from stackyard.launch.api import jobs
from stackyard.study.directory import only_process
from stackyard.study.metrics.lines import lines
from stackyard.study.tune.journal import Event, JournalWriter
from stackyard.study.tune.optimizer import Sampler, sampler_of
from stackyard.study.tune.programs import helper
from stackyard.study.tune.progress import MOST_LOSSES, SearchProgress, TrialProgress, order
from stackyard.study.tune.reports import Report, ReportReader
from stackyard.study.tune.request import words_of
from stackyard.study.tune.rungs import Ask, Start, is_done, next_step
from stackyard.study.tune.sampling import require_parameters, seed_of
from stackyard.study.tune.slots import Happening, Places, Slot, WorkerSlots
from stackyard.study.tune.steps import StepSlots
from stackyard.study.tune.store import StoredSearch
from stackyard.yard.write import atomic

LOOK_S = 0.5
STOPS_S = 10.0
"""A program that has reached its budget gets so long to end by itself; then SIGTERM."""
SYNC_S = 5.0
"""Reports are on the disk within so many seconds; starts and ends at once."""


class HopelessSearch(StackyardError):
    """No trial has a value: another allocation would not change that."""


class SearchWatcher:
    """Is told what happens in a search."""

    def event(self, event: Event, progress: SearchProgress) -> None:
        """A line of the journal."""

    def notice(self, sentence: str) -> None:
        """What is odd, or waited for."""

    def idle(self, progress: SearchProgress) -> None:
        """Called several times a second."""


@contextmanager
def in_control(study: StoredSearch, watcher: SearchWatcher) -> Iterator[JournalWriter]:
    """Be the one process that writes the journal. A holder that may have died elsewhere is waited for.

    Raises:
        StackyardError: another process is, on this host or another one.
        InputError: the journal is damaged.
    """
    root = study.paths.root
    with only_process(study.paths.writer, f"the search {root}", f"{root} is being searched", watcher.notice):
        journal = JournalWriter(study.paths.journal)
        if journal.torn:
            watcher.notice(f"the last line of {study.paths.journal} was not finished: {journal.torn} bytes are dropped")
        try:
            yield journal
        finally:
            journal.close()


def run_search(
    study: StoredSearch, watcher: SearchWatcher, *, nodes: int = 1, until: float = math.inf, again: bool = False
) -> bool:
    """Carry the search out on this machine, or in this allocation; whether it is done.

    Args:
        nodes: of this allocation, for its trials.
        until: stop before this time, by `time.time`: the allocation ends then.
        again: trials that failed are tried once more.

    Raises:
        InputError, MissingError: trials cannot be planned, or the optimizer is missing.
        StackyardError: the journal cannot be written; no trial has a value; or as for `in_control`.
    """
    with in_control(study, watcher) as journal:
        search = _Search(study, watcher, journal)
        search.settle(again=again)
        if search.is_done:
            return True
        atomic.write_text(study.paths.helper / "stackyard_trial.py", Path(helper.__file__).read_text(encoding="utf-8"))
        places: Places = (WorkerSlots if study.request.trial.nodes == 1 else StepSlots)(study, nodes)
        try:
            search.run(places, until)
        finally:
            search.close()
            places.close()
        return search.is_done


class _Search:
    """A search while it runs."""

    def __init__(self, study: StoredSearch, watcher: SearchWatcher, journal: JournalWriter) -> None:
        self._study, self._watcher, self._journal = study, watcher, journal
        self._request, self._progress = study.request, SearchProgress(journal.events)
        require_parameters(study.request, self._progress.asked)
        self._reader = ReportReader(study.request)
        self._sampler: Sampler | None = None
        self._values: dict[int, tuple[int, float]] = {}
        """Of each running trial the resource and the value that count so far."""
        self._counts: dict[int, int] = {}
        self._synced = 0.0

    @property
    def is_done(self) -> bool:
        """Whether nothing is left to run."""
        return is_done(self._request, self._progress)

    def close(self) -> None:
        """End the optimizer."""
        if self._sampler:
            self._sampler.close()

    def settle(self, *, again: bool) -> None:
        """Trials that a process which is gone had started are interrupted; with `again`, failed ones run once more."""
        left = [_ended(trial, "interrupted", "the search was stopped") for trial in self._progress.running]
        if again:
            bad = [trial for trial in self._progress.trials.values() if trial.is_bad]
            left += [{**_ended(trial, "failed", ""), "rung": max(trial.results), "again": True} for trial in bad]
        self._write(*left)

    def run(self, places: Places, until: float) -> None:
        """Until all is done, or the allocation ends."""
        try:
            while not self.is_done and not places.over:
                if time.time() > until:
                    self._watcher.notice("the allocation ends: running trials are stopped, and go on in the next one")
                    break
                for slot in [one for one in places.slots if one.busy is None and not one.leaving]:
                    self._fill(places, slot)
                for happening in places.happenings(LOOK_S):
                    self._happened(places, happening)
                self._hurry(places)
                self._watcher.idle(self._progress)
        finally:
            self._leave(places)
        if places.over and not self.is_done:
            raise StackyardError(
                f"the workers have ended: {places.over}", hint="continue the search when this is mended"
            )

    def _fill(self, places: Places, slot: Slot) -> None:
        step = next_step(self._request, self._progress)
        if isinstance(step, Ask):
            step = self._ask(step.trial)
        if step is None:
            return
        trial = self._progress.trials[step.trial]
        self._write({"event": "started", "trial": step.trial, "rung": step.rung, "slot": slot.name, "host": slot.host,
                     "at": round(time.time(), 3)})  # fmt: skip
        self._values.pop(step.trial, None)
        self._counts[step.trial] = max(trial.reports, default=0)
        places.start(slot, step, self._order(trial, step))

    def _ask(self, number: int) -> Start:
        """Ask for the parameters of a new trial, by what is known now."""
        self._sampler = self._sampler or sampler_of(self._study)
        known = len(self._journal.events)
        params = self._sampler.ask(number, self._progress)
        seed = seed_of(self._study.about.seed, number)
        self._write({"event": "asked", "trial": number, "seed": seed, "known": known, "params": params})
        return Start(number, 0)

    def _order(self, trial: TrialProgress, step: Start) -> dict[str, Any]:
        """What a worker needs to start a trial."""
        request, directory = self._request, self._study.paths.trial(trial.number)
        checkpoint, budget = directory / "checkpoint", request.budgets[step.rung]
        stop = directory / "stop"
        with suppress(OSError):
            checkpoint.mkdir(parents=True, exist_ok=True)
            stop.unlink(missing_ok=True)
        own = {
            "budget": str(budget),
            "checkpoint": str(checkpoint),
            "directory": str(directory),
            "trial": str(trial.number),
        }
        variables = {f"STACKYARD_{name.upper()}": value for name, value in own.items()}
        variables |= {"STACKYARD_STOP": str(stop), "STACKYARD_RESOURCE": request.resource}
        if request.pass_as == "variables":
            variables |= {name: str(value) for name, value in trial.params.items()}
        words = words_of(request, trial.params, own)
        return {
            "id": list(step), "words": jobs.runnable(words), "typed": words, "env": variables, "cwd": request.job.cwd,
            "directory": str(directory), "helper": str(self._study.paths.helper), "ranks": request.trial.ranks,
            "limit_s": request.trial.time_min * 60, "grace_s": request.trial.grace_s, "needle": self._reader.needle,
        }  # fmt: skip

    def _happened(self, places: Places, one: Happening) -> None:
        if one.slot.busy is None:
            return
        if one.kind == "line" and (report := self._reader.read(one.detail)):
            self._reported(places, one.slot, one.slot.busy, report)
        elif one.kind == "ended":
            if one.slot.leaving:
                self._interrupted(one.slot.busy)
            else:
                self._ended(one.slot.busy, one.detail)
            one.slot.busy = None
            self._give_up_if_hopeless()
        elif one.kind == "lost":
            if one.slot.leaving:
                self._interrupted(one.slot.busy)
            else:
                self._lost(one.slot.busy, f"lost its slot {one.slot.name}: {one.detail}")

    def _reported(self, places: Places, slot: Slot, work: Start, report: Report) -> None:
        """A value. That of a rung is the first one at or beyond its budget."""
        number, budget = work.trial, self._request.budgets[work.rung]
        resource = self._counts[number] + 1 if report.resource is None else report.resource
        self._counts[number] = max(resource, self._counts[number])
        if not math.isfinite(report.value):
            self._values[number] = (resource, math.nan)
            places.stop(slot)
            return
        before = self._values.get(number)
        if before is None or not (math.isnan(before[1]) or (budget and before[0] >= budget)):
            is_new = self._request.take == "last" or bool(budget) or before is None
            if is_new or order(self._request.better, report.value, 0) < order(self._request.better, before[1], 0):  # type: ignore[index]
                self._values[number] = (resource, report.value)
        if resource not in self._progress.trials[number].reports:
            now = time.monotonic()
            is_late = now > self._synced + SYNC_S
            self._synced = now if is_late else self._synced
            self._write(
                {"event": "report", "trial": number, "resource": resource, "value": report.value}, synced=is_late
            )
        if budget and resource >= budget and not slot.told:
            places.tell(slot)

    def _hurry(self, places: Places) -> None:
        """Stop programs that have reached their budget and go on all the same."""
        for slot in places.slots:
            if slot.busy and slot.told and time.monotonic() > slot.told + STOPS_S:
                places.stop(slot)
                slot.told = math.inf

    def _ended(self, work: Start, detail: dict[str, Any]) -> None:
        number, budget = work.trial, self._request.budgets[work.rung]
        resource, value = self._values.pop(number, (0, None))
        if value is None and not detail.get("code"):
            resource, value = self._logged(number, budget)
        code, message, state = detail.get("code"), str(detail.get("message", "")), "done"
        if value is not None and math.isnan(value):
            state, value, message = (
                "no-value",
                None,
                f"{self._request.metric.name} is not a finite number at {resource}",
            )
        elif budget and resource >= budget and value is not None:
            message = ""  # it has what was asked of it, however it ended
        elif detail.get("timed_out"):
            state, message = "timeout", f"it took longer than {self._request.trial.time_min:g} min"
        elif code:
            last = f": {detail['last']}" if detail.get("last") else ""
            state, message = "failed", message or f"{_ending(code)}{last}"
        elif value is None:
            state, message = "no-value", f"{self._request.metric.name} is not in its output"
        event = _ended(self._progress.trials[number], state, message)
        seconds = float(detail.get("seconds", 0))
        self._write({**event, "value": value if state == "done" else None, "seconds": seconds, "code": code})

    def _logged(self, number: int, budget: int) -> tuple[int, float | None]:
        """What the log has of a trial that reported nothing: killed after its last report, it had no more to do."""
        found: list[Report] = []
        with suppress(OSError):
            needle = re.compile(self._reader.needle.encode())
            for line in lines(self._study.paths.trial(number) / "log", ended=True):
                if needle.search(line) and (report := self._reader.read(line.decode("utf-8", "replace"))):
                    found.append(report)
        enough = [one for one in found if budget and one.resource is not None and one.resource >= budget]
        last = next(iter(enough or found[-1:]), Report(0, math.nan))
        return (last.resource or 0, last.value) if math.isfinite(last.value) else (0, None)

    def _interrupted(self, work: Start) -> None:
        """A trial that was ended with its step goes on from its checkpoint, unless it had reached its budget."""
        resource, budget = self._values.get(work.trial, (0, 0.0))[0], self._request.budgets[work.rung]
        if budget and resource >= budget:
            self._ended(work, {"seconds": time.time() - self._progress.trials[work.trial].started})
            return
        self._values.pop(work.trial, None)
        self._write(_ended(self._progress.trials[work.trial], "interrupted", "its step has ended"))

    def _lost(self, work: Start, why: str) -> None:
        """A trial whose slot is gone goes on elsewhere; one that takes its slots with it has failed."""
        trial = self._progress.trials[work.trial]
        self._values.pop(work.trial, None)
        is_its = trial.losses + 1 >= MOST_LOSSES
        state, why = ("failed", f"{why}; for the {MOST_LOSSES}rd time") if is_its else ("interrupted", why)
        self._write({**_ended(trial, state, why), "lost": True})

    def _leave(self, places: Places) -> None:
        """Stop what runs, so that it can write a checkpoint, and record that it is interrupted."""
        for slot in places.slots:
            if slot.busy:
                places.stop(slot)
        until = time.monotonic() + self._request.trial.grace_s + 2
        while any(slot.busy for slot in places.slots) and time.monotonic() < until and not places.over:
            for one in places.happenings(LOOK_S):
                if one.kind in ("ended", "lost") and one.slot.busy:
                    one.slot.busy = None
        with suppress(StackyardError):  # the disk is full: the next one sees that they did not end
            self._write(*(_ended(trial, "interrupted", "the search stopped") for trial in self._progress.running))

    def _give_up_if_hopeless(self) -> None:
        """Stop a search whose first trials all have no value: the program is wrong, or the metric."""
        limit, ended = self._request.give_up_after, [t for t in self._progress.trials.values() if t.results]
        if not limit or len(ended) < min(limit, self._request.count) or any(trial.value is not None for trial in ended):
            return
        last = ended[-1].last
        log = self._study.paths.trial(ended[-1].number) / "log"
        raise HopelessSearch(
            f"the first {counted(len(ended), 'trial')} ended without a value: {last.message if last else ''}",
            hint=f"see {log}; then continue with --retry-failed, or set give_up_after: 0",
        )

    def _write(self, *events: Event, synced: bool = True) -> None:
        if events:
            self._journal.append(events, synced=synced)
        for event in events:
            self._progress.apply(event)
            self._watcher.event(event, self._progress)


def _ended(trial: TrialProgress, state: str, message: str) -> Event:
    return {"event": "ended", "trial": trial.number, "rung": max(trial.running, 0), "state": state, "value": None,
            "seconds": round(max(0.0, time.time() - trial.started), 3) if trial.running >= 0 else 0,
            "message": message[:500]}  # fmt: skip


def _ending(code: int) -> str:
    return f"killed by signal {-code}" if code < 0 else f"exited with status {code}"
