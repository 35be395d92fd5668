"""Carries out a recorded run in an allocation: preflight, program, placement report; keeps status and events."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager, nullcontext, suppress
from dataclasses import asdict, replace
from typing import Literal

from stackyard.core.errors import StackyardError, StopSignal
from stackyard.core.late import dataclass
from stackyard.core.progress import Listener
from stackyard.host.run.command import which
from stackyard.host.run.identity import hostname
from stackyard.inputs.sites.sitemodels import NodeKind
from stackyard.launch.jobs.job import Job, here
from stackyard.launch.jobs.recorder import Recorder
from stackyard.launch.jobs.requeue import (
    LEAVE_S,
    OUT_OF_TIME,
    PREEMPTED,
    array_index,
    job_id,
    reason_to_wait,
    requeue,
)
from stackyard.launch.jobs.restarts import Attempts, keep
from stackyard.launch.jobs.trackers import sync_lines
from stackyard.launch.layout import nodes
from stackyard.launch.node.step import StepFile
from stackyard.launch.plan.context import PlanContext
from stackyard.launch.plan.make import make_plan
from stackyard.launch.plan.model import Plan
from stackyard.launch.records.arrays import forget_shared
from stackyard.launch.records.outcome import ListenerGroup, State, StepResult
from stackyard.launch.records.paths import RunPaths, StepPaths
from stackyard.launch.records.record import RunStatus, read_status
from stackyard.launch.run.start import WatchOptions
from stackyard.launch.run.step import run_step
from stackyard.yard.others import usage, uses
from stackyard.yard.write import atomic

Stream = Literal["first", "all", "none"]
"""Whose output the listener gets: the first rank's, every rank's, or none."""


@dataclass(frozen=True)
class _Run:
    """The run being carried out, and its observers."""

    job: Job
    paths: RunPaths
    options: WatchOptions
    recorder: Recorder
    listener: Listener


def carry_out(
    job: Job, paths: RunPaths, shown: Listener, announce: Callable[[Plan], None], stream: Stream = "first"
) -> StepResult:
    """Run the preflight if requested, then the program. The status records any kind of end.

    Args:
        announce: called with the plan of the program before it starts, to print the exact command.

    Raises:
        ChecksFailed: the preflight found too many bad nodes.
        StackyardError, InputError, MissingError: the run could not be started.
    """
    with _using(job), closing(Recorder(paths, _running(read_status(paths), job.context))) as recorder:
        run = _Run(job, paths, watch_options(job, stream), recorder, ListenerGroup(recorder, shown))
        return _carried_out(run, announce)


@contextmanager
def _using(job: Job) -> Iterator[None]:
    """Hold a use of the job's revision until its end, so that it is not removed meanwhile.

    Raises:
        MissingError: the revision's files were removed.
    """
    directory, allocation = job.context.stack.folder, job.context.allocation
    if not directory:
        yield
        return
    known = {"scheduler": job.context.scheduler, "job": allocation.job} if allocation and allocation.job else {}
    use = uses.hold(directory, job.workspace.yard, "launch", **known)
    try:
        uses.require_files(directory)
        usage.count(directory, "launch")
        yield
    finally:
        uses.release(use)


def _carried_out(run: _Run, announce: Callable[[Plan], None]) -> StepResult:
    job, paths = run.job, run.paths
    try:
        job.require_profilers("programs")
        with _terminal(run):
            result = _attempts(run, announce)
    except BaseException as error:
        state, code = _end_of(error)
        run.recorder.change(state=state, code=code, ended=time.time(), message=str(error))
        forget_shared(paths, job.intent.batch.array)
        raise
    waits = reason_to_wait(job.intent, job.context, paths, run.listener, result)
    _end(run, result, waits)
    if waits in (OUT_OF_TIME, PREEMPTED):
        requeue(job.context, run.listener)
    return result


def _end_of(error: BaseException) -> tuple[State, int]:
    """State and exit status of a run that an exception ended."""
    if isinstance(error, StopSignal):
        return "cancelled", 128 + error.number
    if isinstance(error, KeyboardInterrupt):
        return "cancelled", 128 + signal.SIGINT
    return "failed", getattr(error, "exit_code", 1)


def _attempts(run: _Run, announce: Callable[[Plan], None]) -> StepResult:
    """Run the program until it succeeds or may not be restarted; returns the result of the last attempt."""
    job, paths, listener = run.job, run.paths, run.listener
    hosts = (job.intent.hosts or here(job)) if job.context.allocation else ()
    if job.intent.check or job.intent.spare:
        hosts = _preflight(run)
    again = Attempts(job.intent.restarts, hosts, job.intent.nodes, job.intent.least_nodes or job.intent.nodes)
    while True:
        plan = _plan(job, again)
        announce(plan)
        options = replace(run.options, attempt=run.recorder.status.attempts, may_lose=again.may_lose)
        result = run_step(paths.main, plan, listener, run=paths.name, options=options)
        if not again.go_on(result):
            if again.why_not:
                listener.notice(again.why_not)
            return result
        _restart(run, again, result)


def _plan(job: Job, again: Attempts) -> Plan:
    """The plan of an attempt: on fewer nodes if some are lost and the job accepts that."""
    hosts = again.chosen
    planned = (job.intent.hosts or here(job))[: job.intent.nodes]
    if hosts is None or len(hosts) < again.least or set(hosts) == set(planned):
        return job.plan()
    return replace(job, intent=job.intent.model_copy(update={"nodes": len(hosts)})).plan(hosts=hosts)


def _restart(run: _Run, again: Attempts, result: StepResult) -> None:
    """Keep the files of the failed attempt, and announce the next one."""
    number = run.recorder.status.attempts
    keep(run.paths, number, result)
    why = result.first.message if result.first else result.state
    out = f"; left out: {', '.join(again.lost)}" if again.lost else ""
    run.listener.event("restart", {"attempt": number + 1, "after": result.state, "reason": why, "lost": again.lost})
    run.listener.notice(f"attempt {number + 1}, after: {why}{out}; {again.restarts} more restarts")
    run.listener.flush()
    run.recorder.change(attempts=number + 1)


def watch_options(job: Job, stream: Stream) -> WatchOptions:
    """The hub's options for watching this job."""
    spy, batch = which("py-spy"), job.intent.batch
    own, site = job.intent, job.site.launch
    return WatchOptions(
        start_s=site.start_s if own.start_s is None else own.start_s,
        lost_s=site.lost_s if own.lost_s is None else own.lost_s,
        grace_s=_grace_s(job) if own.grace_s is None else own.grace_s,
        end_within_s=max(1.0, batch.signal_s - LEAVE_S) if batch.requeue and batch.signal_s else 0.0,
        hang_min=job.intent.hang_min, stream=stream, logs=own.logs, interface=job.site.launch.interface,
        py_spy=str(spy) if spy else "", probe=site.probe,
        probe_signal=site.probe_signal if own.hang_min and site.probe else 0,
        queued=job.context.scheduler != "none" and job.context.allocation is None, causes=job.site.causes,
        world_check=own.debug_rank is None and (site.world_check if own.world_check is None else own.world_check),
    )  # fmt: skip


