"""The schedulers: one class each with the head of a batch script and the client programs. `TABLE` names them all."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from stackyard.core.errors import InputError
from stackyard.host.run.command import run, which
from stackyard.inputs.sites.sitemodels import Scheduler
from stackyard.launch.plan.model import Allocation, Batch
from stackyard.launch.plan.schedulers.flux import Flux
from stackyard.launch.plan.schedulers.lsf import Lsf
from stackyard.launch.plan.schedulers.pbs import Pbs
from stackyard.launch.plan.schedulers.slurm import Slurm

__all__ = ["TABLE", "allocation", "detect", "get"]

TABLE: dict[str, Batch] = {"slurm": Slurm(), "lsf": Lsf(), "pbs": Pbs(), "flux": Flux()}

_SLURM_CONF = ("/etc/slurm/slurm.conf", "/etc/slurm-llnl/slurm.conf", "/run/slurm/conf/slurm.conf")
_PROGRAMS = {"slurm": "sbatch", "lsf": "bsub", "pbs": "qsub", "flux": "flux"}
_VARIABLES = {"slurm": "SLURM_JOB_ID", "lsf": "LSB_JOBID", "pbs": "PBS_JOBID", "flux": "FLUX_URI"}


def get(name: str, scheduler: Scheduler | None = None) -> Batch:
    """A scheduler by name, with the site's settings if they change its client programs (LSF with CSM).

    Raises InputError for an unknown name.
    """
    if name == "lsf" and scheduler is not None and scheduler.csm:
        return Lsf(submit_stdin=False)
    try:
        return TABLE[name]
    except KeyError:
        raise InputError(
            f"no such scheduler: {name}", hint=f"set scheduler.kind in site.yaml to one of {', '.join(TABLE)}, none"
        ) from None


def detect(environ: Mapping[str, str]) -> str:
    """``slurm``, ``lsf``, ``pbs``, ``flux``, or ``none`` if no scheduler is found.

    The scheduler of the current job comes first; outside a job, the only one whose submit program is on PATH. A Flux
    instance inside a job of another scheduler takes precedence over it.

    Raises InputError if several are found and none has the current allocation.
    """
    inside = [name for name, variable in _VARIABLES.items() if environ.get(variable)]
    if "flux" in inside:
        return "flux"
    if len(inside) == 1:
        return inside[0]
    found = inside or [name for name in _PROGRAMS if _is_here(name, environ)]
    if len(found) > 1:
        raise InputError(
            f"several schedulers found: {', '.join(found)}",
            hint="set scheduler.kind in site.yaml to the one that allocates the nodes",
        )
    return found[0] if found else "none"


def _is_here(name: str, environ: Mapping[str, str]) -> bool:
    """Whether a scheduler's submit program is on PATH, and for Slurm, whether it belongs to a cluster.

    Many distributions package Slurm's clients; without a configuration or a controller that answers they cannot start
    jobs.
    """
    if which(_PROGRAMS[name], environ) is None:
        return False
    if name != "slurm" or environ.get("SLURM_CONF") or any(Path(file).exists() for file in _SLURM_CONF):
        return True
    if which("scontrol", environ) is None:
        return True  # a site that wraps sbatch alone
    return run(["scontrol", "ping"], env=dict(environ), check=False, timeout_s=20).returncode == 0


def allocation(environ: Mapping[str, str]) -> Allocation | None:
    """The nodes allocated to this process, by any scheduler; None outside a job.

    The innermost allocation comes first: Flux may run inside a job of another scheduler.
    """
    for name in ("flux", "slurm", "lsf", "pbs"):
        found = TABLE[name].allocation(dict(environ))
        if found is not None:
            return found
    return None
