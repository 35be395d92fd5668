"""Carries out the runs of one job of a study, one after the other: each an ordinary launch with a run directory.

A point's record names its run before the run starts. So a process that was killed at any moment is continued by
looking at that run: one that ended is measured, one that did not is started again.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from stackyard.core.errors import InputError, StackyardError
from stackyard.core.late import dataclass
from stackyard.host.files import at
from stackyard.host.run.identity import Identity, hostname
from stackyard.launch.api import jobs, runs
from stackyard.launch.api.jobs import Job, LocalLaunch, RunPaths, Workspace
from stackyard.launch.api.runs import RunStatus
from stackyard.study import store, variants
from stackyard.study.command import launch_words
from stackyard.study.metrics.read import read_run
from stackyard.study.request import StudyRequest
from stackyard.study.schedule import JobPlan, Point
from stackyard.study.store import About, Attempt, PointRecord, StudyPaths

FAILED = ("failed", "hung")
"""How a run ends through its program. All else (cancelled, a lost node, a time limit) is an interruption, and so is a
launch that failed without a rank that did: a full disk, a launcher that does not start."""

REPEATED = "`stackyard bench --continue DIR --retry-failed` repeats it without"
ENDS_S = 90.0
"""Seconds within which a run ends after the process that started it was killed."""


@dataclass(frozen=True)
class Study:
    """A study on disk, with the site and the shell that its runs start from."""

    paths: StudyPaths
    request: StudyRequest
    about: About
    workspace: Workspace
    again: bool = False
    """Whether what failed is tried once more."""

    def record(self, point: Point) -> PointRecord:
        """The record of a point."""
        return store.read_point(self.paths, point)

    @property
    def jobs(self) -> list[JobPlan]:
        """Its jobs so far."""
        return store.read_jobs(self.paths)

    def is_settled(self, point: Point) -> bool:
        """Whether a point needs no further run: warm-up runs alone are not repeated."""
        return point.warmup or self.record(point).is_settled(again=self.again)

    def is_complete(self, job: JobPlan) -> bool:
        """Whether all runs of a job are settled."""
        return all(map(self.is_settled, job.points))

    @property
    def is_all_settled(self) -> bool:
        """Whether nothing is left to run."""
        return all(map(self.is_complete, self.jobs))

    @property
    def is_done(self) -> bool:
        """Whether all runs that count have ended well."""
        return all(each.state == "done" for each in store.read_points(self.paths) if not each.point.warmup)

    @property
    def node_hours(self) -> float:
        """What was used so far: by its jobs that have ended, or by its runs where it has no jobs."""
        if self.about.how != "jobs":
            records = store.read_points(self.paths)
            return sum(r.point.nodes * a.seconds for r in records for a in r.attempts) / 3600
        attempts = [(job, path) for job in self.jobs for path in self.paths.attempts(job.id) if (path / "run").exists()]
        used = (job.nodes * self._seconds(self.run_of(job.id, int(path.name))) for job, path in attempts)
        return sum(used) / 3600

    @staticmethod
    def _seconds(run: Path) -> float:
        status = runs.read_status(RunPaths(run))
        return status.seconds.get("total") or max(0.0, status.ended - status.started)

    def run_of(self, job: str, attempt: int) -> Path:
        """The run directory of an attempt of a job.

        Raises:
            InputError: it has none.
        """
        file = self.paths.jobs / job / str(attempt) / "run"
        if not file.exists():
            raise InputError(f"{self.paths.root} has no attempt {attempt} of a job {job}")
        return self.paths.root / at.read_regular(file).decode().strip()

    def with_environment(self, environ: Mapping[str, str]) -> Study:
        """The same study, whose runs start from this environment."""
        return replace(self, workspace=replace(self.workspace, environ=environ))


Told = Callable[[PointRecord], None]


def run_job(study: Study, job: JobPlan, place: str, tell: Told) -> bool:
    """Run what a job has not run yet, in its order; whether all of it was run.

    An interruption (a lost node, a cancelled run) ends the job: what is left runs in another allocation. There the
    warm-up runs come first again, since it is cold too, and a pair of which one half is missing is run as a whole: two
    runs on different nodes are none.

    Args:
        place: the allocation of this process (`place_of`).

    Raises:
        InputError, MissingError: a run cannot be planned: the job has fewer nodes, a variant has changed.
        StackyardError: a record cannot be written.
    """
    if study.is_complete(job):
        return True
    records = [settle(study, study.record(point)) for point in job.points]
    missing = {r.point.repeat for r in records if not r.is_settled(again=study.again) and not r.point.warmup}
    for record in records:
        is_here = record.last is not None and record.last.place == place
        if record.is_settled(again=study.again) and (is_here or record.point.repeat not in {0, *missing}):
            continue
        ended = _run(study, record, place)
        tell(ended)
        if ended.state == "interrupted":
            return False
    return True


def place_of(study: Study) -> str:
    """The allocation of this process: the scheduler's job, else this machine."""
    allocation = jobs.allocation_of(study.workspace)
    return allocation.job if allocation and allocation.job else hostname()


