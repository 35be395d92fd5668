"""Checks whether a queue accepts a job of this size, by the limits in the site's file.

Otherwise a job may be rejected late, or silently: a routing queue of PBS can accept it and lose it.
"""

from __future__ import annotations

from stackyard.core.findings import Finding, counted
from stackyard.inputs.sites.jobmodels import QueueLimit
from stackyard.launch.plan.model import BatchRequest
from stackyard.launch.plan.schedulers import heads


def queue_findings(request: BatchRequest) -> tuple[Finding, ...]:
    """A refusal that names the queues which accept the job, if its own does not; empty for a queue without limits."""
    rows = request.scheduler.queues
    qos = [row for row in rows if row.qos and row.name == request.options.qos]
    own = qos or [row for row in rows if not row.qos and row.name == heads.queue(request)]
    if not own or any(_takes(row, request) for row in own):
        return ()
    kind = "quality of service" if own[0].qos else "queue"
    fitting = dict.fromkeys(f"{'--qos' if row.qos else '--queue'} {row.name}" for row in rows if _takes(row, request))
    size = counted(request.nodes, "node") + (f" for {heads.clock(request)}" if request.options.time_min else "")
    remedy = f"use {' or '.join(fitting)}" if fitting else "change -N or -t: no queue of the site file takes the job"
    return (
        Finding(
            "queue-limit", "refused", f"{kind} {own[0].name} does not take {size}",
            f"it takes {', '.join(map(_described, own))}", remedy,
        ),
    )  # fmt: skip


def _takes(row: QueueLimit, request: BatchRequest) -> bool:
    fits = row.min_nodes <= request.nodes and (not row.max_nodes or request.nodes <= row.max_nodes)
    return fits and (not row.time_min or request.options.time_min <= row.time_min)


def _described(row: QueueLimit) -> str:
    if row.max_nodes:
        nodes = f"{row.min_nodes} to {row.max_nodes} nodes"
    else:
        nodes = f"{counted(row.min_nodes, 'node')} and more"
    return nodes + (f" for up to {row.time_min / 60:g} h" if row.time_min else "")
