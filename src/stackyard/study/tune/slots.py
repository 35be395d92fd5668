"""The slots of an allocation, as the search sees them: a launch of one worker for each, and their connections.

The launch is an ordinary one. It places workers, binds them to cores and GPUs, notices a lost node, and starts the
workers of the others again (`restarts`). A worker that has proved that it belongs to this search is a slot.
"""

from __future__ import annotations

import secrets
import selectors
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

from stackyard.core.errors import StackyardError
from stackyard.launch.api import jobs, runs, workers
from stackyard.launch.api.jobs import Intent, Job, LocalLaunch
from stackyard.study.tune.programs import worker
from stackyard.study.tune.request import SearchRequest
from stackyard.study.tune.rungs import Start
from stackyard.study.tune.store import StoredSearch
from stackyard.yard.write import atomic

HELLO_S, MOST_STRANGERS = 10.0, 64
RESTARTS = 1000
"""Of the workers' step, after a lost node: each needs a node that is left."""


@dataclass
class Slot:
    """A place for a trial.

    Attributes:
        busy: what runs there.
        told: when it was told that it may stop.
        leaving: its step ends: what runs there is interrupted.
    """

    name: str
    host: str
    connection: Any = None
    since: float = 0
    busy: Start | None = None
    told: float = 0
    leaving: bool = False

    def send(self, **message: Any) -> None:
        """Tell the worker something."""
        self.connection.send(message)


@dataclass(frozen=True)
class Happening:
    """What happened in a slot: ``joined``, ``line``, ``ended`` or ``lost``; `over`: the whole step has ended."""

    kind: str
    slot: Slot
    detail: Any = None


class Places(Protocol):
    """Where trials run."""

    slots: list[Slot]

    def start(self, slot: Slot, work: Start, order: dict[str, Any]) -> None:
        """Start a trial in a free slot."""

    def tell(self, slot: Slot) -> None:
        """Let the program in a slot know that it may stop."""

    def stop(self, slot: Slot) -> None:
        """End the program in a slot: SIGTERM, and SIGKILL after its grace."""

    def happenings(self, limit_s: float) -> Iterator[Happening]:
        """What has happened; waits at most so long for something."""

    @property
    def over(self) -> str:
        """Why nothing can run here any more; empty while it can."""

    def close(self) -> None:
        """End everything."""


def worker_intent(request: SearchRequest, program: tuple[str, ...], nodes: int) -> Intent:
    """The request of a step with one worker for each slot of its nodes."""
    trial, own = request.trial, request.job
    changes: dict[str, Any] = {
        "program": program, "nodes": nodes, "least_nodes": 1, "restarts": RESTARTS if nodes > 1 else own.restarts,
        "backend": "any", "gpu_visibility": "own", "straddle": True, "world_check": False, "logs": "all", "hang_min": 0,
        "grace_s": max(own.grace_s or 0, trial.grace_s + 5),
    }  # fmt: skip
    if trial.gpus is not None:
        changes["gpus_per_rank"] = trial.gpus
    if trial.cores:
        changes["cores_per_rank"] = trial.cores
    if request.slots:
        changes["ranks_per_node"] = request.slots
    return own.model_copy(update=changes)


