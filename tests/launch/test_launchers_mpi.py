"""Real MPI programs, wired up by the rendered lines: each rank adds its number, and all know the sum."""

from __future__ import annotations

from pathlib import Path

import pytest
from launcherbed import ready

from stackyard.host.run.command import run
from stackyard.inputs.sites.jobmodels import Scheduler
from stackyard.launch.layout.model import Node, NodeDomain
from stackyard.launch.layout.placing import plan_layout
from stackyard.launch.plan.launchers import get
from stackyard.launch.plan.model import LaunchRequest
from stackyard.launch.request.intent import Intent
from support import programs
from support.slurm import SlurmCluster

pytestmark = pytest.mark.real

NODE = Node("n", (NodeDomain(0, (0, 1)),), 2)
ADD = r"""
#include <mpi.h>
#include <stdio.h>
int main(int argc, char **argv) {
    int rank, size, sum;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    MPI_Allreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    printf("%d of %d: %d\n", rank, size, sum);
    MPI_Finalize();
    return 0;
}
"""


def compiled(compiler: str, directory: Path) -> Path:
    programs.need(compiler)
    source = directory / "add.c"
    source.write_text(ADD)
    run([compiler, "-o", directory / "add", source])
    return directory / "add"


@pytest.mark.parametrize(
    ("launcher", "mpi", "compiler"),
    [
        ("srun", "pmix", "mpicc.openmpi"), ("srun", "pmi2", "mpicc.mpich"), ("mpirun", "", "mpicc.openmpi"),
        ("mpich", "", "mpicc.mpich"),
    ],
)  # fmt: skip
def test_four_ranks_on_two_nodes(slurm: SlurmCluster, tmp_path: Path, launcher: str, mpi: str, compiler: str) -> None:
    program = compiled(compiler, tmp_path)
    layout = plan_layout(Intent(nodes=2, ranks_per_node=2), NODE)
    request = LaunchRequest(layout, Scheduler(kind="slurm", version="22.05", mpi=mpi), mpi=True)
    line = get(launcher).line(request)
    done = slurm.run(
        "salloc", "-Q", "-N2", "--ntasks-per-node=2", *ready(line, tmp_path / "step"), program,
        OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1",
    )  # fmt: skip
    assert sorted(done.stdout.splitlines()) == [f"{rank} of 4: 6" for rank in range(4)]
