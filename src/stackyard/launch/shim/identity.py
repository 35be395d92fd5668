"""The identity of a rank: one launcher's variables, read as a complete set.

Every launcher has its own names, and several sets are often present at once (mpirun inside a Slurm batch step leaves
``SLURM_PROCID=0`` to all of its ranks). An incomplete set was copied from elsewhere. So identity is never combined from
two families.

Sources of the names: torchrun ``torch/distributed/elastic/agent``; Open MPI 4.1 ``mpirun(1)``; Slurm 22.05
``srun(1)``, output environment variables; MPICH 4.0 Hydra, as it sets them; MVAPICH2 user guide, section on local
rank; flux-core ``flux-environment(7)``; PALS and Cray PMI ``intro_mpi`` and Slurm's ``mpi/cray_shasta`` plugin; JSM as
Spectrum MPI reads it. ``OMPI_COMM_WORLD_NODE_RANK`` is the rank *within* the node (Open MPI 4.1 gives 0 and 1 on each
of two nodes with two ranks), so it is not used.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from stackyard.core.errors import InputError
from stackyard.core.late import dataclass
from stackyard.launch.plan.model import RankNames

FAMILIES: dict[str, RankNames] = {
    "torchrun": RankNames(
        ("RANK",), ("WORLD_SIZE",), ("LOCAL_RANK",), ("LOCAL_WORLD_SIZE",), ("GROUP_RANK",), ("GROUP_WORLD_SIZE",),
        own=False,
    ),
    "jsrun": RankNames(
        ("JSM_NAMESPACE_RANK",), ("JSM_NAMESPACE_SIZE",), ("JSM_NAMESPACE_LOCAL_RANK",), ("JSM_NAMESPACE_LOCAL_SIZE",)
    ),
    "openmpi": RankNames(
        ("OMPI_COMM_WORLD_RANK",), ("OMPI_COMM_WORLD_SIZE",), ("OMPI_COMM_WORLD_LOCAL_RANK",),
        ("OMPI_COMM_WORLD_LOCAL_SIZE",),
    ),
    "flux": RankNames(("FLUX_TASK_RANK",), ("FLUX_JOB_SIZE",), ("FLUX_TASK_LOCAL_ID",), nodes=("FLUX_JOB_NNODES",)),
    "pals": RankNames(
        ("PALS_RANKID",), ("PMI_SIZE",), ("PALS_LOCAL_RANKID",), ("PALS_LOCAL_SIZE", "PMI_LOCAL_SIZE"),
        ("PALS_NODEID",),
    ),
    "mvapich": RankNames(
        ("MV2_COMM_WORLD_RANK",), ("MV2_COMM_WORLD_SIZE",), ("MV2_COMM_WORLD_LOCAL_RANK",),
        ("MV2_COMM_WORLD_LOCAL_SIZE",),
    ),
    "hydra": RankNames(("PMI_RANK",), ("PMI_SIZE",), ("MPI_LOCALRANKID",), ("MPI_LOCALNRANKS",), own=False),
    "cray": RankNames(("PMI_RANK",), ("PMI_SIZE",), ("PMI_LOCAL_RANK",), ("PMI_LOCAL_SIZE",), own=False),
    "stackyard": RankNames(
        ("STACKYARD_TASK",), ("STACKYARD_TASKS",), ("STACKYARD_LOCAL_TASK",), ("STACKYARD_LOCAL_TASKS",),
        ("STACKYARD_NODE",),
    ),
    "slurm": RankNames(
        ("SLURM_PROCID",), ("SLURM_STEP_NUM_TASKS", "SLURM_NTASKS", "SLURM_NPROCS"), ("SLURM_LOCALID",),
        node=("SLURM_NODEID",), nodes=("SLURM_STEP_NUM_NODES", "SLURM_NNODES"),
        spread=("SLURM_STEP_TASKS_PER_NODE", "SLURM_TASKS_PER_NODE"),
    ),
}  # fmt: skip
"""In order of precedence: innermost first, Slurm last."""


@dataclass(frozen=True)
class Identity:
    """A rank's identity. None: the launcher does not set the value, and it cannot be derived."""

    family: str
    rank: int
    size: int
    local_rank: int
    local_size: int | None = None
    node: int | None = None
    nodes: int | None = None


