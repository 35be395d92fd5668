"""Watches the jobs of an executor until each of their futures has its result."""

from __future__ import annotations

import concurrent.futures
import pickle
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stackyard.core.errors import InputError, StackyardError
from stackyard.launch.api.failures import RankFailed, RemoteTraceback, RunFailed
from stackyard.launch.api.handles import POLL_GROWTH, POLL_MOST_S, POLL_S, Run
from stackyard.launch.jobs.here import LocalLaunch
from stackyard.launch.jobs.recording import Run as Recorded
from stackyard.launch.records.arrays import task_paths
from stackyard.launch.records.follow import Watch
from stackyard.launch.records.paths import RunPaths
from stackyard.launch.records.record import RunStatus, read_status, write_status
from stackyard.launch.records.status import array_tasks, cancel, cancel_task, current_status, why_ended


def outcomes_in(directory: Path, attempt: int) -> list[dict[str, Any]]:
    """The results that the ranks of an attempt have stored, by rank; `stackyard.launch.node.call` writes them.

    An earlier attempt may have had more ranks, on more nodes.
    """
    outcomes = [pickle.loads(path.read_bytes()) for path in sorted(directory.glob("*.pkl"))]
    return [outcome for outcome in outcomes if outcome["attempt"] == attempt]


def is_complete(outcomes: Sequence[dict[str, Any]]) -> bool:
    """Whether every rank has returned."""
    return bool(outcomes) and len(outcomes) == outcomes[0]["ranks"] and all(outcome["ok"] for outcome in outcomes)


def values_of(outcomes: Sequence[dict[str, Any]]) -> list[list[Any]]:
    """The return values of each rank: a list of the results of its calls."""
    return [pickle.loads(outcome["values"]) for outcome in outcomes]


def failure_of(run: Run, status: RunStatus, outcomes: Sequence[dict[str, Any]]) -> BaseException:
    """Why a run has no results: the exception of the first rank that failed, else the end of the run."""
    raised = {outcome["rank"]: outcome for outcome in outcomes if not outcome["ok"]}
    if raised and status.state == "failed":
        first = (status.first or {}).get("task", -1)
        return raised_by(raised.get(first) or raised[min(raised)])
    if status.ended_well:
        have = {outcome["rank"] for outcome in outcomes}
        ranks = outcomes[0]["ranks"] if outcomes else 1
        missing = ", ".join(str(rank) for rank in range(ranks) if rank not in have)
        return RunFailed(run, status, f"rank {missing} exited with status 0 before the function returned")
    return RunFailed(run, status)


def raised_by(outcome: dict[str, Any]) -> BaseException:
    """The exception of a rank, with its traceback as the cause."""
    rank, host, text = outcome["rank"], outcome["host"], outcome["text"]
    with suppress(Exception):
        error = pickle.loads(outcome["error"])
        if isinstance(error, Exception):
            error.__cause__ = RemoteTraceback(rank, host, text)
            return error
    kind = outcome["kind"]
    message = f"{kind}: {outcome['message']}" if kind else outcome["message"]
    return RankFailed(message, rank=rank, host=host, kind=kind, text=text, hint=outcome["hint"] or None)


LOOKS_PER_S = 200
"""Files looked at in a second at most, on average."""
ASK_S = 1.0
"""Seconds at least between two queries of the scheduler, for all jobs of an executor together."""
VISIBLE_S = 10.0
"""How long after the end of a job its results may take to be seen here, on a shared file system."""


@dataclass(eq=False)
class Task:
    """One future, and the place of its ranks' results.

    Attributes:
        index: the index in an array; empty for a separate job.
        is_single: the future is for the single call of the task, not for a list of calls.
        every: the return values of each rank, once the future is done.
        ended: when the end of the task was first seen.
        cancelling: `Future.cancel` is running: the end of the job meanwhile does not count as a failure.
    """

    future: concurrent.futures.Future[Any]
    recorded: Recorded
    results: Path
    index: str = ""
    is_single: bool = True
    every: Sequence[Any] = ()
    ended: float = 0
    cancelling: bool = False
    here: LocalLaunch | None = None

    @property
    def paths(self) -> RunPaths:
        """The run's paths; for an array those of this task, once it has started."""
        own = task_paths(self.recorded.paths, self.index) if self.index else self.recorded.paths
        return own if own.record.exists() else self.recorded.paths

    def settle(self, status: RunStatus) -> bool:
        """Set the future's result after the job has ended; False to try again later."""
        if self.future.done():
            return True
        if self.cancelling and not status.ended_well:
            return False
        self.ended = self.ended or time.monotonic()
        outcomes = outcomes_in(self.results, status.attempts)
        if status.ended_well and not is_complete(outcomes) and time.monotonic() < self.ended + VISIBLE_S:
            return False
        with suppress(concurrent.futures.InvalidStateError):  # cancelled in this moment
            if status.ended_well and is_complete(outcomes):
                values = values_of(outcomes)
                self.every = [value[0] for value in values] if self.is_single else values
                self.future.set_result(self.every[0])
            else:
                self.future.set_exception(failure_of(Run(self.paths.root), status, outcomes))
        return True

    def fail(self, error: BaseException) -> None:
        """Set an exception as the future's result."""
        with suppress(concurrent.futures.InvalidStateError):
            self.future.set_exception(error)

    def cancel(self) -> bool:
        """Cancel the job; False if it has ended."""
        if self.here:
            self.here.interrupt()
        elif self.index:
            cancel_task(self.recorded.paths, self.index)
        elif read_status(self.recorded.paths).job:
            try:
                cancel(self.recorded.paths)
            except InputError:
                return False
        return True


