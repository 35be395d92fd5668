"""srun, mpirun and hydra inside an allocation of a real Slurm: every rendering starts the ranks where it says."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from launcherbed import placed, ready, span

from stackyard.inputs.sites.jobmodels import Scheduler
from stackyard.launch.layout.model import Block, Layout, Node, NodeDomain
from stackyard.launch.layout.placing import plan_layout
from stackyard.launch.plan.launchers import get
from stackyard.launch.plan.model import LaunchRequest
from stackyard.launch.request.intent import Intent
from support import programs
from support.slurm import SlurmCluster

pytestmark = pytest.mark.real

NODE = Node("n", (NodeDomain(0, span(0, 15), (0, 1)), NodeDomain(0, span(16, 31), (2, 3))), 32, gpu_vendor="nvidia")
CROSSED = Node("n", (NodeDomain(0, span(0, 15), (2, 3)), NodeDomain(0, span(16, 31), (0, 1))), 32, gpu_vendor="nvidia")
TWO_CORES = Node("n", (NodeDomain(0, (0, 1)),), 2)
SHOW = "echo {rank} {local} $(hostname) ${{CUDA_VISIBLE_DEVICES-unset}}"
SLURM = Scheduler(kind="slurm", version="22.05.8")


def started(
    slurm: SlurmCluster, directory: Path, name: str, layout: Layout, scheduler: Scheduler = SLURM, *,
    nodes: int = 2, rank: str = "$SLURM_PROCID", local: str = "$SLURM_LOCALID", **changes: Any,
) -> dict[int, tuple[int, str, str]]:  # fmt: skip
    """Start ranks in an allocation; for each its local rank, host and visible GPUs."""
    line = get(name).line(LaunchRequest(layout, scheduler, **changes))
    asked = "--gres=gpu:h100:4" if scheduler.gres_type else "--gpus-per-node=4"  # a step's GPUs have the job's form
    gpus = [asked] if layout.gpus_per_rank else []
    room = [f"--ntasks-per-node={layout.ranks_per_node}", "-c", str(layout.cores_per_rank)]
    program = ["sh", "-c", SHOW.format(rank=rank, local=local)]
    done = slurm.run(
        "salloc", "-Q", "-N", str(nodes), *room, *gpus, *ready(line, directory), *program,
        OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1",
    )  # fmt: skip
    rows = [row.split() for row in done.stdout.splitlines()]
    return {int(row[0]): (int(row[1]), row[2], row[3]) for row in rows}


def expected(layout: Layout, hosts: list[str], found: dict[int, tuple[int, str, str]]) -> None:
    """Ranks are numbered as planned; hosts are in Slurm's order where none were named."""
    assert sorted(found) == list(range(layout.ranks))
    names = hosts or sorted({host for _, host, _ in found.values()})
    assert len(names) == layout.nodes
    for rank, host, slot in layout.places():
        assert found[rank][:2] == (slot.local_rank, names[host])


CASES: dict[str, tuple[Node, dict[str, Any], dict[str, Any], list[str]]] = {
    "all see all": (NODE, {}, {}, ["unset"] * 4),
    "on nodes shared with others": (NODE, {}, {"exclusive": False}, ["0,1,2,3"] * 4),
    "each its own": (NODE, {"gpu_visibility": "own"}, {}, ["0", "1", "2", "3"]),
    # this Slurm knows of no GPU which cores are near it: none is nearer, so that each task is given all
    "by task": (NODE, {"gpu_visibility": "own"}, {"gpu_request": "gpus-per-task"}, ["0,1,2,3"] * 4),
    "two each": (NODE, {"gpu_visibility": "own", "ranks_per_node": 2}, {}, ["0,1", "2,3"]),
    "cores by mask": (CROSSED, {"gpu_visibility": "own"}, {}, ["0", "1", "2", "3"]),
    "by task, cores by mask": (
        CROSSED,
        {"gpu_visibility": "own"},
        {"gpu_request": "gpus-per-task"},
        ["0", "1", "2", "3"],
    ),
    "dealt": (NODE, {"distribution": "cyclic", "gpu_visibility": "own"}, {}, ["0", "1", "2", "3"]),
    "gres": (NODE, {"gpu_visibility": "own"}, {"gpu_request": "gres", "gres_type": "h100"}, ["0", "1", "2", "3"]),
    "by task, seen by all": (NODE, {}, {"gpu_request": "gpus-per-task"}, ["unset"] * 4),
    "reserved cores": (NODE, {"cores_per_rank": 7}, {"core_spec": 1}, ["unset"] * 4),
    "no GPUs": (NODE, {"gpus_per_rank": 0, "ranks_per_node": 2}, {}, ["unset"] * 2),
}