def detect(environ: Mapping[str, str]) -> Identity:
    """The identity of a process, from its variables.

    Raises:
        InputError: no family is complete (the message names what is missing); two disagree; a value is not a number.
    """
    whole = [identity for family in FAMILIES if (identity := _read(family, environ))]
    halves = _halves(environ, {one.family for one in whole})
    if halves:
        raise InputError(
            f"the variables of a rank are incomplete: {'; '.join(halves)}",
            hint="let the launcher set them; do not export single ones in the batch script",
        )
    if not whole:
        raise InputError(
            "not a rank: no launcher has set the variables of this process",
            hint="start it with `stackyard launch`, srun, mpirun, jsrun or flux run",
        )
    _agree(whole, environ)
    return whole[0]


def _read(family: str, environ: Mapping[str, str]) -> Identity | None:
    """The identity from one family, or None if its set is incomplete."""
    names = FAMILIES[family]
    rank, size, local = (_number(group, environ) for group in (names.rank, names.size, names.local_rank))
    if rank is None or size is None or local is None:
        return None
    node = _number(names.node, environ)
    nodes = _number(names.nodes, environ)
    local_size = _number(names.local_size, environ)
    spread = _first(names.spread, environ)
    if spread and node is not None:
        counts = tasks_per_node(spread)
        local_size = counts[node] if node < len(counts) else None
    elif local_size is None and family == "flux" and nodes and size % nodes == 0:
        local_size = size // nodes
    return Identity(family, rank, size, local, local_size, node, nodes)


def tasks_per_node(text: str) -> list[int]:
    """Slurm's list of tasks per node: ``2(x3),1`` is 2, 2, 2, 1. Raises InputError."""
    counts: list[int] = []
    for part in text.split(","):
        match = re.fullmatch(r"(\d+)(?:\(x(\d+)\))?", part.strip())
        if not match:
            raise InputError(f"{text!r} is not a list of tasks per node as Slurm writes it", hint="example: 2(x3),1")
        counts += [int(match[1])] * int(match[2] or 1)
    return counts


def _first(names: tuple[str, ...], environ: Mapping[str, str]) -> str:
    return next((environ[name] for name in names if environ.get(name)), "")


def _number(names: tuple[str, ...], environ: Mapping[str, str]) -> int | None:
    name = next((name for name in names if environ.get(name)), None)
    if name is None:
        return None
    if not (environ[name].isascii() and environ[name].isdigit()):
        raise InputError(f"{name}={environ[name]!r} is not a number")
    return int(environ[name])


def _halves(environ: Mapping[str, str], whole: set[str]) -> list[str]:
    """Families with an incomplete set. Shared names (RANK, PMI_RANK) count only if no family is complete."""
    names_found = []
    for family, names in FAMILIES.items():
        if family in whole or (whole and not names.own) or not _first(names.rank, environ):
            continue
        pair = (names.size, names.local_rank)
        missing = [group[0] for group in pair if not _first(group, environ)]
        names_found.append(f"{family} sets {names.rank[0]} but not {' and '.join(missing)}")
    return names_found


def _agree(whole: list[Identity], environ: Mapping[str, str]) -> None:
    """Reject two families that contradict each other, unless one runs inside the other.

    Any other may run inside Slurm (which starts mpirun's daemons), and torchrun inside anything: its own agent sets
    TORCHELASTIC_RUN_ID, which is missing where RANK was exported by hand.
    """
    inner = [identity for identity in whole if identity.family != "slurm"]
    if inner and inner[0].family == "torchrun":
        if "TORCHELASTIC_RUN_ID" in environ or "STACKYARD_STEP" in environ:
            return
        inner = whole
    for other in inner[1:]:
        first = inner[0]
        if (first.rank, first.size) != (other.rank, other.size):
            raise InputError(
                f"rank mismatch: {first.rank} of {first.size} by {first.family}, {other.rank} of {other.size} by "
                f"{other.family}",
                hint="the variables of one of them were copied: do not export them in the batch script",
            )


def identity_text(names: RankNames, prefix: str = "") -> str:
    """Shell text that reads the variables of a rank into ``task``, ``tasks``, ``local`` and ``node``; empty: not set.

    Plain parameter expansion: no process is started. `prefix` is put before the four names, so that they do
    not collide with variables of the user.
    """
    fields = {"task": names.rank, "tasks": names.size, "local": names.local_rank, "node": names.node}
    return "\n".join(f"{prefix}{variable}={_expansion(group)}" for variable, group in fields.items()) + "\n"


def names_of(names: RankNames) -> tuple[str, ...]:
    """The variables that must be set for a complete identity."""
    return (names.rank[0], names.size[0], names.local_rank[0])


def _expansion(names: tuple[str, ...]) -> str:
    text = ""
    for name in reversed(names):
        text = f"${{{name}:-{text}}}"
    return text
