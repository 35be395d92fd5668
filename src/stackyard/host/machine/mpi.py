"""The MPI of this machine: the family of the mpiexec that comes first on a PATH."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Literal

from stackyard.core.late import dataclass
from stackyard.host.run.command import run, which

_MARKS: tuple[tuple[str, Literal["mpirun", "mpich"]], ...] = (
    ("HYDRA", "mpich"),  # MPICH and its wheels, Intel MPI, MVAPICH
    ("Intel(R) MPI", "mpich"),
    ("OpenRTE", "mpirun"),
    ("Open MPI", "mpirun"),
    ("prterun", "mpirun"),
)
_PROGRAMS = {"mpirun": ("mpirun", "mpiexec"), "mpich": ("mpiexec.hydra", "mpiexec", "mpirun")}


@dataclass(frozen=True)
class Mpi:
    """The mpiexec of an MPI, or of PALS. `launcher` is the launcher that renders its options; `program` is absolute.

    `spectrum`: IBM Spectrum MPI, an Open MPI with options of its own.
    """

    launcher: Literal["mpirun", "mpich", "pals"]
    program: Path
    spectrum: bool = False


def find_mpi(environ: Mapping[str, str]) -> Mpi | None:
    """The MPI whose mpiexec comes first on this PATH; None if there is none, or an unknown one.

    HPE installs PALS below ``/opt/cray/pals/<version>/bin``.
    """
    path = which("mpiexec", environ) or which("mpirun", environ)
    if path is None:
        return None
    if "pals" in (*path.parts, *path.resolve().parts):
        return Mpi("pals", path)
    said = run([path, "--version"], env=dict(environ), check=False, timeout_s=30).output
    launcher = next((name for mark, name in _MARKS if mark in said), None)
    if launcher is None:
        return None
    for name in _PROGRAMS[launcher]:
        beside = path.parent / name
        if beside.exists():
            path = beside
            break
    return Mpi(launcher, path, "Spectrum MPI" in said)
