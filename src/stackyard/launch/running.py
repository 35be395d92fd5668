"""Carry out a recorded run in an allocation: preflight, program, placement report. Status and events are recorded."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

from stackyard.errors import StackyardError
from stackyard.host.command import run
from stackyard.launch.layout import nodes
from stackyard.launch.node.step import StepFile
from stackyard.launch.plan import schedulers
from stackyard.launch.plan.make import PlanContext, make_plan
from stackyard.launch.plan.model import Plan
from stackyard.launch.records.outcome import Listener, StepResult
from stackyard.launch.records.paths import RunPaths, StepPaths
from stackyard.launch.records.record import RunStatus, add_event, hostname, read_status, write_status
from stackyard.launch.request.intent import Intent
from stackyard.launch.run.start import WatchOptions
from stackyard.launch.run.step import run_step
from stackyard.spec.sitemodels import NodeKind, Site
from stackyard.yard import atomic

OUT_OF_TIME, PREEMPTED = "out of time; queued again", "preempted; queued again"
LEAVE_S = 20.0
"""How long before the end ranks that have not ended by themselves are ended: from SIGTERM to the requeue."""


@dataclass(frozen=True)
class Job:
    """What is carried out: a run's folder, what was asked, the site, and where we are."""

    paths: RunPaths
    intent: Intent
    site: Site
    context: PlanContext
    options: WatchOptions


class Recorder:
    """A `Listener` that keeps events and status of the run and passes everything on."""

    def __init__(self, paths: RunPaths, shown: Listener, status: RunStatus) -> None:
        self._paths, self._shown = paths, shown
        self.status = status
        self.end_within_s = 0.0
        self.out_of_time = False
        self._timer: threading.Timer | None = None
        write_status(paths, status)

    def change(self, **values: Any) -> None:
        """New values of the status, written at once."""
        self.status = replace(self.status, **values)
        write_status(self._paths, self.status)

    def phase(self, name: str, detail: str = "") -> None:
        """A new phase: kept in the status, since another process may be following it."""
        self.change(phase=f"{name} {detail}".rstrip())
        add_event(self._paths, "phase", {"phase": name, "detail": detail})
        self._shown.phase(name, detail)

    def nodes(self, there: int, expected: int) -> None:
        """Passed on."""
        self._shown.nodes(there, expected)

    def output(self, task: int, text: str) -> None:
        """Passed on."""
        self._shown.output(task, text)

    def event(self, kind: str, data: dict[str, Any]) -> None:
        """Kept and passed on; phases are kept where they begin."""
        if kind != "phase":
            add_event(self._paths, kind, data)
        if kind == "signal" and data.get("received") == "SIGUSR1":
            self._last_minutes()
        self._shown.event(kind, data)

    def _last_minutes(self) -> None:
        """The scheduler says that time is short: ranks that do not end by themselves are ended before it does it."""
        self.out_of_time = True
        if self.end_within_s and self._timer is None:
            self._timer = threading.Timer(self.end_within_s, os.kill, (os.getpid(), signal.SIGTERM))
            self._timer.daemon = True
            self._timer.start()

    def forget_timer(self) -> None:
        """The ranks have ended."""
        if self._timer is not None:
            self._timer.cancel()

    def notice(self, text: str) -> None:
        """Kept and passed on."""
        add_event(self._paths, "notice", {"text": text})
        self._shown.notice(text)


def carry_out(job: Job, shown: Listener, announce: Callable[[Plan], None]) -> StepResult:
    """Run the preflight where it is asked for, then the program. Whatever happens, the status says how it ended.

    Args:
        announce: is given the plan of the program before it starts, to print the exact command.

    Raises:
        ChecksFailed: the preflight found too many bad nodes.
        StackyardError, InputError, MissingError: it could not be started.
    """
    before = read_status(job.paths)
    recorder = Recorder(job.paths, shown, _begin(before, job.context))
    if job.intent.batch.requeue and job.intent.batch.signal_s:
        recorder.end_within_s = max(1.0, job.intent.batch.signal_s - LEAVE_S)
    try:
        hosts = _preflight(job, recorder) if job.intent.check or job.intent.spare else None
        plan = make_plan(job.intent, job.site, job.context, hosts=hosts)
        announce(plan)
        result = run_step(job.paths.main, plan, recorder, run=job.paths.name, options=job.options)
    except BaseException as error:
        state = "cancelled" if isinstance(error, KeyboardInterrupt) else "failed"
        code = 130 if state == "cancelled" else getattr(error, "exit_code", 1)
        recorder.change(state=state, code=code, ended=time.time(), message=str(error))
        raise
    recorder.forget_timer()
    waits = _waits(job, recorder, result)
    _end(job, recorder, result, waits)
    if waits in (OUT_OF_TIME, PREEMPTED):
        _again(job, recorder)
    return result