def settle(study: Study, record: PointRecord) -> PointRecord:
    """The record, with the end of a run that was going on when the process that started it was killed.

    That run ends with its process, soon.

    Raises:
        StackyardError: it is still going on.
    """
    last = record.last
    if last is None or last.state != "running":
        return record
    paths = RunPaths(study.paths.root / last.run)
    try:
        status = runs.current_status(paths)
    except InputError as error:  # killed before the run was recorded, or it was removed
        return _stored(study, record, replace(last, state="interrupted", message=error.message))
    until = time.monotonic() + ENDS_S
    while not status.over and (process := Identity.from_json(status.process)) and process.fate == "running":
        if time.monotonic() > until:
            hint = f"wait for its end, or stop it: stackyard runs cancel {paths.root}"
            raise StackyardError(f"the run {last.run} of {record.point.id} is still running", hint=hint)
        time.sleep(0.2)
        status = runs.current_status(paths)
    return _stored(study, record, _ended(study, last, paths, status))


def planned_job(study: Study, point: Point) -> Job:
    """The job of one run in this allocation, with its formulas calculated.

    Raises:
        InputError, MissingError: it cannot be planned, or its variant has changed.
    """
    variant = study.request.all_variants[point.variant]
    intent = variants.intent_of(study.request, point.variant, point.nodes, study.workspace.environ)
    job = jobs.launch_job(variants.workspace_of(study.workspace, variant, study.paths.runs), intent)
    variants.require_same(point.variant, study.about.variants.get(point.variant, {}), variants.identity(job, variant))
    job = variants.calculated(job, variant, job.plan())
    return replace(job, workspace=replace(job.workspace, argv=launch_words(job.intent)))


def _run(study: Study, record: PointRecord, place: str) -> PointRecord:
    job = planned_job(study, record.point)
    run = jobs.record_launch(job)
    assert run.plan is not None
    attempt = Attempt(
        str(run.paths.root.relative_to(study.paths.root)), "running", place=place, ranks=run.plan.layout.ranks,
        started=time.time(), command=jobs.launch_command(run.plan, str(run.paths.root)),
    )  # fmt: skip
    record = _stored(study, record, attempt)
    launch = LocalLaunch(run)
    try:
        launch.wait()
    except BaseException:
        launch.interrupt()
        launch.wait()
        with suppress(StackyardError):
            _stored(study, record, replace(attempt, state="interrupted", message="interrupted"))
        raise
    return _stored(study, record, _ended(study, attempt, run.paths, runs.current_status(run.paths)))


def _ended(study: Study, attempt: Attempt, paths: RunPaths, status: RunStatus) -> Attempt:
    """The end of a run, with its measurements."""
    ended = replace(
        attempt, code=status.code, hosts=status.hosts, started=status.started or attempt.started,
        seconds=float(status.seconds.get("total", 0)), message=why_of(status),
    )  # fmt: skip
    if not status.over:
        return replace(ended, state="interrupted", message="its job ended before it did")
    if not status.ended_well:
        is_programs = status.state in FAILED and bool(status.first or status.state == "hung")
        return replace(ended, state="failed" if is_programs else "interrupted")
    if tools := ", ".join(runs.profiled(paths, runs.read_run(paths))):
        return replace(ended, state="no-value", message=f"profiled ({tools}): its times do not count; {REPEATED}")
    whole = study.request.job.batch.exclusive is not False if study.about.how == "jobs" else None
    measured = read_run(paths, study.request.measure, warmup=study.request.warmup_steps, whole_nodes=whole,
                        job=attempt.place)  # fmt: skip
    is_whole = measured.values and not (study.request.measure and measured.problems)
    state = "done" if is_whole else "no-value"
    return replace(ended, state=state, message="; ".join(measured.problems), measured=measured.to_json())


def why_of(status: RunStatus) -> str:
    """Why a run is not done; empty if it is."""
    if status.ended_well:
        return ""
    return status.message or str(status.first.get("message", "")) or status.state


def _stored(study: Study, record: PointRecord, attempt: Attempt) -> PointRecord:
    record = record.with_attempt(attempt)
    store.write_point(study.paths, record)
    return record
