"""`Job`: a request with all inputs of its plan; for a launch here, for a batch job, for a recorded run."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from stackyard.core.errors import InputError
from stackyard.core.findings import refuse
from stackyard.core.late import dataclass
from stackyard.inputs.sites.sitemodels import Site
from stackyard.launch.jobs.nodelimit import require_few
from stackyard.launch.jobs.repeat import Repeat
from stackyard.launch.jobs.requeue import array_index
from stackyard.launch.jobs.workspace import Workspace
from stackyard.launch.plan import profilers
from stackyard.launch.plan.allocated import as_allocated
from stackyard.launch.plan.context import PlanContext, StackInUse, need_scheduler, plan_context, with_offer
from stackyard.launch.plan.make import make_plan, node_of
from stackyard.launch.plan.model import Allocation, Plan
from stackyard.launch.records import record
from stackyard.launch.records.arrays import begin_task
from stackyard.launch.records.paths import RunPaths
from stackyard.launch.records.private import read_private
from stackyard.launch.request.intent import Intent, recorded_intent
from stackyard.yard.revision.directories import RevisionPaths


@dataclass(frozen=True)
class Job:
    """A request, the nodes for it, and the other inputs of the plan.

    Attributes:
        intent: the request; a range of nodes is replaced by the available number.
        again_of: the run that it repeats, or empty.
        most_nodes: the requested number of nodes.
    """

    workspace: Workspace
    intent: Intent
    context: PlanContext
    again_of: str = ""
    most_nodes: int = 0

    @property
    def asked(self) -> Intent:
        """The request with the requested number of nodes, independent of this allocation."""
        return self.intent.model_copy(update={"nodes": self.most_nodes or self.intent.nodes})

    @property
    def site(self) -> Site:
        """The site that the job runs on."""
        return self.workspace.site

    def plan(self, *, hosts: Sequence[str] | None = None, head: bool = False) -> Plan:
        """The plan of this job; arguments and errors as in `make_plan`. A queue that rejects the job is an error."""
        plan = make_plan(self.intent, self.site, self.context, hosts=hosts, head=head)
        refuse(plan.head.findings if plan.head else ())
        return plan

    def require_profilers(self, look: str) -> None:
        """Raise MissingError if a requested profiler is not there; `look` as in `profilers.require`."""
        environ = {**self.context.stack.change.apply(self.workspace.environ), **self.intent.variables}
        profilers.require(self.intent, environ, probe=self.site.launch.probe, look=look)


def allocation_of(workspace: Workspace, *, launcher: str = "") -> Allocation | None:
    """The allocation that the environment describes, or None."""
    return plan_context(workspace.site, workspace.environ, launcher=launcher).allocation


def default_nodes(workspace: Workspace, *, launcher: str = "", spare: int = 0) -> int:
    """The default number of nodes of a launch: all of the allocation except the spare ones, else one."""
    allocation = allocation_of(workspace, launcher=launcher)
    return max(1, len(allocation.hosts) - spare) if allocation else 1


def submit_host(workspace: Workspace) -> str:
    """The host that the job around this process was submitted from, as its scheduler has it; else empty."""
    context = plan_context(workspace.site, workspace.environ)
    return context.environ.get(context.batch.submit_host_variable, "") if context.allocation else ""


def queue_field(workspace: Workspace) -> str:
    """The field of `BatchOptions` for ``-q``: the quality of service under Slurm, as in sbatch, else the queue."""
    return plan_context(workspace.site, workspace.environ).batch.queue_option


def launch_job(workspace: Workspace, intent: Intent, again: Repeat | None = None) -> Job:
    """A job for the nodes of the allocation, or for this machine.

    In a Slurm allocation with requested tasks (``sbatch --ntasks-per-node=2 -c 4``), these are the ranks unless the
    request names others.

    Raises:
        InputError: no such revision, or more nodes requested than it may run on or the partition has.
    """
    stack = _stack(workspace, intent, again)
    context = plan_context(workspace.site, workspace.environ, stack, launcher=intent.launcher)
    job = _job(workspace, intent, context, again)
    allocation, offer = job.context.allocation, job.context.offer
    if again or intent.roles or allocation is None or offer is None:
        return job
    node, hosts = node_of(intent, workspace.site, job.context), len(allocation.hosts)
    return replace(job, intent=as_allocated(intent, node, offer, workspace.environ, hosts=hosts))


def batch_job(workspace: Workspace, intent: Intent, again: Repeat | None = None) -> Job:
    """A job for the scheduler's queue.

    Raises:
        InputError: no such revision, or more nodes requested than it may run on or the partition has.
        MissingError: no scheduler found.
    """
    if intent.debug_rank is not None or intent.stdin_rank is not None:
        raise InputError("a batch job has no terminal and no standard input", hint="use `stackyard launch`")
    stack = _stack(workspace, intent, again)
    context = replace(plan_context(workspace.site, workspace.environ, stack), allocation=None)
    need_scheduler(context)
    return _job(workspace, intent, context, again)


def recorded_job(workspace: Workspace, directory: Path) -> tuple[Job, RunPaths]:
    """The job of a recorded run on its allocated nodes, and its directory: in an array that of this task.

    Files of an earlier attempt are set aside.
    """
    paths = RunPaths(directory.absolute())
    run_record = record.read_run(paths)
    intent = recorded_intent(run_record.intent, paths.record)
    stack = stack_in_use(workspace, run_record.stack.get("module", ""), run_record.stack.get("folder", ""))
    environ = {**workspace.environ, **read_private(paths)}
    launcher = intent.launcher if run_record.how == "launch" else ""
    job = _job(workspace, intent, plan_context(workspace.site, environ, stack, launcher=launcher), None)
    if index := array_index(job.context):
        paths = begin_task(paths, run_record, index)
    before = record.read_status(paths)
    if before.attempts:
        record.set_aside(paths, before.attempts)
    return job, paths


def stack_in_use(workspace: Workspace, name: str, directory: str = "") -> StackInUse:
    """The revision of a job; empty if none is named.

    Args:
        directory: the directory of the revision, for a run that is carried out or repeated exactly.

    Raises:
        InputError: no such revision.
        ChecksFailed: it lacks a signature that its yard demands.
    """
    if not name:
        return StackInUse()
    from stackyard.expose.published import change_of
    from stackyard.yard import catalogue
    from stackyard.yard.revision import signatures
    from stackyard.yard.revision.record import read_record

    built = read_record(RevisionPaths.of(directory).record) if directory else catalogue.record_of(workspace.yard, name)
    signatures.require(built, "launch", workspace.yard)
    built.origin.require_present()
    image = str(RevisionPaths.of(built.path).image) if built.payload.image else ""
    return StackInUse(built.module, built.path, built.prefix, built.input_hash, change_of(built, workspace.site), image)


def _stack(workspace: Workspace, intent: Intent, again: Repeat | None) -> StackInUse:
    return stack_in_use(workspace, intent.stack, again.revision if again else "")


def _job(workspace: Workspace, intent: Intent, context: PlanContext, again: Repeat | None) -> Job:
    require_few(workspace, intent, context.stack.folder)
    context, most = with_offer(context, intent, workspace.site), intent.nodes
    if context.allocation and intent.least_nodes:  # a range was requested: the allocation may have fewer
        fewer = max(intent.least_nodes, len(context.allocation.hosts) - intent.spare)
        intent = intent.model_copy(update={"nodes": min(intent.nodes, fewer)})
    return Job(workspace, intent, context, str(again.run.root) if again else "", most)


def here(job: Job) -> tuple[str, ...]:
    """The hosts available to the job now: the allocated ones, else this one."""
    return job.context.allocation.hosts if job.context.allocation else (os.uname().nodename,)