class _Worker:
    """A thread that works until it is closed and all work is done."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._closed = False
        self._thread = threading.Thread(target=self._work, name="executor", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Accept no more work."""
        with self._changed:
            self._closed = True
            self._changed.notify()

    def join(self) -> None:
        """Wait until all threads have ended."""
        self._thread.join()

    def _work(self) -> None:
        raise NotImplementedError


class Queue(_Worker):
    """Jobs that run here, one after the other."""

    def __init__(self) -> None:
        self._waiting: list[Task] = []
        super().__init__()

    def add(self, tasks: Sequence[Task]) -> None:
        """Run these tasks after the earlier ones."""
        with self._changed:
            self._waiting += tasks
            self._changed.notify()

    def _work(self) -> None:
        while True:
            with self._changed:
                while not (self._waiting or self._closed):
                    self._changed.wait()
                if not self._waiting:
                    return
                task = self._waiting.pop(0)
            self._run(task)

    @staticmethod
    def _run(task: Task) -> None:
        try:
            if task.future.cancelled():
                write_status(task.recorded.paths, RunStatus(state="cancelled", message="cancelled before its start"))
                return
            task.here = LocalLaunch(task.recorded)
            if task.future.cancelled():  # in this moment
                task.here.interrupt()
            task.here.wait()
            while not task.settle(read_status(task.recorded.paths)):
                time.sleep(POLL_S)
        except BaseException as error:  # those who wait for the future must learn of it
            task.fail(error)


class Watcher(_Worker):
    """Jobs in a scheduler's queue. Their files are checked often, the scheduler is queried seldom."""

    def __init__(self) -> None:
        self._jobs: list[tuple[Watch, list[Task]]] = []
        self._asked = 0.0
        self._pause = POLL_S
        super().__init__()

    def add(self, tasks: Sequence[Task]) -> None:
        """Add the tasks of one submitted job."""
        with self._changed:
            self._jobs.append((Watch(tasks[0].recorded.paths), list(tasks)))
            self._pause = POLL_S
            self._changed.notify()

    def _work(self) -> None:
        while True:
            with self._changed:
                while not (self._jobs or self._closed):
                    self._changed.wait()
                if not self._jobs:
                    return
                jobs = list(self._jobs)
            ended = [job for job in jobs if self._has_ended(*job)]
            with self._changed:
                self._jobs = [job for job in self._jobs if job not in ended]
                least = sum(len(tasks) for _, tasks in jobs) / LOOKS_PER_S
                self._pause = POLL_S if ended else min(self._pause * POLL_GROWTH, POLL_MOST_S)
                if self._jobs:
                    self._changed.wait(max(self._pause, least))

    def _has_ended(self, watch: Watch, tasks: list[Task]) -> bool:
        try:
            return self._look(watch, tasks)
        except (OSError, StackyardError):  # a file system or a scheduler that does not answer now
            return False
        except BaseException as error:
            for task in tasks:
                task.fail(error)
            return True

    def _look(self, watch: Watch, tasks: list[Task]) -> bool:
        """Settle ended tasks; whether all tasks of the job have ended."""
        now = time.monotonic()
        ask = now - self._asked >= ASK_S and watch.due()
        self._asked = now if ask else self._asked
        if not tasks[0].index:
            status = current_status(watch.paths, ask=ask)
            return status.over and tasks[0].settle(_explained(tasks[0], status))
        states = array_tasks(watch.paths, ask=ask)
        over = [task.settle(_explained(task, states[task.index])) for task in tasks if states[task.index].over]
        if len(over) < len(tasks) or not all(over):
            return False
        current_status(watch.paths)  # which records the end of the whole
        return True


def _explained(task: Task, status: RunStatus) -> RunStatus:
    """The status with the scheduler's reason, unless the end was requested."""
    if task.future.done() or status.state != "cancelled" or not task.paths.record.exists():
        return status
    return why_ended(task.paths, status)
