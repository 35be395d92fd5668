"""Requeued jobs and job arrays: which job this process belongs to, and whether it will start again after its end."""

from __future__ import annotations

import signal
import time
from contextlib import suppress

from stackyard.core.errors import StackyardError
from stackyard.core.progress import Listener
from stackyard.host.run.command import run
from stackyard.launch.plan import schedulers
from stackyard.launch.plan.context import PlanContext
from stackyard.launch.records.find import handle
from stackyard.launch.records.outcome import StepResult
from stackyard.launch.records.paths import RunPaths
from stackyard.launch.request.intent import Intent

OUT_OF_TIME, PREEMPTED = "again: out of time", "again: preempted"
"""What follows "queued"."""
LEAVE_S = 20.0
"""Seconds before the time limit at which ranks that still run get SIGTERM, to leave time for the requeue."""
REQUEUE_S = 60.0
"""How long the scheduler may take to requeue a job."""


def array_index(context: PlanContext) -> str:
    """The index of this task of a job array, or empty. PBS and Slurm set it only in an array; LSF sets 0 elsewhere."""
    index = context.environ.get(context.batch.index_variable, "")
    return "" if index == context.batch.no_index else index


def job_id(context: PlanContext) -> str:
    """The id of the job that this process runs in; in an array the id of this task."""
    assert context.allocation is not None
    job, index = context.allocation.job, array_index(context)
    return context.batch.own_id(job, index, context.environ) if index else job


def reason_to_wait(
    intent: Intent, context: PlanContext, paths: RunPaths, listener: Listener, result: StepResult
) -> str:
    """Why the run has not ended with `result`, because its job will start again; else empty. Followers keep waiting."""
    if not intent.batch.requeue or context.allocation is None or result.state == "done":
        return ""
    terminated = result.code == 128 + signal.SIGTERM
    if result.warned or _preempted(context):  # whatever status the program left with
        if schedulers.get(context.scheduler).requeue_argv(job_id(context)):
            return OUT_OF_TIME if result.warned else PREEMPTED
        listener.notice(
            f"{context.scheduler} cannot requeue a running job: use `stackyard submit --again {handle(paths)}`"
        )
        return ""
    # the scheduler decides what comes next
    return "or ended: terminated by the scheduler" if terminated and result.state == "cancelled" else ""


def _preempted(context: PlanContext) -> bool:
    """Whether a preemption ended the ranks: Slurm terminates them before their launcher process.

    A program that saves its state at SIGTERM may exit with any status. If the scheduler does not answer, it counts as
    no preemption.
    """
    with suppress(StackyardError):
        return context.batch.preempted(job_id(context))
    return False


def requeue(context: PlanContext, listener: Listener) -> None:
    """Put the job back into its queue. The scheduler then terminates this process, so this must come last.

    LSF and PBS do so some time after their command has returned; a job that ends before is not requeued.
    """
    job = job_id(context)
    listener.event("requeue", {"job": job})
    listener.flush()
    run(schedulers.get(context.scheduler).requeue_argv(job), timeout_s=REQUEUE_S, leaves_others=True)
    time.sleep(REQUEUE_S)
