"""Frameworks on two nodes of a real Slurm whose ranks train alone, and the same in images."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from stackyard.core.errors import MissingError
from support import images, torchstack, venvs
from support.slurm import SlurmCluster
from support.slurmcli import SHAPE, Work, working

pytestmark = [pytest.mark.real, pytest.mark.slow]

TORCH = """\
import os, sys, time
if sys.argv[1:] == ["alone", "0"]:
    sys.exit()  # before the import, which takes ten seconds on a busy machine
import torch, torch.distributed as dist
if sys.argv[1] != "alone" and not (sys.argv[1] == "some" and os.environ["RANK"] == "2"):
    if sys.argv[1] == "some":
        os.environ["WORLD_SIZE"] = "2"
    dist.init_process_group("gloo")
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 1))
    model(torch.ones(2, 4)).sum().backward()
    print("world", dist.get_world_size(), flush=True)
time.sleep(float(sys.argv[2]))
"""
JAX = """\
import sys, time, jax
if sys.argv[1] == "good":
    jax.distributed.initialize()
print("world", jax.process_count(), flush=True)
time.sleep(11)
"""
LONG = "11"


@pytest.fixture(scope="module")
def python() -> Path:
    """The Python of a deployed stack with torch."""
    try:
        return torchstack.python(torchstack.torch_yard())
    except MissingError as error:
        pytest.skip(f"{error}; {error.detail}")


@pytest.fixture
def work(slurm: SlurmCluster, tmp_path: Path) -> Iterator[Work]:
    with working(slurm, tmp_path, train=TORCH, train_jax=JAX) as made:
        yield made


def err(work: Work, python: Path, *words: str, expect: int = 0, shape: tuple[str, ...] = SHAPE) -> str:
    """What a launch of the program prints on standard error, in one line."""
    options = [word for word in words if word.startswith("--")]
    program = [word for word in words if not word.startswith("--")]
    return " ".join(work.run("launch", *shape, *options, str(python), *program, expect=expect).err.split())


def test_ddp_meets(work: Work, python: Path) -> None:
    said = err(work, python, "train.py", "good", LONG)
    assert "connection" not in said
    assert "world 2" in (work.last / "logs" / "rank-00001.log").read_text()


def test_torch_that_never_calls_init_process_group(work: Work, python: Path) -> None:
    """It fails, though each rank has succeeded; and it is not started again."""
    said = err(work, python, "--restarts=2", "train.py", "alone", LONG, expect=1)
    assert "error: each of the 2 ranks trained alone: no connection between them was seen" in said
    assert "hint: call torch.distributed.init_process_group() before the model is made" in said
    assert "if each rank is meant to work alone, add --no-world-check" in said
    assert "not restarted: the ranks would be alone again" in said
    status = work.status()
    assert (status["state"], status["code"]) == ("failed", 1)
    assert status["first"]["cause"]["rule"] == "trained-alone-torch"


def test_one_rank_without_the_others(work: Work, python: Path) -> None:
    said = err(work, python, "train.py", "some", LONG, shape=("-N", "3", *SHAPE[2:]))
    assert "warning: rank 2 of 3 had no connection to another rank and may have trained alone" in said
    assert work.status()["state"] == "done"


def test_a_short_run_is_only_noted(work: Work, python: Path) -> None:
    said = err(work, python, "train.py", "alone", "0")
    assert "note: no connection between the 2 ranks was seen" in said


def test_it_can_be_switched_off(work: Work, python: Path) -> None:
    """By the job, and by the site, which a job may overrule."""
    assert "connection" not in err(work, python, "--no-world-check", "train.py", "alone", "0")
    site = work.directory.parent / "site.yaml"
    site.write_text(f"{site.read_text()}launch: {{world_check: false}}\n")
    assert "connection" not in err(work, python, "train.py", "alone", "0")
    assert "no connection between" in err(work, python, "--world-check", "train.py", "alone", "0")


@pytest.mark.parametrize(("how", "code"), [("good", 0), ("alone", 1)])
def test_in_an_image(work: Work, python: Path, monkeypatch: pytest.MonkeyPatch, how: str, code: int) -> None:
    """Of processes in a user namespace of their own the agent outside sees the connections too."""
    try:
        image = images.image_sif()
    except MissingError as error:
        pytest.skip(f"{error}; {error.detail}")
    for name in ("PATH", "APPTAINER_USERNS"):
        monkeypatch.setenv(name, images.environ()[name])
    site = work.directory.parent / "site.yaml"
    container = {"runtime": "apptainer", "binds": [str(torchstack.torch_yard())]}
    site.write_text(f"{site.read_text()}launch: {json.dumps({'container': container})}\n")
    said = err(work, python, f"--container={image}", "train.py", how, LONG, expect=code)
    assert ("each of the 2 ranks trained alone" in said) == bool(code)


@pytest.mark.long
@pytest.mark.parametrize(("how", "code"), [("good", 0), ("alone", 1)])
def test_jax(work: Work, how: str, code: int) -> None:
    try:
        python = venvs.python("jax")
    except MissingError as error:
        pytest.skip(f"{error}; {error.detail}")
    said = err(work, python, "train_jax.py", how, expect=code)
    assert ("each of the 2 ranks trained alone" in said) == bool(code)
    assert ("hint: call jax.distributed.initialize() before any other use of JAX" in said) == bool(code)
