"""Chooses the launcher of a job: the one named by the job or the site, else by scheduler or MPI."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from stackyard.core.errors import InputError, MissingError
from stackyard.host.machine.daemons import slurm_settings
from stackyard.host.machine.mpi import Mpi, find_mpi
from stackyard.host.run.command import run, which
from stackyard.inputs.sites.jobmodels import Scheduler
from stackyard.launch.plan import backends, launchers
from stackyard.launch.plan.context import PlanContext
from stackyard.launch.plan.model import LaunchLine
from stackyard.launch.request.intent import Intent


def launcher_name(intent: Intent, scheduler: Scheduler, context: PlanContext) -> str:
    """The launcher of a job.

    PBS leaves the start of ranks to the MPI: on HPE Cray systems to PALS, elsewhere to Open MPI or hydra, whose mpiexec
    take other options. So if none is named, the mpiexec on PATH decides.

    Raises:
        MissingError: no mpiexec found, where it decides.
    """
    if intent.launcher:
        return intent.launcher
    if context.scheduler == "none":
        return _alone(context) if backends.needs_mpi(intent) else "local"
    return launchers.default_name(of_kind(scheduler, context)) or _by_mpi(context)


def of_kind(scheduler: Scheduler, context: PlanContext) -> Scheduler:
    """The site's settings, with the detected scheduler if the site names none."""
    return scheduler if scheduler.kind else scheduler.model_copy(update={"kind": context.scheduler})


def _mpi(context: PlanContext) -> Mpi | None:
    return find_mpi(context.stack.change.apply(context.environ))


def _alone(context: PlanContext) -> str:
    """The launcher of an MPI program on this machine; PALS works in a job only."""
    mpi = _mpi(context)
    if mpi is None or mpi.launcher == "pals":
        hint = "use a stack that has an MPI (--with), or put mpiexec on PATH"
        raise MissingError("the program uses MPI, but mpiexec of Open MPI or MPICH was not found on PATH", hint=hint)
    return mpi.launcher


def _by_mpi(context: PlanContext) -> str:
    mpi = _mpi(context)
    if mpi is None:
        raise MissingError(
            f"cannot tell what starts the ranks of a {context.scheduler.upper()} job: "
            "mpiexec of PALS, Open MPI or MPICH not found on PATH",
            hint="load the module of the MPI, name it with --launcher, or set scheduler.launcher in site.yaml: "
            "pals, mpirun (Open MPI) or mpich (MPICH, Intel MPI)",
        )
    return mpi.launcher


def with_pmi(scheduler: Scheduler, context: PlanContext, linked: tuple[Path, str] | None = None) -> Scheduler:
    """The site's settings, with the PMI of the program's own MPI where srun's default differs.

    MpiDefault of slurm.conf suits the cluster's own MPI; a program, a stack or a virtual environment may have another.

    Args:
        linked: the program and the name of the MPI library that it is linked to, if it is compiled.
    """
    environ = context.stack.change.apply(context.environ)
    kind = "" if scheduler.mpi else _linked_pmi(linked) if linked else _pmi_of_environment(context, environ)
    if not kind or slurm_settings(environ).get("MpiDefault", kind).startswith(kind):
        return scheduler
    if linked and kind == "pmi2" and "libpmix" in run(["ldd", linked[0]], env=dict(environ), check=False).output:
        return scheduler  # an MPICH that was built for PMIx
    known = run(["srun", "--mpi=list"], env=dict(environ), check=False, timeout_s=20).output.split()
    return scheduler.model_copy(update={"mpi": kind}) if kind in known else scheduler


def _linked_pmi(linked: tuple[Path, str]) -> str:
    """The PMI by the MPI library of a program: libmpi.so.12 is the common binary interface of MPICH and Intel MPI."""
    name = linked[1]
    return next((kind for start, kind in _LIBRARIES.items() if name.startswith(start)), "")


def _pmi_of_environment(context: PlanContext, environ: Mapping[str, str]) -> str:
    """The PMI of the MPI that a stack, a virtual or a conda environment brings; empty if it brings none."""
    path = which("mpiexec", environ)
    own = (context.stack.prefix, environ.get("VIRTUAL_ENV", ""), environ.get("CONDA_PREFIX", ""))
    if path is None or not any(root and path.is_relative_to(root) for root in own):
        return ""
    mpi = find_mpi(environ)
    return _PMI.get(mpi.launcher, "") if mpi is not None else ""


_LIBRARIES = {"libmpich.so": "pmi2", "libmpi.so.12": "pmi2", "libmpi.so.40": "pmix"}
"""The kind of srun --mpi for the MPI libraries of MPICH, of its binary interface, and of Open MPI 3 and later."""
_PMI = {"mpich": "pmi2", "mpirun": "pmix"}
"""The kind of srun --mpi for the MPI of each launcher: MPICH and Intel MPI, Open MPI."""


def is_spectrum(context: PlanContext) -> bool:
    """Whether the MPI of the job is IBM's, as far as this PATH shows."""
    mpi = _mpi(context)
    return mpi is not None and mpi.spectrum


def with_mpi(line: LaunchLine, name: str, context: PlanContext, batch_job: bool) -> LaunchLine:
    """The launch line with the stack's own mpirun or mpiexec, if any: launcher and ranks must use the same MPI.

    Raises:
        InputError: the MPI in use does not accept the options of this launcher.
    """
    if name not in ("mpirun", "mpich"):
        return line
    mpi = _mpi(context)
    own = mpi is not None and bool(context.stack.prefix) and mpi.program.is_relative_to(context.stack.prefix)
    if mpi is None or mpi.launcher == "pals" or (batch_job and not own):  # PATH here may differ from PATH on the nodes
        return line
    if mpi.launcher != name:
        hint = f"use --launcher {mpi.launcher}, or put the other MPI first on PATH"
        raise InputError(f"{mpi.program} does not accept the options of --launcher {name}", hint=hint)
    return replace(line, words=(str(mpi.program), *line.words[1:])) if own else line
