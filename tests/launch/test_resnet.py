"""The ResNet example by itself: with MPICH, from a checkpoint, and its size. How it is launched: test_proof_losses."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from stackyard.core.errors import MissingError
from support import programs, torchstack
from support.slurm import SlurmCluster

EXAMPLE = Path(__file__).parents[2] / "examples" / "resnet"
STEPS = 6
SMALL = ("--depth=14", "--width=8", "--image-size=32", "--classes=10", "--batch=16", "--samples=64", "--device=cpu")
TOLERANCE = 1e-5
"""Relative; differences of 2e-7 were measured (float32 sums in another order), and 1e-2 when one sample is another."""

ONE_THREAD = {"OMP_NUM_THREADS": "1", "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
pytestmark = [pytest.mark.real, pytest.mark.slow]


@pytest.fixture(scope="module")
def python() -> Path:
    """The Python of a deployed stack with torch and mpi4py."""
    try:
        return torchstack.python(torchstack.torch_yard())
    except MissingError as error:
        pytest.skip(f"{error}; {error.detail}")


@pytest.fixture(scope="module")
def one_rank(python: Path) -> list[float]:
    """The losses of one rank, which all others are compared with."""
    return losses(run([python, EXAMPLE / "train.py", *SMALL, f"--steps={STEPS}"]))


def run(argv: list[str | Path]) -> str:
    return subprocess.run(argv, env=os.environ | ONE_THREAD, check=True, text=True, stdout=subprocess.PIPE).stdout


def lines(text: str) -> Iterator[dict[str, Any]]:
    return (json.loads(line) for line in text.splitlines() if line.startswith("{"))


def losses(text: str) -> list[float]:
    return [line["loss"] for line in lines(text) if "loss" in line]


def srun(slurm: SlurmCluster, *words: str | Path, **variables: str) -> str:
    return slurm.run("srun", *words, *SMALL, f"--steps={STEPS}", timeout_s=240, **ONE_THREAD, **variables).stdout


def assert_agree(text: str, one_rank: list[float], ranks: int) -> None:
    assert next(lines(text))["ranks"] == ranks
    assert losses(text) == pytest.approx(one_rank, rel=TOLERANCE)
    assert len(one_rank) == STEPS


@pytest.mark.long
def test_mpich_agrees_with_one_rank(slurm: SlurmCluster, python: Path, one_rank: list[float], tmp_path: Path) -> None:
    """MPICH, wired up by PMI2, under the name by which its binary interface is known everywhere but on Debian."""
    (tmp_path / "libmpi.so.12").symlink_to(programs.need("libmpich.so.12"))
    variables = {"LD_LIBRARY_PATH": str(tmp_path), "MPI4PY_MPIABI": "mpich"}
    text = srun(slurm, "--mpi=pmi2", "-N2", "--ntasks-per-node=2", python, EXAMPLE / "train_mpi.py", **variables)
    assert_agree(text, one_rank, 4)


@pytest.mark.long
def test_it_goes_on_from_the_checkpoint_that_a_signal_asked_for(python: Path, tmp_path: Path) -> None:
    """As after a preemption: the losses before and after are those of one run."""
    argv = [python, EXAMPLE / "train.py", *SMALL, f"--checkpoint={tmp_path / 'kept.pt'}"]
    with subprocess.Popen(
        [*argv, "--steps=100000"], env=os.environ | ONE_THREAD, text=True, stdout=subprocess.PIPE
    ) as job:
        assert job.stdout
        for line in job.stdout:
            values = json.loads(line)
            if values.get("step") == 0:
                job.send_signal(signal.SIGUSR1)
            if "saved" in values:
                job.kill()
                break
    saved = values["saved"]
    straight = run([python, EXAMPLE / "train.py", *SMALL, f"--steps={saved + 3}"])
    resumed = run([*argv, f"--steps={saved + 3}"])
    assert next(lines(resumed))["start"] == saved
    assert losses(resumed) == pytest.approx(losses(straight)[saved:], rel=TOLERANCE)


def test_it_is_the_usual_resnet_50(python: Path) -> None:
    program = "import resnet; print(sum(weights.numel() for weights in resnet.resnet().parameters()))"
    done = subprocess.run([python, "-c", program], cwd=EXAMPLE, check=True, text=True, stdout=subprocess.PIPE)
    assert done.stdout.strip() == "25557032"  # as torchvision's resnet50
