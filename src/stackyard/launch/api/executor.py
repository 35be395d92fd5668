"""`Executor`: an executor of `concurrent.futures` whose tasks are jobs; ``stackyard.Executor`` is this class.

with stackyard.Executor(time_min=30, gpus_per_rank=1) as executor:
    losses = list(executor.map(train, [0.1, 0.01, 0.001]))
"""

from __future__ import annotations

import concurrent.futures
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import chain, islice
from time import monotonic
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, ParamSpec, TypeVar, cast

from stackyard.core.errors import InputError
from stackyard.launch.api import jobs
from stackyard.launch.api.calls import warn, workspace_of
from stackyard.launch.api.handles import Run
from stackyard.launch.api.options import OptionFields, Path, as_call, intent_of
from stackyard.launch.api.tasks import Queue, Task, Watcher
from stackyard.launch.jobs.calling import Arguments, Call, check_python, pickled, record_call, results_of
from stackyard.launch.plan import schedulers
from stackyard.launch.plan.context import plan_context
from stackyard.launch.records.record import read_status

if TYPE_CHECKING:
    from typing_extensions import Self, Unpack

T = TypeVar("T")
P = ParamSpec("P")


class Future(concurrent.futures.Future[T]):
    """The result of a function that runs as a job; `concurrent.futures.wait` and `as_completed` take it as well.

    `result` returns the value of the first rank. It raises the exception of a rank, `RankFailed` for one that cannot be
    raised here, or `RunFailed` if the job ended without a result.
    """

    _task: Task

    @property
    def run(self) -> Run:
        """The run, with its state and logs. For a task of an array that has not started, the whole array."""
        return Run(self._task.paths.root)

    def results(self, timeout: float | None = None) -> list[T]:
        """The return values of all ranks, by rank; waits and raises as `result` does."""
        self.result(timeout)
        return list(self._task.every)

    def running(self) -> bool:
        """Whether the job runs now. The scheduler is not asked."""
        return not self.done() and read_status(self._task.paths).state == "running"

    def cancel(self) -> bool:
        """Cancel the job, even if it is running; False if it has ended.

        Raises:
            StackyardError: the scheduler did not cancel it.
        """
        if self.done():
            return self.cancelled()
        self._task.cancelling = True
        try:
            if not self._task.cancel() or not super().cancel():
                return self.cancelled()
        finally:
            self._task.cancelling = False
        self.set_running_or_notify_cancel()
        return True


