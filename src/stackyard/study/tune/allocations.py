"""A search over several batch jobs, one after the other: each submits the next one as it begins.

The next job waits for the end of the one before it, however that ends. Once the search is done, it is cancelled; if it
starts all the same, it finds nothing to do.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from stackyard.core.errors import InputError, MissingError, StackyardError
from stackyard.core.late import dataclass
from stackyard.launch.api import commands, jobs, runs
from stackyard.launch.api.jobs import Job, Plan, Workspace
from stackyard.study.tune.journal import read_journal
from stackyard.study.tune.optimizer import sampler_of
from stackyard.study.tune.progress import SearchProgress
from stackyard.study.tune.raytune import ray_intent, run_ray
from stackyard.study.tune.request import SearchRequest
from stackyard.study.tune.rungs import is_done
from stackyard.study.tune.sampling import Params
from stackyard.study.tune.search import HopelessSearch, SearchWatcher, run_search
from stackyard.study.tune.slots import sized, worker_intent
from stackyard.study.tune.store import SearchAbout, SearchPaths, StoredSearch
from stackyard.yard.write import atomic
from stackyard.yard.write.lease import lease

LOOK_S, ASK_S = 1.0, 10.0
MARGIN_S = 20.0
"""Of an allocation, after the grace of its trials: in it the workers end and the journal is closed."""


@dataclass(frozen=True)
class SearchOutlook:
    """What a search would do.

    Attributes:
        how: ``jobs`` or ``here``.
        plan: of the workers' step; of a trial's, where each is a step of its own.
        first: the parameters of the first trials; empty where they depend on an optimizer.
        node_hours: of all allocations at their time limits; None without a limit.
        script: of the first job.
    """

    request: SearchRequest
    how: str
    scheduler: str
    plan: Plan
    first: tuple[Params, ...]
    node_hours: float | None
    script: str = ""

    @property
    def slots(self) -> int:
        """Trials at a time."""
        shape = self.plan.layout
        return 1 if self.request.trial.nodes > 1 else shape.ranks


def search_outlook(request: SearchRequest, workspace: Workspace, agreed: Callable[[Job], Job]) -> SearchOutlook:
    """Plan a search, and write nothing.

    Raises:
        InputError, MissingError: it cannot be planned: a trial does not fit on a node, the program is missing.
    """
    probe = jobs.launch_job(workspace, request.job.model_copy(update={"nodes": 1, "ranks_per_node": 1}))
    jobs.check_program(request.job, probe.context.stack.image)
    agreed(probe)
    is_here = runs_here(probe)
    seed = request.seed or 1
    drawn = sampler_of(
        StoredSearch(SearchPaths(workspace.runs), request, SearchAbout(seed, "", "", (), "", ""), workspace)
    )
    first: tuple[Params, ...] = ()
    if request.search != "tpe" and (request.seed or request.search == "grid"):
        first = tuple(drawn.ask(number, SearchProgress()) for number in range(min(3, request.count)))
    drawn.close()
    if is_here and request.engine == "ray":
        job = jobs.launch_job(workspace, ray_intent(request, nodes_here(request, workspace), Path("SEARCH/ray")))
        return SearchOutlook(request, "here", probe.context.scheduler, job.plan(), first, None)
    if is_here:
        intent = worker_intent(request, request.job.program, nodes_here(request, workspace))
        job = sized(request, jobs.launch_job(workspace, intent))
        return SearchOutlook(request, "here", probe.context.scheduler, job.plan(), first, None)
    if request.allocations > 1 and not jobs.after_end(probe, "JOB"):
        raise InputError(f"--allocations: how a job of {probe.context.scheduler} waits for another one is not known",
                         hint="continue by hand: stackyard tune --continue DIR")  # fmt: skip
    job, limit = batch_job_of(request, workspace), request.job.batch.time_min
    script = commands.preview_command(job, words_inside(SearchPaths(workspace.runs.parent / "SEARCH"), 1))
    hours = request.job.nodes * limit / 60 * request.allocations if limit else None
    return SearchOutlook(request, "jobs", probe.context.scheduler, job.plan(head=True), first, hours, script)


def runs_here(probe: Job) -> bool:
    """Whether a search runs where it is started: without a scheduler, or within an allocation."""
    return probe.context.scheduler == "none" or probe.context.allocation is not None


def place_now(study: StoredSearch) -> str:
    """``here`` or ``jobs``: where a search goes on, which may be elsewhere than where it began.

    Raises:
        InputError: its stack is not there.
    """
    one = study.request.job.model_copy(update={"nodes": 1, "ranks_per_node": 1, "hosts": ()})
    return "here" if runs_here(jobs.launch_job(study.workspace, one)) else "jobs"


def nodes_here(request: SearchRequest, workspace: Workspace) -> int:
    """The nodes of this allocation that a search uses."""
    allocation = jobs.allocation_of(workspace)
    have = len(allocation.hosts) if allocation else 1
    if request.job.nodes > have:
        hint = (
            "leave the allocation: the search submits jobs of its own"
            if allocation
            else "use a machine with a scheduler"
        )
        raise InputError(f"{request.job.nodes} nodes requested, but there are {have} here", hint=hint)
    return request.job.nodes if request.job.nodes > 1 else have


def batch_job_of(request: SearchRequest, workspace: Workspace, after: str = "") -> Job:
    """The batch job of an allocation: as many nodes as asked, each with room for its trials.

    Args:
        after: the job whose end it waits for.

    Raises:
        InputError, MissingError: it cannot be planned.
    """
    own, batch = request.job, request.job.batch
    intent = worker_intent(request, ("stackyard", "tune"), own.nodes)
    probe = jobs.launch_job(workspace, own.model_copy(update={"nodes": 1, "ranks_per_node": 1}))
    depends = ",".join(filter(None, [batch.dependency, jobs.after_end(probe, after) if after else ""]))
    name = batch.name or f"tune-{request.name or 'search'}"
    changes = {"name": name, "dependency": depends}
    intent = intent.model_copy(
        update={"batch": batch.model_copy(update=changes), "least_nodes": own.least_nodes, "grace_s": None}
    )
    job = jobs.batch_job(workspace, intent)
    return job if request.engine == "ray" else sized(request, job, head=True)


def words_inside(paths: SearchPaths, allocation: int, *, again: bool = False) -> list[str]:
    """The words after ``stackyard`` by which a batch job carries out its part of a search."""
    words = ["tune", "--inside", str(paths.root), "--allocation-of-search", str(allocation)]
    return [*words, "--retry-failed"] if again else words


def submit_next(study: StoredSearch, watcher: SearchWatcher, after: str = "", *, again: bool = False) -> int:
    """Submit the next allocation; returns its number.

    Raises:
        StackyardError: the scheduler refuses it, or it cannot be recorded.
    """
    number = (study.paths.numbers() or [0])[-1] + 1
    directory = study.paths.allocations / str(number)
    directory.mkdir(parents=True)
    job = batch_job_of(study.request, replace(study.workspace, runs=study.paths.runs), after)
    run = commands.record_command(job, words_inside(study.paths, number, again=again), "tune")
    atomic.write_text(directory / "run", f"{run.paths.root.relative_to(study.paths.root)}\n")
    name = jobs.submit(run)
    watcher.notice(f"allocation {number}: job {name}" + (f", after {after}" if after else ""))
    return number


def run_inside_allocation(study: StoredSearch, number: int, watcher: SearchWatcher, *, again: bool = False) -> bool:
    """Carry out a search in one of its allocations; whether it is done.

    Raises:
        InputError, MissingError, StackyardError: as for `run_search`.
    """
    allocation = jobs.allocation_of(study.workspace)
    started, limit = time.time(), study.request.job.batch.time_min * 60
    following = 0
    if allocation and number < last_of(study) and not is_complete(study):
        try:
            following = submit_next(study, watcher, allocation.job)
        except StackyardError as error:
            watcher.notice(f"the next allocation is not submitted: {error.message}")
    nodes = len(allocation.hosts) if allocation else 1
    until = started + limit - study.request.trial.grace_s - MARGIN_S if limit else math.inf
    goes_on = False
    try:
        goes_on = not carry_out(study, watcher, nodes=nodes, until=until, again=again)
    except BaseException as error:
        goes_on = not isinstance(error, InputError | MissingError | HopelessSearch)  # which the next one would meet too
        raise
    finally:
        if following and not goes_on:
            with suppress(StackyardError):
                runs.cancel(study.paths.run_of(following))
    return not goes_on


def carry_out(
    study: StoredSearch, watcher: SearchWatcher, *, nodes: int, until: float = math.inf, again: bool = False
) -> bool:
    """Carry a search out here, by our own engine or by Ray; whether it is done.

    Raises:
        InputError, MissingError, StackyardError: as for `run_search` and `run_ray`.
    """
    if study.request.engine == "ray":
        return run_ray(study, watcher, nodes=nodes, until=until)
    return run_search(study, watcher, nodes=nodes, until=until, again=again)


def last_of(study: StoredSearch) -> int:
    """The number of the last allocation that may be submitted: each command adds as many as it names."""
    file = study.paths.allocations / "last"
    try:
        return int(file.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return 1


def is_complete(study: StoredSearch) -> bool:
    """Whether nothing is left to run, by the journal."""
    return is_done(study.request, SearchProgress(read_journal(study.paths.journal).events))


def steps_left(study: StoredSearch) -> dict[str, int]:
    """How many ``trials`` a search has, how many began and have not ended (``open``), and how many are ``missing``.

    Of a program that Ray runs none is missing: Ray decides how many there are.
    """
    trials = SearchProgress(read_journal(study.paths.journal).events).trials
    count = len(trials) if study.request.engine == "ray" else study.request.count
    began = sum(trial.running >= 0 or trial.waits >= 0 for trial in trials.values())
    return {"trials": count, "open": began, "missing": max(0, count - len(trials))}


def run_as_jobs(study: StoredSearch, watcher: SearchWatcher, allocations: int, *, again: bool = False) -> bool:
    """Submit the first allocation that is missing, and follow the search to its end; whether it is done.

    Raises:
        StackyardError: the scheduler refuses a job; another process submits.
    """
    with lease(study.paths.submitter, f"submitting jobs of {study.paths.root}", wait_s=60, on_wait=watcher.notice):
        if not (going := _going_on(study)) and (again or not is_complete(study)):
            before = (study.paths.numbers() or [0])[-1]
            atomic.write_text(study.paths.allocations / "last", f"{before + allocations}\n")
            going = submit_next(study, watcher, again=again)
    return _follow(study, watcher, going)


def _going_on(study: StoredSearch) -> int:
    """The first allocation that waits or runs; 0: none."""
    for number in study.paths.numbers():
        try:
            status = runs.current_status(study.paths.run_of(number))
        except InputError:  # killed before it was recorded
            continue
        if status.job and not status.over:
            return number
    return 0


def _follow(study: StoredSearch, watcher: SearchWatcher, number: int) -> bool:
    progress, seen, asked = SearchProgress(), 0, time.monotonic()
    while True:
        status = None
        if number:
            asks = time.monotonic() > asked + ASK_S
            asked = time.monotonic() if asks else asked
            status = runs.current_status(study.paths.run_of(number), ask=asks)
        events = read_journal(study.paths.journal).events
        for event in events[seen:]:
            progress.apply(event)
            watcher.event(event, progress)
        seen = len(events)
        watcher.idle(progress)
        if status is None or status.over:
            if status is not None and not status.ended_well and not is_done(study.request, progress):
                watcher.notice(
                    f"allocation {number} has ended ({status.state}){': ' + status.message if status.message else ''}"
                )
            if is_done(study.request, progress) or not (number := _going_on(study)):
                return is_done(study.request, progress)
        time.sleep(LOOK_S)
