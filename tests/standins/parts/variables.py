"""What each scheduler sets for a job's script.

LSF   https://www.ibm.com/docs/en/spectrum-lsf/10.1.0?topic=variables-environment-set-job-execution
PBS   qsub(1B), ENVIRONMENT
FLUX  flux-environment(7)
SGE   submit(1), ENVIRONMENTAL VARIABLES; sge_pe(5), PE_HOSTFILE
"""

from __future__ import annotations

import os
from pathlib import Path

from .jobs import Job
from .machine import Machine


def of(job: Job, machine: Machine, directory: Path) -> dict[str, str]:
    """The environment of a job that has its hosts. LSF and Flux hand on that of the submission, the others do not."""
    handed = _login(job) if job.family in ("pbs", "sge") else dict(os.environ)
    return {**handed, **{"lsf": _lsf, "pbs": _pbs, "flux": _flux, "sge": _sge}[job.family](job, machine, directory)}


def _login(job: Job) -> dict[str, str]:
    """What a login gives, and what -v and -V (qsub(1B)) hand on. The stand-ins' own variables are always there."""
    known = ("HOME", "LOGNAME", "USER", "SHELL", "TZ", "LANG")
    kept = {name: value for name, value in os.environ.items() if name in known or name.startswith("STANDIN_")}
    path = f"{Path(__file__).resolve().parent.parent / job.family}:/usr/local/bin:/usr/bin:/bin"
    return {**kept, "PATH": path, **job.facts.get("handed", {})}


def _lsf(job: Job, machine: Machine, directory: Path) -> dict[str, str]:
    slots = int(job.facts.get("slots", len(machine.cores)))
    launch = [machine.launch] if job.facts.get("csm") and machine.launch else []
    listed = directory / "hosts"
    listed.write_text("\n".join([*launch, *(host for host in job.hosts for _ in range(slots))]) + "\n")
    pairs = [*(f"{host} 1" for host in launch), *(f"{host} {slots}" for host in job.hosts)]
    return {
        "LSB_JOBID": str(job.array if job.array is not None else job.number),
        "LSB_JOBINDEX": str(job.index or 0),
        "LSB_JOBNAME": job.name,
        "LSB_QUEUE": job.queue,
        "LSB_SUB_HOST": os.uname().nodename,
        "LSB_MCPU_HOSTS": " ".join(pairs),
        "LSB_HOSTS": " ".join(listed.read_text().split()),
        "LSB_DJOB_NUMPROC": str(slots * len(job.hosts) + len(launch)),
        "LSB_DJOB_RANKFILE": str(listed),
        "LSB_DJOB_HOSTFILE": str(listed),
        "LS_SUBCWD": job.cwd,
        "STANDIN_SMT": str(job.facts.get("smt", machine.smt)),
    }


def _pbs(job: Job, machine: Machine, directory: Path) -> dict[str, str]:
    listed = directory / "nodefile"
    per_host = int(job.facts.get("mpiprocs", 1))
    listed.write_text("".join(f"{host}\n" for host in job.hosts for _ in range(per_host)))
    index = {} if job.index is None else {"PBS_ARRAY_INDEX": str(job.index), "PBS_ARRAY_ID": str(job.facts["array_id"])}
    return {
        "PBS_JOBID": str(job.facts["id"]),
        "PBS_JOBNAME": job.name,
        "PBS_NODEFILE": str(listed),
        "PBS_O_WORKDIR": job.cwd,
        "PBS_O_HOST": os.uname().nodename,
        "PBS_O_HOME": os.environ.get("HOME", ""),
        "PBS_QUEUE": job.queue,
        "PBS_ENVIRONMENT": "PBS_BATCH",
        "PBS_NODENUM": "0",
        "PBS_TASKNUM": "1",
        "NCPUS": str(job.facts.get("ncpus", 1)),
        **index,
    }


def _sge(job: Job, machine: Machine, directory: Path) -> dict[str, str]:
    listed = directory / "pe_hostfile"
    listed.write_text("".join(f"{host} {len(machine.cores)} {job.queue}@{host} <NULL>\n" for host in job.hosts))
    return {
        "JOB_ID": str(job.array or job.number), "JOB_NAME": job.name, "QUEUE": job.queue, "ENVIRONMENT": "BATCH",
        "PE_HOSTFILE": str(listed), "PE": str(job.facts["pe"]), "NSLOTS": str(job.facts["slots"]),
        "NHOSTS": str(len(job.hosts)), "SGE_TASK_ID": "undefined" if job.index is None else str(job.index),
        "SGE_O_WORKDIR": job.cwd, "RESTARTED": str(int(job.starts > 1)),
    }  # fmt: skip


def _flux(job: Job, machine: Machine, directory: Path) -> dict[str, str]:
    """flux-environment(7), INITIAL PROGRAM ENVIRONMENT: FLUX_JOB_* are not set for a batch script."""
    return {
        "FLUX_URI": f"local://{directory}/local-0",
        "FLUX_ENCLOSING_ID": str(job.facts["id"]),
        "STANDIN_FLUX_HOSTS": ",".join(job.hosts),
        "STANDIN_FLUX_JOB": str(job.facts["id"]),
    }
