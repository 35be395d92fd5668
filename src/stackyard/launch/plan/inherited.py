"""Variables that an allocation sets for its processes, and that the scheduler's programs read as options.

A launcher must follow its command line exactly, and a submission from within a job must follow its script. Sources:
srun(1) and sbatch(1), INPUT and OUTPUT ENVIRONMENT VARIABLES; src/srun/opt.c and src/common/slurm_opt.c of Slurm 20.11
to 25.05; qsub(1B) and pbs(1B) of OpenPBS; bsub(1) of LSF; flux-environment(7).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from stackyard.launch.plan.schedulers.base import Batch

CPUS = ("SLURM_CPUS_PER_TASK", "SRUN_CPUS_PER_TASK", "SLURM_TRES_PER_TASK", "SLURM_CPUS_PER_GPU")
"""CPUs per task, as four options. Each implies ``--exact``, which takes cores away from masks. Slurm 23.11 and later
read the first and the third (22.05 to 23.02 the second instead), and srun ends where two differ from each other."""
GPUS = (
    "SLURM_GPUS", "SLURM_GPUS_PER_NODE", "SLURM_GPUS_PER_SOCKET", "SLURM_GPUS_PER_TASK", "SLURM_NTASKS_PER_GPU",
    "SLURM_NTASKS_PER_TRES", "SLURM_GPU_BIND", "SLURM_TRES_BIND",
)  # fmt: skip
"""GPUs of the job, which a step would ask for besides its own words, and their binding."""
CONTAINERS = ("PYXIS_CONTAINER_", "SLURM_UENV", "EDF_IMAGE")
"""What begins so puts each step into an image, also one that was planned for the host (Pyxis, uenv)."""
_GPU_WORDS = ("--gpus", "--gres", "--gpu-bind")

_DEVICES = ("CUDA_VISIBLE_DEVICES", "GPU_DEVICE_ORDINAL", "ROCR_VISIBLE_DEVICES", "ZE_AFFINITY_MASK")
_OWN_GPUS = ("SLURM_JOB_GPUS", "SLURM_STEP_GPUS")
_RESERVED_STEPS = 0xFFFFFFF0
"""Step numbers from here on are not those of tasks: of the batch script, of the shell of salloc (slurm.h)."""


def of_launcher(words: Sequence[str], environ: Mapping[str, str]) -> dict[str, str]:
    """The environment of a launcher, without variables that contradict its command line.

    Open MPI and hydra start their daemons with srun, so this concerns not only srun. All variables about GPUs are
    removed if the command line requests GPUs; otherwise a step gets those of its job.
    """
    own = any(word.startswith(_GPU_WORDS) for word in words)
    dropped = {*CPUS, *(GPUS if own else ())}
    return {n: value for n, value in environ.items() if n not in dropped and not n.startswith(CONTAINERS)}


def of_submission(scheduler: Batch, environ: Mapping[str, str]) -> dict[str, str]:
    """The environment of a submission: as in a shell outside of any job of this scheduler.

    ``sbatch`` passes its environment on to the job: there, variables of another job contradict the job's own. Visible
    GPUs are left out if Slurm has chosen them for this job.
    """
    if not environ.get(scheduler.job_variable):
        return dict(environ)
    pattern = re.compile(scheduler.inherited)
    dropped = _DEVICES if any(environ.get(name) for name in _OWN_GPUS) else ()
    return {name: value for name, value in environ.items() if pattern.fullmatch(name) and name not in dropped}


def is_within_step(environ: Mapping[str, str]) -> bool:
    """Whether this process is a task of a Slurm step (``srun --pty bash``), which holds its resources."""
    step = environ.get("SLURM_STEP_ID") or environ.get("SLURM_STEPID", "")
    return step.isdecimal() and int(step) < _RESERVED_STEPS
