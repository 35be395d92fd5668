"""ResNet trains through the command line, on the four nodes of a real Slurm, in a deployed stack.

However its ranks are started, over Gloo, MPI or Horovod, in an image or not, every step has the loss that one rank
finds on the same batches.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from stackyard.core.errors import MissingError
from support import images, torchstack, venvs
from support.cli import stackyard
from support.slurm import SlurmCluster
from support.slurmcli import Work, working

pytestmark = [pytest.mark.real, pytest.mark.slow]

STEPS = 6
SMALL = ("--depth=14", "--width=8", "--image-size=32", "--classes=10", "--batch=16", "--samples=64", "--device=cpu",
         f"--steps={STEPS}")  # fmt: skip
TOLERANCE = 1e-5
"""Relative; differences of 2e-7 were measured (float32 sums in another order), and 1e-2 when one sample is another."""

TORCHRUN = ("--torchrun",)
MPI_AS_ROOT = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
DDP, MPI, HOROVOD = (str(torchstack.EXAMPLES / "resnet" / f"train{kind}.py") for kind in ("", "_mpi", "_horovod"))
CONTAINER = """\
launch:
  container:
    runtime: apptainer
    binds:
      - {pmix}  # PMIxCliTmpDirBase of mpi.conf
      - {spy}:/usr/bin/py-spy
"""


@pytest.fixture
def work(slurm: SlurmCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Work]:
    for name, value in MPI_AS_ROOT.items():
        monkeypatch.setenv(name, value)
    with working(slurm, tmp_path) as made:
        yield made


def had(make: Callable[[], Path]) -> Path:
    """What a function of the tests' makes, or a skip."""
    try:
        return make()
    except MissingError as error:
        pytest.skip(f"{error}; {error.detail}")


@pytest.fixture(scope="module")
def yard() -> Path:
    """The yard in which the example's stack is deployed."""
    return had(torchstack.torch_yard)


@pytest.fixture(scope="module")
def one_rank(yard: Path, tmp_path_factory: pytest.TempPathFactory) -> list[float]:
    """The losses of one rank, which all others are compared with."""
    directory = tmp_path_factory.mktemp("one")
    words = ("launch", "--launcher", "local", "-r", "1", "-c", "1", "-g", "0", "--with", "resnet", DDP, *SMALL)
    found = losses(stackyard("--yard", yard, *words, cwd=directory).out)
    assert len(found) == STEPS
    return found


def lines(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines() if line.startswith("{")]


def losses(text: str) -> list[float]:
    return [line["loss"] for line in lines(text) if "loss" in line]


def assert_agree(text: str, one_rank: list[float], ranks: int) -> None:
    assert lines(text)[0]["ranks"] == ranks
    assert losses(text) == pytest.approx(one_rank, rel=TOLERANCE)


def trains(
    work: Work, yard: Path, nodes: int, per_node: int, *words: str, stack: str = "resnet", verb: str = "launch"
) -> str:
    """What rank 0 printed: in an allocation of four nodes, or of a batch job."""
    line = ("--yard", str(yard), verb, "-N", str(nodes), "-r", str(per_node), "-c", "1", "-g", "0", "--with", stack)
    if verb == "submit":
        return work.run(*line, "-p", "debug", *words, *SMALL).out
    salloc = ("-N4", f"--ntasks-per-node={per_node}")
    return work.allocated(*line, *words, *SMALL, salloc=salloc).out


@pytest.mark.parametrize(("nodes", "per_node", "words"), [
    pytest.param(4, 2, (DDP,), id="8 ranks", marks=pytest.mark.long),
    pytest.param(2, 2, (*TORCHRUN, DDP), id="torchrun, 4 ranks", marks=pytest.mark.long),
    pytest.param(2, 1, (MPI,), id="MPI, 2 ranks"),
    pytest.param(2, 2, (MPI,), id="MPI, 4 ranks", marks=pytest.mark.long),
    pytest.param(4, 1, (DDP,), id="4 ranks", marks=pytest.mark.long),
    pytest.param(4, 2, (*TORCHRUN, DDP), id="torchrun, 8 ranks", marks=pytest.mark.long),
    pytest.param(4, 2, (MPI,), id="MPI, 8 ranks", marks=pytest.mark.long),
])  # fmt: skip
def test_losses_agree(
    work: Work, yard: Path, one_rank: list[float], nodes: int, per_node: int, words: tuple[str, ...]
) -> None:
    assert_agree(trains(work, yard, nodes, per_node, *words), one_rank, nodes * per_node)
    work.nothing_left()


def test_losses_agree_in_a_batch_job(work: Work, yard: Path, one_rank: list[float]) -> None:
    text = trains(work, yard, 2, 1, DDP, verb="submit")
    assert_agree(text, one_rank, 2)


@pytest.mark.parametrize(
    ("program", "per_node"), [(DDP, 1), pytest.param(MPI, 2, marks=pytest.mark.long)], ids=["torch", "MPI"]
)
def test_losses_agree_in_an_image(
    work: Work, yard: Path, one_rank: list[float], program: str, per_node: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The stack is bound, rank 0 is profiled inside, and the image is really what the ranks run in."""
    image = enter(work, monkeypatch)
    words = ("--container", str(image), "--profile", "py-spy:ranks=0", program)
    assert_agree(trains(work, yard, 2, per_node, *words), one_rank, 2 * per_node)
    (profile,) = work.last.glob("profile/py-spy/*.json")
    frames = {frame["file"] for frame in json.loads(profile.read_text())["shared"]["frames"]}
    assert any(name.endswith("resnet.py") for name in frames)
    work.nothing_left()


@pytest.mark.long
@pytest.mark.parametrize(("nodes", "per_node"), [(2, 2), (4, 2)])
@pytest.mark.parametrize("controller", ["mpi", "gloo"])
def test_losses_agree_with_horovod(
    work: Work, one_rank: list[float], nodes: int, per_node: int, controller: str
) -> None:
    made = had(torchstack.horovod_yard)
    text = trains(work, made, nodes, per_node, "--controller", controller, HOROVOD, stack="horovod")
    assert_agree(text, one_rank, nodes * per_node)
    work.nothing_left()


@pytest.mark.long
@pytest.mark.parametrize("controller", ["mpi", "gloo"])
def test_losses_agree_with_horovod_in_an_image(
    work: Work, one_rank: list[float], controller: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = had(torchstack.horovod_yard)
    image = enter(work, monkeypatch)
    words = ("--controller", controller, "--container", str(image), HOROVOD)
    assert_agree(trains(work, made, 2, 2, *words, stack="horovod"), one_rank, 4)


def enter(work: Work, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An image, with the site's runtime for it on PATH and a profiler that is there inside, too."""
    image = had(images.image_sif)
    environ = images.environ()
    for name in ("PATH", "APPTAINER_USERNS"):
        monkeypatch.setenv(name, environ[name])
    spy = had(lambda: venvs.python("py-spy")).with_name("py-spy")
    site = work.directory.parent / "site.yaml"
    site.write_text(site.read_text() + CONTAINER.format(spy=spy, pmix=work.cluster.directory / "spmix"))
    return image