def sized(request: SearchRequest, job: Job, *, head: bool = False) -> Job:
    """The job with as many workers on each node as fit, where that is not asked.

    Args:
        head: it is a batch job, whose nodes are not known yet.

    Raises:
        InputError: they do not fit: more cores or GPUs than a node has.
    """
    if request.slots:
        return job
    one = job.intent.model_copy(update={"ranks_per_node": 1, "cores_per_rank": 1, "gpus_per_rank": 0})
    node = replace(job, intent=one).plan(head=head).layout.node
    gpus = request.trial.gpus
    gpus = (1 if node.gpus else 0) if gpus is None else gpus
    each = request.trial.cores or (0 if gpus else 1)
    fit = max(1, min(([node.gpus // gpus] if gpus else []) + ([node.cores // each] if each else [])))
    changes = {"ranks_per_node": fit, "gpus_per_rank": gpus, "cores_per_rank": each or max(1, node.cores // fit)}
    return replace(job, intent=job.intent.model_copy(update=changes))


class WorkerSlots:
    """`Places` for trials of one node: each worker of one step is a slot."""

    def __init__(self, study: StoredSearch, nodes: int) -> None:
        """Listen, and launch the workers.

        Raises:
            InputError, MissingError: the step cannot be planned.
            StackyardError: it cannot be started.
        """
        self.slots: list[Slot] = []
        self._selector = selectors.DefaultSelector()
        self._strangers: dict[Any, float] = {}
        self._secret = secrets.token_hex(32)
        allocation = jobs.allocation_of(study.workspace)
        interface = study.workspace.site.launch.interface
        listening = workers.offered(workers.addresses(), interface) if allocation else ["127.0.0.1"]
        try:
            port, self._sockets = workers.listen(listening, 128)
        except OSError as error:
            raise StackyardError(f"cannot listen for workers: {(error.strerror or str(error)).lower()}") from error
        for one in self._sockets:
            self._selector.register(one, selectors.EVENT_READ, None)
        targets = ",".join(f"[{one}]:{port}" if ":" in one else f"{one}:{port}" for one in listening)
        self._launch = LocalLaunch(jobs.record_launch(self._job(study, nodes, targets)))

    def _job(self, study: StoredSearch, nodes: int, targets: str) -> Job:
        atomic.write_text(study.paths.worker, workers.program_text(Path(worker.__file__)), mode=0o600)
        intent = worker_intent(study.request, program_of(study), nodes)
        own = {worker.SEARCH: targets, worker.SECRET: self._secret}
        return planned_workers(study, intent.model_copy(update=jobs.with_variables(intent, own, ())))

    def start(self, slot: Slot, work: Start, order: dict[str, Any]) -> None:
        """Start a trial in a free slot."""
        slot.busy, slot.told = work, 0
        slot.send(run=order)

    def tell(self, slot: Slot) -> None:
        """Let the program know by the file that its helper looks for."""
        slot.told = slot.told or time.monotonic()
        slot.send(tell=True)

    def stop(self, slot: Slot) -> None:
        """End the program in a slot."""
        slot.send(stop=True)

    def happenings(self, limit_s: float) -> Iterator[Happening]:
        """What the workers say."""
        for key, _ in self._selector.select(limit_s):
            if key.data is None:
                self._accept(key.fileobj)
            else:
                yield from self._heard(key.data)
        for slot in [one for one in self.slots if one.connection.waiting]:
            slot.connection.flush()
        for stranger in [one for one, since in self._strangers.items() if time.monotonic() > since + HELLO_S]:
            self._forget(stranger)

    def _accept(self, listening: Any) -> None:
        try:
            for stream, _ in workers.accept(listening):
                connection = workers.Connection(stream)
                connection.demand(workers.Host(self._secret))
                self._strangers[connection] = time.monotonic()
                self._selector.register(stream, selectors.EVENT_READ, connection)
                if len(self._strangers) > MOST_STRANGERS + len(self.slots):
                    self._forget(next(iter(self._strangers)))
        except OSError:
            return

    def _heard(self, connection: Any) -> Iterator[Happening]:
        messages = connection.receive()
        slot = next((one for one in self.slots if one.connection is connection), None)
        for message in messages or ():
            if not connection.proved:
                if not connection.prove(message):
                    self._forget(connection)
                    return
            elif slot is None and isinstance(hello := message.get("hello"), dict):
                self._strangers.pop(connection, None)
                slot = Slot(f"{hello['host']}/{hello['local']}", str(hello["host"]), connection, time.monotonic())
                yield from self._replaced(slot)
                self.slots.append(slot)
                yield Happening("joined", slot)
            elif slot is not None and "leaving" in message:
                slot.leaving = True
            elif slot is not None and slot.busy and message.get("id") == list(slot.busy):
                if "line" in message:
                    yield Happening("line", slot, str(message["line"]))
                elif isinstance(ended := message.get("ended"), dict):
                    yield Happening("ended", slot, ended)
        if messages is None:
            self._forget(connection)
            if slot is not None:
                self.slots.remove(slot)
                yield Happening("lost", slot, connection.why)

    def _replaced(self, fresh: Slot) -> Iterator[Happening]:
        """Those that had the place of a new worker before, and whose end was not heard of."""
        for old in [one for one in self.slots if one.name == fresh.name]:
            self._forget(old.connection)
            self.slots.remove(old)
            yield Happening("lost", old, "its worker was started again")

    def _forget(self, connection: Any) -> None:
        self._strangers.pop(connection, None)
        self._selector.unregister(connection.socket)
        connection.close()

    @property
    def over(self) -> str:
        """Why the step has ended."""
        status = runs.read_status(self._launch.run.paths)
        if not status.over:
            return ""
        return status.message or str(status.first.get("message", "")) or f"the workers' step is {status.state}"

    def close(self) -> None:
        """End the workers, and wait for the end of their step."""
        for slot in self.slots:
            slot.send(end=True)
            slot.connection.finish(5)
        if not self.slots:
            self._launch.interrupt()
        self._launch.wait()
        for one in [*self._sockets, *(slot.connection for slot in self.slots)]:
            one.close()
        self._selector.close()


def program_of(study: StoredSearch) -> tuple[str, ...]:
    """The words that start a worker: by the Python of the stack, else by this one, which the nodes have too."""
    own = study.request.job
    python = "python" if own.stack or own.container else sys.executable
    return (python, str(study.paths.worker))


def planned_workers(study: StoredSearch, intent: Intent) -> Job:
    """The job of the workers' step in this allocation, or on this machine.

    Raises:
        InputError, MissingError: it cannot be planned.
    """
    place = replace(study.workspace, runs=study.paths.runs)
    return sized(study.request, jobs.launch_job(place, intent))
