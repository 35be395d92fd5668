"""Whether a program uses MPI: known from its imports or its libraries; where it is not known, PMI stays on."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from stackyard.core.errors import InputError
from stackyard.inputs.sites.jobmodels import Scheduler
from stackyard.inputs.sites.sitemodels import Site
from stackyard.launch.plan.backends import choose, needs_mpi
from stackyard.launch.plan.backends.source import uses_mpi
from stackyard.launch.plan.context import PlanContext
from stackyard.launch.plan.make import make_plan
from stackyard.launch.request.intent import Intent
from support import programs
from support.cli import stackyard
from support.slurmcli import SHAPE, Work

MPI_C = r"""
#include <mpi.h>
#include <stdio.h>
int main(int argc, char **argv) {
  int rank, size;
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  printf("I am rank %d of %d\n", rank, size);
  MPI_Finalize();
  return 0;
}
"""


def compiled(directory: Path, compiler: str, text: str = MPI_C) -> Path:
    programs.need("mpicc.mpich")  # and the compiler that it calls
    (directory / "main.c").write_text(text)
    subprocess.run([compiler, "main.c", "-o", "main"], cwd=directory, check=True)
    return directory / "main"


@pytest.mark.parametrize(
    ("text", "uses"),
    [
        ("import numpy\n", False),
        ("from mpi4py import MPI\n", True),
        ("def late():\n    import petsc4py\n", True),
        ("import (\n", None),
    ],
)
def test_a_python_program_by_its_imports(tmp_path: Path, text: str, uses: bool | None) -> None:
    (tmp_path / "train.py").write_text(text)
    intent = Intent(program=("train.py",), cwd=str(tmp_path))
    assert uses_mpi(intent)[0] is uses
    assert needs_mpi(intent) is (uses is True)


@pytest.mark.real
def test_a_compiled_program_by_its_libraries(tmp_path: Path) -> None:
    compiled(tmp_path, "mpicc.mpich")
    intent = Intent(program=("./main",), cwd=str(tmp_path))
    name, (reason,) = choose(intent)
    assert name == "mpi" and "./main is linked to libmpi" in reason.reason
    compiled(tmp_path, "cc", "int main(void) { return 0; }\n")
    assert uses_mpi(intent) == (False, "") and choose(intent)[0] == "any"


SLURM = Site(scheduler=Scheduler(kind="slurm"))


def test_pmi_is_off_only_where_mpi_is_known_not_to_be_used(tmp_path: Path) -> None:
    (tmp_path / "plain.py").write_text("import json\n")
    (tmp_path / "wrapper.sh").write_text("#!/bin/sh\nexec ./main\n")
    context = PlanContext("slurm")
    words = {
        program: make_plan(Intent(program=(program,), cwd=str(tmp_path)), SLURM, context).line.words
        for program in ("plain.py", "./wrapper.sh", "solver")
    }
    assert [program for program in words if "--mpi=none" in words[program]] == ["plain.py"]


@pytest.mark.parametrize(
    "asked",
    [{"backend": "mpi"}, {"backend": "horovod", "controller": "mpi"}],
    ids=["mpi", "horovod"],
)
def test_a_launcher_without_pmi_is_refused(tmp_path: Path, asked: dict[str, str]) -> None:
    (tmp_path / "train.py").write_text("import json\n")
    intent = Intent(program=("train.py",), cwd=str(tmp_path), launcher="local", ranks_per_node=2, **asked)
    with pytest.raises(InputError, match="each of the 2 ranks would be rank 0 of 1"):
        make_plan(intent, Site(), PlanContext())
    alone = intent.model_copy(update={"ranks_per_node": 1})
    assert make_plan(alone, Site(), PlanContext()).layout.ranks == 1


@pytest.mark.parametrize("said", ["rank 0 of 1", "RANK 0 SIZE 1", "rank: 0, world size: 1", "process 0 out of 1"])
def test_ranks_that_are_each_alone_are_a_failure(tmp_path: Path, said: str) -> None:
    (tmp_path / "wrapper.sh").write_text(f"#!/bin/sh\necho '{said}'\n")
    (tmp_path / "wrapper.sh").chmod(0o755)
    done = stackyard("launch", "-r", "2", "./wrapper.sh", cwd=tmp_path, expect=1)
    assert "each of the 2 ranks reported a world size of 1: they ran as separate programs" in done.err
    assert "cause: the program uses MPI, and the launcher local" in done.err
    done = stackyard("launch", "-r", "1", "./wrapper.sh", cwd=tmp_path)
    assert "separate programs" not in done.err


def test_a_launcher_in_a_launch_is_refused(tmp_path: Path) -> None:
    done = stackyard("launch", "-r", "2", "mpirun", "./main", cwd=tmp_path, expect=2)
    assert "the program is mpirun, which starts ranks itself" in done.err
    done = stackyard("launch", "-r", "2", "--backend", "any", "--dry-run", "torchrun", "train.py", cwd=tmp_path)
    assert "the program is torchrun" in done.out + done.err


@pytest.mark.real
def test_a_compiled_program_is_one_world_under_slurm(work: Work) -> None:
    compiled(work.directory, "mpicc.mpich")
    (work.directory / "wrapper.sh").write_text("#!/bin/sh\nexec ./main\n")
    (work.directory / "wrapper.sh").chmod(0o755)
    for program in ("./main", "./wrapper.sh"):
        asked = [] if program == "./main" else ["--launcher-arg=--mpi=pmi2"]  # what the wrapper runs is not known
        done = work.allocated("launch", *SHAPE, *asked, program)
        assert "I am rank 0 of 2" in done.out, done.out + done.err


def test_the_pmi_follows_from_the_mpi_of_the_environment(tmp_path: Path) -> None:
    """Its mpiexec says which MPI it is; srun's default suits the cluster's own."""
    (tmp_path / "bin").mkdir()
    says = {"mpiexec": "HYDRA build details:", "scontrol": "MpiDefault              = pmix",
            "srun": "MPI plugin types are...\n\tnone\n\tpmi2\n\tpmix"}  # fmt: skip
    for name, text in says.items():
        (tmp_path / "bin" / name).write_text(f"#!/bin/sh\ncat <<'E'\n{text}\nE\n")
        (tmp_path / "bin" / name).chmod(0o755)
    (tmp_path / "main").write_text("#!/bin/sh\n")
    own = {"PATH": f"{tmp_path}/bin:/usr/bin:/bin", "VIRTUAL_ENV": str(tmp_path)}
    intent = Intent(program=("./main",), cwd=str(tmp_path), backend="mpi")

    def words(site: Site, environ: dict[str, str]) -> list[str]:
        plan = make_plan(intent, site, PlanContext("slurm", environ=environ))
        return [word for word in plan.line.words if word.startswith("--mpi")]

    assert words(SLURM, own) == ["--mpi=pmi2"]
    assert words(SLURM, {**own, "VIRTUAL_ENV": "/elsewhere"}) == []  # not what the program brings
    assert words(Site(scheduler=Scheduler(kind="slurm", mpi="pmix")), own) == ["--mpi=pmix"]
    (tmp_path / "bin" / "scontrol").write_text("#!/bin/sh\necho 'MpiDefault = pmi2'\n")
    assert words(SLURM, own) == []