def _waits(job: Job, recorder: Recorder, result: StepResult) -> str:
    """Why this is not the run's end, since its job starts again; empty where it is. Those who follow it stay."""
    if not job.intent.batch.requeue or job.context.allocation is None or result.state == "done":
        return ""
    ended = result.code == 128 + signal.SIGTERM
    if recorder.out_of_time or (ended and _preempted(job)):
        if schedulers.get(job.context.scheduler).requeue_argv(job_id(job.context)):
            return OUT_OF_TIME if recorder.out_of_time else PREEMPTED
        recorder.notice(f"{job.context.scheduler} cannot start a job again; submit it again: stackyard submit --again")
        return ""
    return "ended by the scheduler" if ended and result.state == "cancelled" else ""  # it says what comes next


def _begin(before: RunStatus, context: PlanContext) -> RunStatus:
    if not before.job and context.allocation is not None and array_index(context.environ):
        before = replace(before, job=job_id(context))  # so that a task can be asked after, and ended, alone
    return replace(
        before, state="running", phase="", code=None, started=time.time(), ended=0, pid=os.getpid(), host=hostname(),
        first={}, message="", attempts=before.attempts + 1,
    )  # fmt: skip


def _preempted(job: Job) -> bool:
    """Whether a preemption is what has ended the ranks: Slurm ends them first, and leaves their watcher a while."""
    return job.context.allocation is not None and schedulers.get(job.context.scheduler).preempted(job_id(job.context))


def job_id(context: PlanContext) -> str:
    """The id of the job that we are in; in an array that of this task, and of no other.

    LSF's variable is that of the whole array, and so is SLURM_JOB_ID in its last task; PBS has one for each task.
    """
    assert context.allocation is not None
    job, index = context.allocation.job, array_index(context.environ)
    if not index:
        return job
    if context.allocation.scheduler == "slurm":
        return f"{context.environ.get('SLURM_ARRAY_JOB_ID', job)}_{index}"
    return f"{job}[{index}]" if context.allocation.scheduler == "lsf" else job


def _again(job: Job, recorder: Recorder) -> None:
    """Put the job back into its queue. The scheduler ends this process when it does that, so it comes last."""
    job_now = job_id(job.context)
    recorder.event("requeue", {"job": job_now})
    run(schedulers.get(job.context.scheduler).requeue_argv(job_now), timeout_s=60)


def _end(job: Job, recorder: Recorder, result: StepResult, waits: str) -> None:
    """Keep the placement report and the end, or why the run waits to start again."""
    if result.placements and job.paths.main.plan.exists():
        from stackyard.launch.run.placement import placement_report

        report = placement_report(StepFile.read(job.paths.main.plan), result.placements, result.hosts)
        atomic.write_json(job.paths.placement, report.to_json())
        recorder.notice(f"placement: {report.summary()}")
    first = asdict(result.first) if result.first else {}
    recorder.event("end", {"state": result.state, "code": result.code})
    recorder.change(
        state="queued" if waits else result.state, code=None if waits else result.code, ended=time.time(), first=first,
        hosts=result.hosts, seconds=dict(result.seconds), phase="", message=waits,
    )  # fmt: skip


def _preflight(job: Job, recorder: Recorder) -> tuple[str, ...]:
    """Run the preflight on all nodes in hand; the hosts that the program gets."""
    from stackyard.launch import preflight

    allocation = job.context.allocation
    everywhere = allocation.hosts if allocation else (os.uname().nodename,)
    wanted = job.intent.nodes
    if len(everywhere) < wanted:
        raise StackyardError(f"{wanted} nodes are asked for, and this allocation has {len(everywhere)}")

    def plan_for(hosts: tuple[str, ...], argv: tuple[str, ...]) -> Plan:
        narrowed = job.intent.model_copy(update={"nodes": len(hosts), "profile": ()})
        return make_plan(narrowed, job.site, job.context, hosts=hosts, program=argv)

    def start(step: StepPaths, plan: Plan, listener: Listener) -> StepResult:
        return run_step(step, plan, listener, run=job.paths.name, options=job.options)

    recorder.phase("preflight")
    kind = job.site.nodes.get(nodes.pick_kind(job.site, job.intent).kind, NodeKind())
    report = preflight.run_preflight(
        job.paths, plan_for, everywhere[: wanted + job.intent.spare],
        spare=job.intent.spare, references=kind.references, run_step=start, listener=recorder,
    )  # fmt: skip
    for line in report.summary():
        recorder.notice(line)
    return report.hosts


def array_index(environ: Mapping[str, str]) -> str:
    """The index of this task of a job array, or empty. PBS and Slurm say nothing outside of an array; LSF says 0."""
    for name in ("SLURM_ARRAY_TASK_ID", "PBS_ARRAY_INDEX", "LSB_JOBINDEX"):
        if environ.get(name) and not (name == "LSB_JOBINDEX" and environ[name] == "0"):
            return environ[name]
    return ""
