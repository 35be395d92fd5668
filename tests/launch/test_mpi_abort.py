"""``python -m mpi4py``: where it is put before the program, and what it is for, with a real MPI."""

from __future__ import annotations

from pathlib import Path

import pytest

from stackyard.core.change import EnvironmentChange, Prepend
from stackyard.core.errors import MissingError
from stackyard.launch.plan.backends import BackendContext, get
from stackyard.launch.plan.model import LaunchLine, Plan
from stackyard.launch.records.paths import StepPaths
from stackyard.launch.request.intent import Intent
from stackyard.launch.run.start import WatchOptions
from stackyard.launch.run.step import run_step
from support import programs, torchstack, watched
from support.slurm import SlurmCluster

USES = "from mpi4py import MPI\n"
WORDS = {
    ("train.py", "-x"): ("python", "-m", "mpi4py", "train.py", "-x"),
    ("python3", "-u", "-B", "train.py"): ("python3", "-u", "-B", "-m", "mpi4py", "train.py"),
    ("-m", "train", "-x"): ("python", "-m", "mpi4py", "-m", "train", "-x"),
    ("python", "-X", "dev", "train.py"): ("python", "-X", "dev", "train.py"),
    ("python", "-m", "mpi4py", "train.py"): ("python", "-m", "mpi4py", "train.py"),
    ("env", "A=1", "python", "train.py"): ("env", "A=1", "python", "train.py"),
}


def words(directory: Path, *program: str, **more: object) -> tuple[str, ...]:
    intent = Intent.model_validate({"program": program, "cwd": str(directory), **more})
    return get("mpi").program(intent, watched.layout(1, 2), BackendContext()).argv


@pytest.mark.parametrize("program", WORDS)
def test_before_the_program_of_a_python(tmp_path: Path, program: tuple[str, ...]) -> None:
    (tmp_path / "train.py").write_text(USES)
    assert words(tmp_path, *program) == WORDS[program]


@pytest.mark.parametrize(
    "text", ["try:\n    from mpi4py import MPI\nexcept ImportError:\n    MPI = None\n", "import os\n"]
)
def test_only_where_mpi4py_is_certain(tmp_path: Path, text: str) -> None:
    (tmp_path / "train.py").write_text("import own\n")
    (tmp_path / "own.py").write_text(text)
    assert words(tmp_path, "train.py") == ("python", "train.py")
    (tmp_path / "own.py").write_text(USES)
    assert words(tmp_path, "train.py") == ("python", "-m", "mpi4py", "train.py")
    (tmp_path / "train.py").write_text("try:\n    import own\nexcept ImportError:\n    pass\n")
    assert words(tmp_path, "train.py") == ("python", "train.py")


def test_it_can_be_left_out_and_is_explained(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(USES)
    assert words(tmp_path, "train.py", mpi_abort=False) == ("python", "train.py")
    intent = Intent(program=("train.py",), cwd=str(tmp_path))
    program = get("mpi").program(intent, watched.layout(1, 2), BackendContext())
    assert "aborts all" in next(one.reason for one in program.reasons if one.words == ("-m", "mpi4py"))


WAITS = """
from mpi4py import MPI
comm = MPI.COMM_WORLD
if comm.rank == 1:
    raise RuntimeError("bad luck")
comm.recv(source=1)
"""


@pytest.mark.real
def test_an_exception_ends_the_ranks_that_wait(
    slurm: SlurmCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without it the rank that failed waits in MPI_Finalize, and this ends as `hung`."""
    try:
        python = torchstack.python(torchstack.torch_yard())
    except MissingError as error:
        pytest.skip(f"{error}; {error.hint}")
    for name in ("OMPI_ALLOW_RUN_AS_ROOT", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM"):
        monkeypatch.setenv(name, "1")
    programs.need("mpirun.openmpi")
    (tmp_path / "train.py").write_text(WAITS)
    made = watched.layout(2, 1)
    program = get("mpi").program(Intent(program=("train.py",), cwd=str(tmp_path)), made, BackendContext())
    allocation = ("salloc", "--quiet", "-N2", "--ntasks-per-node=1")
    line = LaunchLine((*allocation, "mpirun.openmpi", "-n", "2", "-N", "1"), "openmpi")
    path = EnvironmentChange((Prepend("PATH", str(python.parent)),))
    step, options = StepPaths(tmp_path / "step"), WatchOptions(lost_s=30, start_s=90, hang_min=0.3)
    result = run_step(step, Plan(made, program, line, change=path, cwd=str(tmp_path)), watched.Heard(), run="t",
                      options=options)  # fmt: skip
    assert result.state == "failed", result
    assert "RuntimeError: bad luck" in step.rank_log(1).read_text()
