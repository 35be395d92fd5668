"""The one process that carries a study out: it submits its jobs and follows them, or runs them here.

It may be killed at any moment. `--continue` looks at what there is: a job that waits or runs is followed, one that was
given up before its submission is withdrawn, so that it runs nothing should the scheduler start it after all.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from itertools import chain
from pathlib import Path

from stackyard.core.errors import InputError, StackyardError
from stackyard.launch.api import commands, jobs, runs
from stackyard.launch.api.jobs import Job, RunPaths, Workspace
from stackyard.study import more, store, variants
from stackyard.study.directory import only_process
from stackyard.study.execute import Study, place_of, run_job, settle
from stackyard.study.request import StudyRequest
from stackyard.study.schedule import JobPlan
from stackyard.study.store import PointRecord
from stackyard.yard.write import atomic

LOOK_S, ASK_S = 1.0, 10.0
"""Seconds between looks at the files of a study; and at least between two questions to the scheduler."""
MARGIN_MIN = 2.0
"""Minutes of a job's time limit besides those of its runs."""


class Watcher:
    """Is told what happens in a study."""

    def submitted(self, job: JobPlan, name: str) -> None:
        """A job was submitted; `name` is the scheduler's."""

    def refused(self, job: JobPlan, error: StackyardError) -> None:
        """The scheduler refused a job."""

    def job_ended(self, job: JobPlan, state: str, message: str) -> None:
        """A job ended without having run all of its points."""

    def point(self, record: PointRecord) -> None:
        """A run has ended."""

    def waiting(self, sentence: str) -> None:
        """What is waited for."""


@contextmanager
def in_control(study: Study, watcher: Watcher) -> Iterator[None]:
    """Be the one process that starts runs of this study. A holder that may have died elsewhere is waited for.

    Raises:
        StackyardError: another process is, on this host or another one.
    """
    root = study.paths.root
    with only_process(study.paths.lease, f"the study {root}", f"{root} is being measured", watcher.waiting):
        try:
            yield
        finally:
            store.write_table(study.paths)


def run_here(study: Study, watcher: Watcher) -> None:
    """Run all that is missing on this machine, or in this allocation.

    Raises:
        InputError, MissingError: a run cannot be planned.
        StackyardError: a record cannot be written; or as for `in_control`.
    """
    with in_control(study, watcher):
        place = place_of(study)
        for job in chain.from_iterable(_growing(study, watcher)):
            if not run_job(study, job, place, watcher.point):
                watcher.job_ended(job, "interrupted", "")
                return


def run_inside(study: Study, name: str, attempt: int, watcher: Watcher) -> bool:
    """Run one job of the study in its allocation, as the batch script asks; whether all of it was run.

    Raises:
        InputError: no such job.
    """
    found = next((job for job in store.read_jobs(study.paths) if job.id == name), None)
    if found is None:
        raise InputError(f"{study.paths.root} has no job {name}")
    place = place_of(study)
    if store.begin(study.paths.jobs / name / str(attempt), place):
        return run_job(study, found, place, watcher.point)
    watcher.waiting(f"attempt {attempt} of {name} was begun before, or withdrawn: nothing is run")
    return True


def run_jobs(study: Study, watcher: Watcher) -> None:
    """Submit what is missing as batch jobs, and follow them to their end.

    Raises:
        StackyardError: as for `in_control`, or the file system failed.
    """
    with in_control(study, watcher):
        _Follower(study, watcher).run()


def _growing(study: Study, watcher: Watcher) -> Iterator[list[JobPlan]]:
    """The jobs of the study, then, as often as results call for them, those that `until_percent` adds."""
    fresh = store.read_jobs(study.paths)
    while fresh:
        yield fresh
        fresh = more.jobs(study, watcher.waiting)