class Executor(concurrent.futures.Executor):
    """Runs functions as jobs: of a scheduler, or here. Options are the keys of a job file; a job has one rank unless
    `nodes` or `ranks_per_node` are given.

    Leaving its ``with`` block waits for all jobs. KeyboardInterrupt leaves it at once: jobs here end, submitted ones
    go on.
    """

    def __init__(
        self,
        *,
        how: Literal["auto", "launch", "submit"] = "auto",
        python: str = "",
        max_at_once: int = 0,
        site: Path | None = None,
        yard: Path | None = None,
        **options: Unpack[OptionFields],
    ) -> None:
        """Set up without starting anything.

        Args:
            how: ``submit`` jobs, or ``launch`` them here, one after the other; ``auto``: launch them within an
                allocation and without a scheduler.
            python: the Python of the ranks; empty: this one, with `stack` or `container` the first on their PATH.
            max_at_once: tasks of an array that run at the same time; 0: no limit.
            site, yard: as ``--site`` and ``--yard``.
            options: the keys of a job file.

        Raises:
            TypeError: the name of an option is unknown.
            InputError: the value of an option is wrong.
        """
        self._place = workspace_of(site, yard)
        self._intent = intent_of((), options, **_one_rank(options))
        if self._intent.batch.array:
            raise InputError("array: an executor makes its own arrays", hint="use map or submit_each")
        foreign = bool(self._intent.stack or self._intent.container)
        self._python = python or ("python" if foreign else sys.executable)
        self._limit = max_at_once
        self._how = self._where() if how == "auto" else how
        self._tasks: list[Task] = []
        self._checked = self._closed = False
        self._worker: Queue | Watcher | None = None

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """Call a function on every rank of a new job.

        Raises:
            MissingError: cloudpickle is missing, here or in the Python of the ranks.
            InputError: the function cannot be sent, or the job cannot be planned; nothing is started then.
            CommandError: the scheduler rejected the job.
        """
        future: Future[T] = self._start(fn, [[(args, kwargs)]])[0]
        return future

    def submit_each(self, fn: Callable[..., T], *iterables: Iterable[Any]) -> list[Future[T]]:
        """Call a function with each of the items, as `map` does, and return the futures. Raises as `submit` does."""
        return self._start(fn, [[(items, {})] for items in zip(*iterables, strict=False)])

    def map(
        self, fn: Callable[..., T], *iterables: Iterable[Any], timeout: float | None = None, chunksize: int = 1
    ) -> Iterator[T]:
        """The results of a function for each of the items, in order: by one job array, or one job for each task.

        The jobs are started at once. An exception ends the iteration but not the other jobs.

        Args:
            timeout: seconds from now until TimeoutError.
            chunksize: items of each task.
        """
        if chunksize < 1:
            raise ValueError("chunksize must be at least 1")
        items = iter(zip(*iterables, strict=False))
        chunks = list(iter(lambda: [(call, dict[str, Any]()) for call in islice(items, chunksize)], []))
        futures = cast(list["Future[list[T]]"], self._start(fn, chunks, is_single=False))
        until = None if timeout is None else monotonic() + timeout
        waited = (future.result(None if until is None else max(0.0, until - monotonic())) for future in futures)
        return chain.from_iterable(waited)

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Accept no more functions.

        Args:
            wait: return when all jobs have ended.
            cancel_futures: cancel all jobs that have not ended.
        """
        self._closed = True
        if cancel_futures:
            self._cancel_all()
        if self._worker:
            self._worker.close()
            if wait:
                self._worker.join()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        left = kind is not None and issubclass(kind, KeyboardInterrupt)
        self.shutdown(wait=not left or self._how == "launch", cancel_futures=left and self._how == "launch")

    def _where(self) -> Literal["launch", "submit"]:
        context = plan_context(self._place.site, self._place.environ, launcher=self._intent.launcher)
        return "submit" if context.scheduler != "none" and context.allocation is None else "launch"

    def _start(self, fn: Callable[..., Any], tasks: Sequence[list[Arguments]], *, is_single: bool = True) -> list[Any]:
        """Start one job array for all tasks if possible, else one job for each; returns their futures."""
        if self._closed:
            raise RuntimeError("cannot schedule new futures after shutdown")
        if not tasks:
            return []
        call = pickled(fn, tasks, self._place.environ)
        if len(tasks) > 1 and self._how == "submit" and self._has_arrays():
            return self._submitted(call, len(tasks), is_single)
        calls = [Call(call.name, call.function, (arguments,), call.path) for arguments in call.arguments]
        return [future for one in calls for future in self._submitted(one, 0, is_single)]

    def _has_arrays(self) -> bool:
        name = plan_context(self._place.site, self._place.environ).scheduler
        return name != "none" and schedulers.get(name, self._place.site.scheduler).arrays

    def _submitted(self, call: Call, array: int, is_single: bool) -> list[Any]:
        """Submit one job, or record it and put it into this process's queue; returns a future for each of its tasks."""
        job = self._job(array)
        if not self._checked:
            check_python(job, self._python)
            self._checked = True
        recorded = record_call(job, call, self._how, python=self._python)
        warn(recorded, stacklevel=6)
        if self._how == "submit":
            jobs.submit(recorded)
        indices = [str(number) for number in range(1, array + 1)] or [""]
        futures = []
        for index in indices:
            future: Future[Any] = Future()
            future._task = Task(future, recorded, results_of(recorded.paths, index), index, is_single)
            futures.append(future)
        self._watch([future._task for future in futures])
        return futures

    def _job(self, array: int) -> jobs.Job:
        limit = f"%{self._limit}" if self._limit else ""
        batch = self._intent.batch.model_copy(update={"array": f"1-{array}{limit}" if array else ""})
        intent = self._intent.model_copy(update={"batch": batch})
        place = replace(self._place, argv=as_call("Executor", intent))
        return (jobs.batch_job if self._how == "submit" else jobs.launch_job)(place, intent)

    def _watch(self, tasks: list[Task]) -> None:
        self._tasks = [task for task in self._tasks if not task.future.done()] + tasks
        self._worker = self._worker or (Watcher() if self._how == "submit" else Queue())
        self._worker.add(tasks)

    def _cancel_all(self) -> None:
        """Cancel all jobs that have not ended."""
        for task in self._tasks:
            task.future.cancel()


def _one_rank(options: OptionFields) -> dict[str, Any]:
    """The options, with one rank using the whole node if the number of ranks is not given."""
    if options.get("nodes") or options.get("ranks_per_node"):
        return {}
    return {"ranks_per_node": 1, "straddle": True}
