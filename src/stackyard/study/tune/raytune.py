"""A search by a program that is written for Ray Tune: it is run on Ray, and its trials are read into the journal.

Ray decides here. What is ours is the table: Ray's files of each trial (``params.json``, ``result.json``) are read as
they grow, so that every result is kept once, whatever Ray restores (Ray Tune does not restore the rungs of ASHA).
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from stackyard.core.errors import StackyardError
from stackyard.host.files import at
from stackyard.launch.api import jobs, runs
from stackyard.launch.api.jobs import Intent, Job, LocalLaunch
from stackyard.study.metrics.formats import inner
from stackyard.study.tune.journal import Event, JournalWriter
from stackyard.study.tune.progress import SearchProgress
from stackyard.study.tune.request import SearchRequest
from stackyard.study.tune.sampling import require_parameters
from stackyard.study.tune.search import SearchWatcher, in_control
from stackyard.study.tune.store import StoredSearch

LOOK_S = 1.0
RESOURCE = "training_iteration"
"""The key by which Ray counts the reports of a trial."""


def ray_intent(request: SearchRequest, nodes: int, storage: Path) -> Intent:
    """The launch of the program: on Ray's nodes, with the directory for Ray's ``storage_path``."""
    own = request.job
    variables = {"STACKYARD_DIRECTORY": str(storage)}
    changes: dict[str, Any] = {"backend": "ray", "nodes": nodes, **jobs.with_variables(own, variables, ())}
    if request.trial.cores:
        changes["cores_per_rank"] = request.trial.cores
    if request.trial.gpus is not None:
        changes["gpus_per_rank"] = request.trial.gpus
    return own.model_copy(update=changes)


def ray_job(study: StoredSearch, nodes: int) -> Job:
    """That launch, in this allocation. Raises InputError, MissingError: it cannot be planned."""
    place = replace(study.workspace, runs=study.paths.runs)
    return jobs.launch_job(place, ray_intent(study.request, nodes, study.paths.ray))


def run_ray(study: StoredSearch, watcher: SearchWatcher, *, nodes: int, until: float) -> bool:
    """Run the program on Ray to its end; whether it ended well.

    Raises:
        InputError, MissingError: it cannot be planned.
        StackyardError: it failed, or the journal cannot be written; or as for `in_control`.
    """
    with in_control(study, watcher) as journal:
        trials = _Trials(study, watcher, journal)
        if trials.progress.engine_done:
            return True
        trials.write(*trials.left("interrupted", "the search was stopped"))
        study.paths.ray.mkdir(exist_ok=True)
        launch = LocalLaunch(jobs.record_launch(ray_job(study, nodes)))
        try:
            while not (status := runs.read_status(launch.run.paths)).over and time.time() < until:
                trials.read()
                watcher.idle(trials.progress)
                time.sleep(LOOK_S)
        finally:
            launch.interrupt()
            launch.wait()
            trials.read()
        if status.ended_well:
            trials.write(*trials.left("done", ""), {"event": "engine", "state": "done"})
            return True
        trials.write(*trials.left("interrupted", "the allocation ended"))
        if not status.over:
            return False
        why = status.message or str(status.first.get("message", "")) or status.state
        raise StackyardError(f"the program has failed: {why}", hint=f"see {launch.run.paths.root}")


class _Trials:
    """Ray's trials in the journal."""

    def __init__(self, study: StoredSearch, watcher: SearchWatcher, journal: JournalWriter) -> None:
        self._study, self._watcher, self._journal = study, watcher, journal
        self.progress = SearchProgress(journal.events)
        self._numbers = {str(e.get("name", "")): e["trial"] for e in journal.events if e["event"] == "asked"}

    def read(self) -> None:
        """What Ray has written since."""
        for file in sorted(self._study.paths.ray.glob("*/*/result.json")):
            with suppress(OSError, ValueError, KeyError, TypeError):  # it is being written
                self.write(*self._of(file))

    def _of(self, file: Path) -> Iterator[Event]:
        name, request = str(file.parent.relative_to(self._study.paths.ray)), self._study.request
        number = self._numbers.get(name)
        if number is None:
            config = json.loads(at.read_regular(file.parent / "params.json"))
            number = self._numbers[name] = len(self._numbers)
            params = {key: config.get(key) for key in request.parameters}
            require_parameters(request, [params])
            yield {
                "event": "asked",
                "trial": number,
                "known": len(self._journal.events),
                "params": params,
                "name": name,
            }
        trial = self.progress.trials.get(number)
        if trial is None or (trial.running < 0 and not trial.results):
            yield {"event": "started", "trial": number, "rung": 0, "slot": "ray", "at": round(time.time(), 3)}
        seen = trial.reports if trial else {}
        for line in at.read_regular(file).split(b"\n")[:-1]:
            row = json.loads(line)
            value = inner(row, request.metric.key or request.metric.name)
            resource = inner(row, request.resource or RESOURCE)
            if value is not None and resource is not None and math.isfinite(value) and int(resource) not in seen:
                yield {"event": "report", "trial": number, "resource": int(resource), "value": value}

    def left(self, state: str, message: str) -> list[Event]:
        """The ends of the trials that have none: with their last value, or failed if Ray has kept an error."""
        names = {number: name for name, number in self._numbers.items()}
        found = []
        for trial in self.progress.running:
            failed = (self._study.paths.ray / names[trial.number] / "error.txt").exists()
            value = trial.reports[max(trial.reports)] if trial.reports and state == "done" and not failed else None
            own = state if state == "interrupted" else "failed" if failed else "done" if trial.reports else "no-value"
            found.append({"event": "ended", "trial": trial.number, "rung": 0, "state": own, "value": value,
                          "seconds": round(max(0.0, time.time() - trial.started), 3),
                          "message": "see error.txt" if failed else message})  # fmt: skip
        return found

    def write(self, *events: Event) -> None:
        """Append to the journal."""
        if events:
            self._journal.append(events, synced=any(event["event"] != "report" for event in events))
        for event in events:
            self.progress.apply(event)
            self._watcher.event(event, self.progress)