class _Follower:
    """Submits the jobs of a study and follows them."""

    def __init__(self, study: Study, watcher: Watcher) -> None:
        self._study, self._watcher = study, watcher
        self._active: list[tuple[JobPlan, RunPaths]] = []
        self._told: dict[str, str] = {}
        self._asked = 0.0
        self._turn = 0

    def run(self) -> None:
        """Until all jobs have ended."""
        for fresh in _growing(self._study, self._watcher):
            for job in fresh:
                self._start(job)
            while self._active:
                self._active = [each for each in self._active if not self._has_ended(*each)]
                time.sleep(LOOK_S if self._active else 0)

    def _start(self, job: JobPlan) -> None:
        """Follow the job if it is in the queue, else submit it if runs are missing."""
        study = self._study
        self._told |= {point.id: _mark(study.record(point)) for point in job.points}
        if (going := self._going_on(job)) is not None:
            self._active.append((job, going))
            return
        for point in job.points:
            settle(study, study.record(point))
        if not study.is_complete(job):
            self._submit(job)

    def _going_on(self, job: JobPlan) -> RunPaths | None:
        """The run of an attempt that waits or runs; one that was never submitted is withdrawn."""
        attempts = self._study.paths.attempts(job.id)
        if not attempts:
            return None
        paths = _run_of(attempts[-1], self._study)
        status = runs.current_status(paths) if paths else None
        if status is not None and status.over:
            return None
        if status is None or not status.job:  # killed before the submission, or in it
            if store.begin(attempts[-1], store.WITHDRAWN):
                return None
            status = runs.current_status(paths) if paths else None
        return paths if status is not None and not status.over else None

    def _submit(self, job: JobPlan) -> None:
        study = self._study
        attempt = store.new_attempt(study.paths, job)
        try:
            planned = batch_job_of(study.request, replace(study.workspace, runs=study.paths.runs), job)
            words = words_inside(study.paths.root, job, attempt.name, again=study.again)
            run = commands.record_command(planned, words)
            atomic.write_text(attempt / "run", f"{run.paths.root.relative_to(study.paths.root)}\n")
            number = jobs.submit(run)
        except StackyardError as error:
            store.begin(attempt, store.WITHDRAWN)
            self._watcher.refused(job, error)
            return
        self._active.append((job, run.paths))
        self._watcher.submitted(job, number)

    def _report_of(self, job: JobPlan) -> None:
        for point in job.points:
            record = self._study.record(point)
            if record.state not in ("missing", "running") and self._told.get(point.id) != _mark(record):
                self._told[point.id] = _mark(record)
                self._watcher.point(record)

    def _has_ended(self, job: JobPlan, paths: RunPaths) -> bool:
        status = runs.current_status(paths, ask=self._may_ask(job))
        if status.state == "queued":  # none of its records has changed
            return False
        self._report_of(job)
        if not status.over:
            return False
        for point in job.points:
            settle(self._study, self._study.record(point))
        self._report_of(job)
        if not self._study.is_complete(job):
            self._watcher.job_ended(job, status.state, status.message)
        return True

    def _may_ask(self, job: JobPlan) -> bool:
        """Whether the scheduler may be asked about this job now: one job every `ASK_S`, in turn."""
        if time.monotonic() < self._asked + ASK_S or job is not self._active[self._turn % len(self._active)][0]:
            return False
        self._asked = time.monotonic()
        self._turn += 1
        return True


def _mark(record: PointRecord) -> str:
    return f"{record.state} {len(record.attempts)}"


def _run_of(attempt: Path, study: Study) -> RunPaths | None:
    try:
        return RunPaths(study.run_of(attempt.parent.name, int(attempt.name)))
    except InputError:
        return None


def words_inside(root: Path, job: JobPlan, attempt: str, *, again: bool = False) -> list[str]:
    """The words after ``stackyard`` by which a batch job carries out an attempt of a job of a study."""
    words = ["bench", "--inside", str(root), "--job-of-study", f"{job.id}/{attempt}"]
    return [*words, "--retry-failed"] if again else words


def time_limit_min(request: StudyRequest, job: JobPlan) -> float:
    """The time limit of a job in minutes: those of its runs and a margin; 0: none was given."""
    each = request.job.batch.time_min
    return each * len(job.points) + MARGIN_MIN if each else 0


def batch_job_of(request: StudyRequest, workspace: Workspace, job: JobPlan) -> Job:
    """The batch job in which the runs of a job are carried out.

    It is that of the variant which needs the most GPUs, then the most cores of a node; the others run within it.

    Raises:
        InputError, MissingError: it cannot be planned.
    """
    batch, found = request.job.batch, []
    changes = {
        "time_min": time_limit_min(request, job),
        "exclusive": True if batch.exclusive is None else batch.exclusive,
        "name": batch.name or f"bench-{job.id}",
    }
    for name in dict.fromkeys(point.variant for point in job.points):
        intent = variants.intent_of(request, name, job.nodes, workspace.environ)
        intent = intent.model_copy(update={"batch": batch.model_copy(update=changes)})
        found.append(jobs.batch_job(workspace, intent))
    return found[0] if len(found) == 1 else max(found, key=_demand)


def _demand(job: Job) -> tuple[float, int]:
    """What it needs of a node: GPUs and cores."""
    layout = job.plan(head=True).layout
    return layout.ranks_per_node * layout.gpus_per_rank, layout.ranks_per_node * layout.cores_per_rank
