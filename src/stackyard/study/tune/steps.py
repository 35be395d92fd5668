"""Trials of several nodes: each is a launch of its own, on a part of the hosts of the allocation."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

from stackyard.core.errors import InputError, StackyardError
from stackyard.host.files import at
from stackyard.launch.api import jobs, runs
from stackyard.launch.api.jobs import Job, LocalLaunch, Workspace
from stackyard.study.metrics.lines import LONGEST
from stackyard.study.tune.request import SearchRequest
from stackyard.study.tune.rungs import Start
from stackyard.study.tune.slots import Happening, Slot
from stackyard.study.tune.store import StoredSearch

LOOK_S = 0.2
BLOCK = 1 << 20
PROGRAMS = ("failed", "hung")
"""How a launch ends through its program, if a rank was the first to fail; all else is a loss."""


@dataclass
class _Step:
    """A running trial: its launch, and how far the log of its first rank was read."""

    launch: LocalLaunch
    limit_s: float
    offset: int = 0
    rest: bytes = b""
    started: float = 0
    timed_out: bool = False
    stopped: bool = False


class StepSlots:
    """`Places` for trials of several nodes: as many hosts together as a trial needs are a slot."""

    def __init__(self, study: StoredSearch, nodes: int) -> None:
        """Divide the hosts of the allocation.

        Raises:
            InputError: it has too few.
        """
        self._study, each = study, study.request.trial.nodes
        allocation = jobs.allocation_of(study.workspace)
        hosts = allocation.hosts[:nodes] if allocation else ()
        if len(hosts) < each:
            raise InputError(f"a trial needs {each} nodes, and there are {len(hosts) or 1}", hint=f"-N {each}, or more")
        groups = [hosts[first : first + each] for first in range(0, len(hosts) - each + 1, each)]
        self.slots = [Slot("+".join(group), group[0], group) for group in groups]
        self._steps: dict[str, _Step] = {}
        self._why = ""

    def start(self, slot: Slot, work: Start, order: dict[str, Any]) -> None:
        """Start a trial on the hosts of a slot."""
        slot.busy, slot.told = work, 0
        directory = self._study.paths.trial(work.trial)
        directory.mkdir(parents=True, exist_ok=True)
        place = replace(self._study.workspace, runs=self._study.paths.runs)
        search = [order["helper"], self._study.workspace.environ.get("PYTHONPATH", "")]
        variables = {**order["env"], "PYTHONPATH": os.pathsep.join(filter(None, search)), "PYTHONUNBUFFERED": "1"}
        job = step_job(self._study.request, place, tuple(order["typed"]), variables, slot.connection)
        run = jobs.record_launch(job)
        with suppress(OSError):
            (directory / f"log-{run.paths.name}").symlink_to(run.paths.main.rank_log(0))
        self._steps[slot.name] = _Step(LocalLaunch(run), order["limit_s"], started=time.monotonic())

    def tell(self, slot: Slot) -> None:
        """Let the program know by the file that its helper looks for."""
        slot.told = slot.told or time.monotonic()
        if slot.busy:
            with suppress(OSError):
                (self._study.paths.trial(slot.busy.trial) / "stop").touch()

    def stop(self, slot: Slot) -> None:
        """End the program in a slot."""
        if (step := self._steps.get(slot.name)) and not step.stopped:
            step.stopped = True
            step.launch.interrupt()

    def happenings(self, limit_s: float) -> Iterator[Happening]:
        """What the logs and the ends of the launches say."""
        time.sleep(min(limit_s, LOOK_S))
        for slot in list(self.slots):
            step = self._steps.get(slot.name)
            if step is None:
                continue
            status = runs.read_status(step.launch.run.paths)
            yield from (Happening("line", slot, line) for line in _lines(step, ended=status.over))
            if step.limit_s and time.monotonic() > step.started + step.limit_s and not step.stopped:
                step.timed_out = True
                self.stop(slot)
            if status.over:
                step.launch.wait()
                del self._steps[slot.name]
                yield self._end(slot, step, status)

    def _end(self, slot: Slot, step: _Step, status: runs.RunStatus) -> Happening:
        is_programs = status.ended_well or step.stopped or (status.state in PROGRAMS and status.first)
        why = status.message or str(status.first.get("message", "")) or status.state
        if not is_programs:
            self.slots.remove(slot)
            self._why = why
            return Happening("lost", slot, why)
        detail = {"code": 0 if status.ended_well else status.code or 1, "last": "" if status.ended_well else why,
                  "seconds": time.monotonic() - step.started, "timed_out": step.timed_out}  # fmt: skip
        return Happening("ended", slot, detail)

    @property
    def over(self) -> str:
        """Why no trial can run: all slots were lost."""
        return "" if self.slots else self._why

    def close(self) -> None:
        """End what runs."""
        for step in self._steps.values():
            step.launch.interrupt()
        for step in self._steps.values():
            step.launch.wait()


def step_job(
    request: SearchRequest, place: Workspace, words: tuple[str, ...], variables: dict[str, str], hosts: tuple[str, ...]
) -> Job:
    """The launch of a trial on these hosts; empty: on the first ones of the allocation.

    Raises:
        InputError, MissingError: it cannot be planned.
    """
    trial, own = request.trial, request.job
    changes: dict[str, Any] = {
        "program": words, "nodes": trial.nodes, "hosts": hosts, "least_nodes": 0, "ranks_per_node": trial.ranks,
        **jobs.with_variables(own, variables, ()),
    }  # fmt: skip
    if trial.gpus is not None:
        changes["gpus_per_rank"] = trial.gpus // trial.ranks
    if trial.cores:
        changes["cores_per_rank"] = max(1, trial.cores // trial.ranks)
    return jobs.launch_job(place, own.model_copy(update=changes))


def _lines(step: _Step, *, ended: bool) -> Iterator[str]:
    """The new lines of the first rank's log."""
    try:
        with at.open_regular(step.launch.run.paths.main.rank_log(0)) as stream:
            stream.seek(step.offset)
            data = stream.read(BLOCK)
    except (OSError, StackyardError):
        return
    step.offset += len(data)
    *whole, step.rest = (step.rest + data).split(b"\n")
    if ended and step.rest:
        whole, step.rest = [*whole, step.rest], b""
    yield from (line.decode("utf-8", "replace") for line in whole if len(line) <= LONGEST)
