"""The tests' image runs a deployed stack in Apptainer, as SIF, SquashFS and directory, and over nodes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from stackyard.core.errors import MissingError
from stackyard.host.run.command import run
from support import images, programs, torchstack
from support.slurm import SlurmCluster

pytestmark = pytest.mark.real

WHO = "from mpi4py import MPI; w = MPI.COMM_WORLD; print('rank', w.rank, 'of', w.size, MPI.Get_processor_name())"
MPI_AS_ROOT = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}


@pytest.fixture(scope="module")
def yard() -> Path:
    """A yard with a torch stack; Apptainer and its image are made, too."""
    try:
        images.image_sif()
        return torchstack.torch_yard()
    except MissingError as error:
        pytest.skip(f"{error}; {error.detail}")


@pytest.mark.parametrize("image", [images.image_sif, images.image_squashfs, images.image_directory])
def test_apptainer_runs_a_stack_that_is_bound(yard: Path, image: Callable[[], Path]) -> None:
    program = "import os, numpy; os.environ['APPTAINER_CONTAINER']; print(numpy.ones(3).sum())"
    argv = ["apptainer", "--quiet", "exec", "--bind", yard, image(), torchstack.python(yard), "-c", program]
    assert run(argv, env=images.environ()).stdout.split()[0] == "3.0"


def test_charliecloud_runs_the_directory() -> None:
    programs.need("ch-run")
    done = run(
        ["ch-run", images.image_directory(), "--", "sh", "-c", "ls -d /work /usr/bin/sed"],
        env=images.environ(USER="root"),
    )
    assert done.stdout.split() == ["/usr/bin/sed", "/work"]


@pytest.mark.slow
def test_ranks_in_the_image_find_each_other(slurm: SlurmCluster, yard: Path) -> None:
    """The launcher's PMIx server keeps its files outside; with their directory bound, four ranks are one world."""
    environ = images.environ()
    bound = f"{yard},{slurm.directory}/spmix"
    argv = ["srun", "--mpi=pmix", "-N2", "--ntasks-per-node=2", "apptainer", "--quiet", "exec", "--bind", bound,
            images.image_sif(), torchstack.python(yard), "-c", WHO]  # fmt: skip
    variables = {name: environ[name] for name in ("PATH", "APPTAINER_USERNS")}
    done = slurm.run(*argv, timeout_s=240, **variables, **MPI_AS_ROOT)
    lines = sorted(done.stdout.splitlines())
    assert [line.rpartition(" ")[0] for line in lines] == [f"rank {rank} of 4" for rank in range(4)]
    assert len({line.split()[-1] for line in lines}) == 2
