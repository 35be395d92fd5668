"""The other inputs of a plan besides intent and site: the stack, the allocation, the scheduler and its nodes."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import field, replace

from stackyard.core.change import EnvironmentChange
from stackyard.core.errors import InputError, MissingError
from stackyard.core.late import dataclass
from stackyard.inputs.sites.sitemodels import NodeKind, Site
from stackyard.launch.layout import nodes
from stackyard.launch.plan import schedulers
from stackyard.launch.plan.model import Allocation
from stackyard.launch.plan.schedulers import Batch
from stackyard.launch.plan.schedulers.base import NodeReports, Offer
from stackyard.launch.request.intent import Intent


@dataclass(frozen=True)
class StackInUse:
    """The revision of a job; all fields empty: the environment of your shell."""

    module: str = ""
    folder: str = ""
    prefix: str = ""
    lock_hash: str = ""
    change: EnvironmentChange = field(default_factory=EnvironmentChange)
    image: str = ""
    """The file that has all its files, where the revision is an image."""


@dataclass(frozen=True)
class PlanContext:
    """The other inputs of a plan besides intent and site.

    Attributes:
        allocation: the allocated nodes, or None (not yet, or never: this machine only).
        environ: the environment variables of your shell.
        offer: what the scheduler reports about the nodes; None: not queried (`with_offer`).
    """

    scheduler: str = "none"
    allocation: Allocation | None = None
    stack: StackInUse = field(default_factory=StackInUse)
    environ: Mapping[str, str] = field(default_factory=dict)
    offer: Offer | None = None

    @property
    def batch(self) -> Batch:
        """The scheduler itself. Raises InputError for an unknown one."""
        return schedulers.get(self.scheduler)


def plan_context(
    site: Site, environ: Mapping[str, str], stack: StackInUse | None = None, *, launcher: str = ""
) -> PlanContext:
    """The site's scheduler, else the one on this machine, and the allocation that `environ` describes.

    Args:
        launcher: the launcher that was requested: ``local`` needs no scheduler, and outside of an allocation mpirun
            and mpiexec start the ranks on this machine too.
    """
    kind = "none" if launcher == "local" else site.scheduler.kind or schedulers.detect(dict(environ))
    batch = schedulers.get(kind, site.scheduler)
    variables = batch.variables(environ)
    allocation = batch.allocation(variables)
    if allocation is None and launcher in ("mpirun", "mpich"):
        kind = "none"
    return PlanContext(kind, allocation, stack or StackInUse(), environ=variables)


def with_offer(context: PlanContext, intent: Intent, site: Site) -> PlanContext:
    """The context with the scheduler's report on the allocated nodes, or before allocation on the partition.

    Nothing is added if the site describes its nodes and the scheduler cannot be queried (a script for another cluster).

    Raises:
        InputError: more nodes are requested than the partition has.
    """
    reports = context.batch.reports
    if reports is None:
        return context
    if context.allocation is not None:
        return replace(context, offer=_allocated(reports, context, context.allocation, intent, site))
    kind = site.nodes[nodes.pick_kind(site, intent).kind] if site.nodes else NodeKind()
    offer = reports.of_partition(intent.batch.queue or kind.queue or site.scheduler.queue)
    count = intent.nodes + intent.spare
    if offer is not None and count > offer.nodes:
        raise InputError(
            f"{count} nodes requested, but partition {offer.partition} has {offer.nodes}",
            hint=f"request -N {max(1, offer.nodes - intent.spare)}, or another partition with -p; "
            "`sinfo -s` lists partitions",
        )
    return replace(context, offer=offer)


def _allocated(reports: NodeReports, context: PlanContext, allocation: Allocation, intent: Intent, site: Site) -> Offer:
    """The scheduler's report on the allocated nodes; without GPUs if the site does not request them."""
    counted = site.scheduler.gpu_request != "none"
    some = not site.nodes or any(node.gpu.count or node.domains for node in site.nodes.values())
    offer = reports.of_allocation(
        allocation, context.environ, here=os.uname().nodename.partition(".")[0], described=bool(site.nodes),
        gpus=counted and some and intent.gpus_per_rank != 0,
    )  # fmt: skip
    return offer if counted else replace(offer, gpus=None)


def need_scheduler(context: PlanContext) -> None:
    """Raise MissingError without a scheduler for batch jobs."""
    if context.scheduler == "none":
        raise MissingError(
            "no scheduler found: none of sbatch, bsub, qsub, flux is on PATH",
            hint="use `stackyard launch` to run here; to plan for a cluster: submit --dry-run --scheduler slurm",
        )