WRITE_S = 60.0
"""From SIGTERM to SIGKILL at least, for ranks that write a trace then; a gigabyte of it takes most of a minute."""


def _grace_s(job: Job) -> float:
    specs = (job.intent.profile, *(role.profile for role in job.intent.roles.values()))
    return max(job.site.launch.grace_s, WRITE_S) if any(specs) else job.site.launch.grace_s


def _running(before: RunStatus, context: PlanContext) -> RunStatus:
    """The status at the start; a task of an array has its own job id, so that it can be queried and cancelled alone."""
    if not before.job and context.allocation is not None and array_index(context):
        before = replace(before, job=job_id(context))
    return replace(
        before, state="running", phase="", code=None, started=time.time(), ended=0, pid=os.getpid(), host=hostname(),
        first={}, message="", attempts=before.attempts + 1,
    )  # fmt: skip


def _preflight(run: _Run) -> tuple[str, ...]:
    """Run the preflight on the allocated nodes; returns the hosts for the program, followed by good spare ones."""
    from stackyard.launch import preflight

    job, everywhere = run.job, here(run.job)
    count, spare = job.intent.nodes, job.intent.spare
    if len(everywhere) < count:
        raise StackyardError(f"{count} nodes requested, but this allocation has {len(everywhere)}")

    def plan_for(hosts: tuple[str, ...], argv: tuple[str, ...]) -> Plan:
        narrowed = job.intent.model_copy(
            update={"nodes": len(hosts), "profile": (), "debug_rank": None, "stdin_rank": None}
        )
        return make_plan(narrowed, job.site, job.context, hosts=hosts, program=argv)

    def start(step: StepPaths, plan: Plan, listener: Listener) -> StepResult:
        return run_step(
            step, plan, listener, run=run.paths.name, options=replace(run.options, probe=False, probe_signal=0)
        )

    run.listener.phase("preflight")
    kind = job.site.nodes.get(nodes.pick_kind(job.site, job.intent).kind, NodeKind())
    report = preflight.run_preflight(
        run.paths, plan_for, everywhere[: count + spare],
        spare=spare, references=kind.references, run_step=start, listener=run.listener,
    )  # fmt: skip
    for line in report.summary():
        run.listener.notice(line)
    return (*report.hosts, *report.spare)


