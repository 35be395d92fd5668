"""The launchers: one `Layout` rendered as a command line of srun, jsrun, mpirun, hydra, PALS, Flux or this machine.

Each is a small class with one method that turns a `LaunchRequest` into words, each group of words with its reason. The
complete command is ``line.words + (path of rank.sh,)``; rank.sh contains the program, so nothing is quoted here.
Nothing on a command line grows with the number of hosts, except a compressed host list.
"""

from __future__ import annotations

from stackyard.core.errors import InputError
from stackyard.inputs.sites.sitemodels import Scheduler
from stackyard.launch.plan.launchers.flux import Flux
from stackyard.launch.plan.launchers.jsrun import Jsrun
from stackyard.launch.plan.launchers.local import Local
from stackyard.launch.plan.launchers.mpich import Mpich
from stackyard.launch.plan.launchers.mpirun import Mpirun
from stackyard.launch.plan.launchers.pals import Pals
from stackyard.launch.plan.launchers.srun import Srun
from stackyard.launch.plan.model import Launcher

TABLE: dict[str, Launcher] = {
    launcher.name: launcher for launcher in (Srun(), Jsrun(), Mpirun(), Mpich(), Pals(), Flux(), Local())
}

_BY_KIND = {"slurm": "srun", "flux": "flux", "none": "local", "": "local"}


def get(name: str) -> Launcher:
    """The launcher of that name. Raises InputError, which lists the known ones."""
    if name not in TABLE:
        raise InputError(f"no such launcher: {name}", hint=f"use one of {', '.join(TABLE)}")
    return TABLE[name]


def default_name(scheduler: Scheduler) -> str:
    """The launcher of a site's scheduler, unless the site names another one; not for PBS, which has none of its own.

    LSF uses jsrun with CSM (Summit, Sierra) and mpirun elsewhere; without a scheduler, ranks start on this machine.
    """
    if scheduler.launcher:
        return scheduler.launcher
    if scheduler.kind == "lsf":
        return "jsrun" if scheduler.csm else "mpirun"
    return _BY_KIND[scheduler.kind]