@pytest.mark.parametrize("case", CASES)
def test_srun(slurm: SlurmCluster, tmp_path: Path, case: str) -> None:
    node, intent, scheduler, gpus = CASES[case]
    layout = plan_layout(Intent(nodes=2, **intent), node)
    # a 22.05 of the test binds nothing: it says so for every --cpu-bind and goes on
    found = started(slurm, tmp_path, "srun", layout, SLURM.model_copy(update=scheduler))
    expected(layout, [], found)
    assert [found[rank][2] for rank in sorted(found, key=lambda r: (found[r][1], found[r][0]))] == gpus * 2


def test_srun_gives_the_gpus_in_the_order_of_the_ranks(slurm: SlurmCluster, tmp_path: Path) -> None:
    slots = placed(NODE, (span(0, 7), span(8, 15)), ((3,), (1,)))
    found = started(slurm, tmp_path, "srun", Layout(NODE, (Block(0, 2, slots),), "own"))
    assert {rank: gpus for rank, (_, _, gpus) in found.items()} == {0: "3", 1: "1", 2: "3", 3: "1"}


def test_masks_may_name_all_cores_of_a_node(slurm: SlurmCluster, tmp_path: Path) -> None:
    """-c implies --exact: eight cores of Slurm's choice. Without it the step has all, and any mask may be obeyed."""
    program = ["sh", "-c", "scontrol --oneliner show step $SLURM_JOB_ID.$SLURM_STEP_ID"]
    cpus = {}
    for name, first in {"masks": 16, "counts": 0}.items():
        slots = placed(NODE, (span(first, first + 3), span(first + 4, first + 7)))
        layout = Layout(NODE, (Block(0, 1, slots),))
        line = get("srun").line(LaunchRequest(layout, SLURM))
        done = slurm.run("salloc", "-Q", "-N1", "-c32", *ready(line, tmp_path), *program)
        cpus[name] = {word for word in done.stdout.split() if word.startswith("CPUs=")}
    assert cpus == {"masks": {"CPUs=32"}, "counts": {"CPUs=8"}}


@pytest.mark.parametrize(("kind", "variable"), [("pmix", "$PMIX_RANK"), ("pmi2", "$PMI_RANK")])
def test_srun_wires_up_mpi(slurm: SlurmCluster, tmp_path: Path, kind: str, variable: str) -> None:
    layout = plan_layout(Intent(nodes=2, ranks_per_node=2), TWO_CORES)
    scheduler = SLURM.model_copy(update={"mpi": kind})
    expected(layout, [], started(slurm, tmp_path, "srun", layout, scheduler, mpi=True, rank=variable))


@pytest.mark.parametrize("name", ["srun", "mpirun", "mpich"])
def test_some_nodes_of_an_allocation(slurm: SlurmCluster, tmp_path: Path, name: str) -> None:
    needs(name)
    layout = plan_layout(Intent(nodes=2, ranks_per_node=2), TWO_CORES, ("n2", "n4"))
    rank, local = VARIABLES[name]
    found = started(slurm, tmp_path, name, layout, nodes=4, inside=False, rank=rank, local=local)
    expected(layout, ["n2", "n4"], found)


VARIABLES = {
    "srun": ("$SLURM_PROCID", "$SLURM_LOCALID"),
    "mpirun": ("$OMPI_COMM_WORLD_RANK", "$OMPI_COMM_WORLD_LOCAL_RANK"),
    "mpich": ("$PMI_RANK", "$MPI_LOCALRANKID"),
}


def needs(name: str) -> None:
    programs.need({"mpirun": "mpirun", "mpich": "mpiexec.hydra"}.get(name, "bash"))


@pytest.mark.parametrize("distribution", ["block", "cyclic"])
@pytest.mark.parametrize("name", ["mpirun", "mpich"])
def test_mpi_launchers_find_the_hosts_of_the_allocation(
    slurm: SlurmCluster, tmp_path: Path, name: str, distribution: str
) -> None:
    needs(name)
    layout = plan_layout(
        Intent.model_validate({"nodes": 2, "ranks_per_node": 2, "distribution": distribution}), TWO_CORES
    )
    rank, local = VARIABLES[name]
    expected(layout, [], started(slurm, tmp_path, name, layout, rank=rank, local=local))


def test_a_rank_that_fails_ends_the_others(slurm: SlurmCluster, tmp_path: Path) -> None:
    layout = plan_layout(Intent(nodes=2, ranks_per_node=2), TWO_CORES)
    line = get("srun").line(LaunchRequest(layout, SLURM))
    program = ["sh", "-c", "[ $SLURM_PROCID = 2 ] && exit 7; exec sleep 300"]
    words = ["salloc", "-Q", "-N2", "--ntasks-per-node=2", *ready(line, tmp_path), *program]
    done = slurm.run(*words, check=False, timeout_s=240)
    assert done.returncode in (7, 143)
    assert done.seconds < 120, "the others would sleep longer"