def _end(run: _Run, result: StepResult, waits: str) -> None:
    """Record the placement report and the end, or why the job is requeued. Errors here do not change the end."""
    with suppress(OSError, ValueError, KeyError):
        _keep_placement(run, result)
        _keep_usage(run, result)
        _keep_staged(run, result)
    for line in sync_lines(run.paths, run.job.context.stack.module):
        run.listener.notice(line)
    first = asdict(result.first) if result.first else {}
    run.listener.event("end", {"state": result.state, "code": result.code})
    run.listener.flush()
    run.recorder.change(
        state="queued" if waits else result.state, code=None if waits else result.code, ended=time.time(), first=first,
        hosts=result.hosts, seconds=dict(result.seconds), phase="", message=waits,
    )  # fmt: skip
    if run.recorder.lost:
        run.listener.notice(f"the end of this run is not recorded: {run.recorder.lost}")
    with suppress(OSError):
        forget_shared(run.paths, run.job.intent.batch.array)


def _keep_placement(run: _Run, result: StepResult) -> None:
    if result.placements and run.paths.main.plan.exists():
        from stackyard.launch.run.placement import placement_report

        placement = placement_report(StepFile.read(run.paths.main.plan), result.placements, result.hosts)
        run.listener.notice(f"placement: {placement.summary()}")
        atomic.write_json(run.paths.placement, placement.to_json())


def _keep_usage(run: _Run, result: StepResult) -> None:
    from stackyard.launch.run.usage import usage_report

    if result.usage or result.gpu_energy:
        report = usage_report(result.usage, result.gpu_energy)
        if report["mpi"]:
            run.listener.notice(f"MPI: {report['mpi']}; stackyard bindings check IMAGE says why")
        atomic.write_json(run.paths.usage, report)


def _keep_staged(run: _Run, result: StepResult) -> None:
    if result.staged:
        atomic.write_json(run.paths.staged, result.staged.to_json())


def _terminal(run: _Run) -> AbstractContextManager[None]:
    """Connect your terminal or your standard input to the selected rank."""
    intent, context = run.job.intent, run.job.context
    rank = intent.stdin_rank if intent.debug_rank is None else intent.debug_rank
    if rank is None:
        return nullcontext()
    from stackyard.launch.run.terminal import for_rank

    return for_rank(
        run.paths.main, rank, "pipe" if intent.debug_rank is None else "tty", interface=run.options.interface,
        alone=context.scheduler == "none", limit_s=run.options.start_s,
    )  # fmt: skip
