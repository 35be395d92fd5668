"""The environment variables of your shell that a job needs: recorded with a run, and exported where PBS drops them."""

from __future__ import annotations

from collections.abc import Mapping

CARRIED = ("PATH", "LD_LIBRARY_PATH", "PYTHONPATH", "VIRTUAL_ENV", "CONDA_PREFIX", "SLURM_CONF")
CARRIED_PREFIXES = (
    "NCCL_",
    "RCCL_",
    "UCX_",
    "FI_",
    "MPICH_",
    "OMPI_MCA_",
    "HOROVOD_",
    "TORCH_",
    "JAX_",
    "OMP_",
    "MIOPEN_",
)


def is_carried(name: str) -> bool:
    """Whether a job needs this variable of your shell."""
    return name in CARRIED or name.startswith(CARRIED_PREFIXES)


def carried(environ: Mapping[str, str]) -> dict[str, str]:
    """The variables that a job needs, by name; none of them can be a secret."""
    return {name: environ[name] for name in sorted(environ) if is_carried(name)}
