"""The launchers: one `Layout` rendered as a command line of srun, jsrun, mpirun, hydra, PALS, Flux or this machine.

Each is a small class with one method that turns a `LaunchRequest` into words, each group of words with its reason. The
complete command is ``line.words + (path of rank.sh,)``; rank.sh contains the program, so nothing is quoted here.
Nothing on a command line grows with the number of hosts, except a compressed host list.
"""

from __future__ import annotations

from stackyard.core import plugins
from stackyard.inputs.sites.jobmodels import Scheduler
from stackyard.launch.plan import schedulers
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

GROUP = "stackyard.launchers"
"""The entry points of plug-ins; each is a `Launcher`."""


def get(name: str) -> Launcher:
    """The launcher of this name, including those of plug-ins. Raises InputError, which lists the known ones."""
    return plugins.find(GROUP, name, TABLE, Launcher, "launcher", "use one of {}")


def default_name(scheduler: Scheduler) -> str:
    """The launcher of a site: the named one, else its scheduler's; empty: the mpiexec on PATH decides.

    Without a scheduler, ranks start on this machine.
    """
    return scheduler.launcher or schedulers.get(scheduler.kind or "none").default_launcher(scheduler)
