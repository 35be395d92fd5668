"""Rules that read the program's source, if the launch line names a file that exists."""

from __future__ import annotations

import re
from collections.abc import Iterator

from stackyard.lint.launches import AGENTS, Launch
from stackyard.lint.rules.base import Case, Hit, rule
from stackyard.lint.shell.words import is_known


@rule(
    "isolated-gpu-by-local-rank",
    evidence=("source",),
    why="With one visible GPU per task, every task sees it as device 0: 'invalid device ordinal'",
    example="srun --gpus-per-task=1 python train.py   (with torch.cuda.set_device(local_rank))",
    instead="srun --gpus-per-node=4 --gpu-bind=none python train.py",
)
def isolated_gpu_by_local_rank(case: Case) -> Iterator[Hit]:
    """GPUs bound to tasks, and a program that selects its GPU by local rank; a note if its source is not found."""
    for launch in case.steps:
        if launch.kind != "srun" or not _isolates(case, launch):
            continue
        per_node = case.step(launch).per_node
        inner = next((member for member in case.launches if launch in member.via and member.kind in AGENTS), None)
        if per_node == 1 or inner or (launch.given("ntasks") and launch.get("ntasks") == "1"):
            continue
        target = next(
            (outer for outer in reversed(case.launches) if launch in outer.via and outer.kind == "container"), launch
        )
        source = case.source(target)
        if source and source.device_line:
            yield Hit(launch.line,
                      f"each task sees one GPU, but {source.file}:{source.device_line} selects one by local rank",
                      "srun --gpus-per-node=N --gpu-bind=none ...")  # fmt: skip
        elif source and source.imports & {"lightning", "pytorch_lightning"} and (source.devices or 1) > 1:
            text = f"each task sees one GPU, and {source.file} looks for {source.devices}"
            yield Hit(launch.line, text, "srun --gpus-per-node=N --gpu-bind=none ...")
        elif source is None and per_node and (case.python(target) or _BY_RANK.search(case.script.text)):
            yield Hit(launch.line, "each task sees one GPU: cuda:<local rank> is an invalid device",
                      "srun --gpus-per-node=N --gpu-bind=none ...", "note")  # fmt: skip


_BY_RANK = re.compile(r"set_device|LOCAL_?RANK|LOCALID|--(?:distributed|ddp)\b|--device[= ]cuda|horovod|nccl", re.I)
"""What a program with one GPU per local rank is told, where it is not plainly one of Python."""


def _isolates(case: Case, launch: Launch) -> bool:
    """Whether each task sees its own GPUs only (srun manual: --gpus-per-task implies --gpu-bind=per_task)."""
    values = case.script.request.values
    bind = launch.get("gpu-bind") or values.get("gpu-bind") or ""
    if bind:
        plain = bind.removeprefix("verbose,").removeprefix("v,")
        return plain.startswith(("single", "per_task", "map_gpu", "mask_gpu", "closest")) and is_known(bind)
    return launch.get("gpus-per-task") == "1" or (values.get("gpus-per-task") or "").split(":")[-1] == "1"


@rule(
    "fork-under-mpi",
    evidence=("source",),
    why="Worker processes forked after MPI_Init share its registered memory: crashes, corrupted data, hangs",
    example="mpirun -np 8 python train.py   (DataLoader(num_workers=4))",
    instead='DataLoader(..., multiprocessing_context="forkserver")',
)
def fork_under_mpi(case: Case) -> Iterator[Hit]:
    """Forked DataLoader workers in a program that uses MPI: Horovod or mpi4py under mpirun, srun or jsrun."""
    for launch in case.launches:
        source = case.source(launch)
        if source is None or not source.loader_line or source.context or not source.imports & {"horovod", "mpi4py"}:
            continue
        outer = launch if launch.kind in ("mpirun", "srun", "jsrun", "horovodrun", "flux") else launch.ranks_of
        if outer is None or (outer.kind == "horovodrun" and outer.given("gloo")):
            continue
        sure = source.workers is not None and source.workers > 0
        gloo = outer.kind == "horovodrun" and not outer.given("mpi")
        count = source.workers if sure else "some"
        yield Hit(
            launch.line,
            f"{source.file}:{source.loader_line} forks {count} workers per rank under MPI",
            'DataLoader(..., multiprocessing_context="forkserver")',
            None if sure and not gloo else "note",
        )
