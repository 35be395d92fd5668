"""The schedulers: one class each with the head of a batch script and the client programs. `TABLE` names them all."""

from __future__ import annotations

from collections.abc import Mapping

from stackyard.core import plugins
from stackyard.core.errors import InputError
from stackyard.inputs.sites.jobmodels import Scheduler
from stackyard.launch.plan.schedulers.base import Batch, NoScheduler
from stackyard.launch.plan.schedulers.flux import Flux
from stackyard.launch.plan.schedulers.lsf import Lsf
from stackyard.launch.plan.schedulers.pbs import Pbs
from stackyard.launch.plan.schedulers.slurm import Slurm

__all__ = ["GROUP", "TABLE", "Batch", "detect", "get"]

GROUP = "stackyard.schedulers"
"""The entry points of plug-ins; each is a `Batch`."""
TABLE: dict[str, Batch] = {batch.name: batch for batch in (Slurm(), Lsf(), Pbs(), Flux())}
NONE = NoScheduler()


def get(name: str, scheduler: Scheduler | None = None) -> Batch:
    """A scheduler by name, including those of plug-ins; with the site's settings if they change its client programs.

    Raises:
        InputError: an unknown name.
        StackyardError: a plug-in that cannot be used.
    """
    batch = NONE if name == NONE.name else plugins.find(
        GROUP, name, TABLE, Batch, "scheduler", "set scheduler.kind in site.yaml to one of {}, none"
    )  # fmt: skip
    return batch.for_site(scheduler) if scheduler is not None else batch


def detect(environ: Mapping[str, str]) -> str:
    """``slurm``, ``lsf``, ``pbs``, ``flux``, or ``none`` if none is found; a plug-in's scheduler must be named.

    The scheduler of the current job comes first; outside a job, the only one whose submit program is on PATH. A Flux
    instance inside a job of another scheduler takes precedence over it.

    Raises InputError if several are found and none has the current allocation.
    """
    inside = [name for name, batch in TABLE.items() if environ.get(batch.job_variable)]
    if Flux.name in inside:
        return Flux.name
    if len(inside) == 1:
        return inside[0]
    names = inside or [name for name, batch in TABLE.items() if batch.is_here(environ)]
    if len(names) > 1:
        raise InputError(
            f"several schedulers found: {', '.join(names)}",
            hint="set scheduler.kind in site.yaml to the one that allocates the nodes",
        )
    return names[0] if names else NONE.name
