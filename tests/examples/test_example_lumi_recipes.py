"""LUMI's recipes: PyTorch trains on four nodes from its SIF and from its SquashFS image; Flax runs; ROCm is locked."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from sitebed import EXAMPLES, Example

from stackyard.core.errors import MissingError
from support import images, programs
from support.slurm import SlurmCluster, unavailable
from support.slurmcli import Work, working
from support.testbed import cache_directory, real_channel

pytestmark = [pytest.mark.real, pytest.mark.long]

SMALL = ("--steps", "4", "--depth", "14", "--width", "4", "--image-size", "32", "--classes", "5", "--batch", "16")
PROGRAM = """\
import os, pathlib, runpy, sys
record = pathlib.Path(sys.prefix).parent / "record.json"
print("rank", os.environ["RANK"], "of", os.environ["WORLD_SIZE"], "on", os.uname().nodename, "yard", record.exists())
runpy.run_path("train.py", run_name="__main__")
"""


@pytest.fixture
def lumi(tmp_path: Path) -> Iterator[Example]:
    """LUMI for CPUs, with a channel that has Python; its yard is not below /tmp, which containers have of the host."""
    for name in ("mksquashfs", "squashfuse", "unshare"):
        programs.need(name)
    example = Example("lumi", tmp_path, {"conda-forge": real_channel()})
    site = example.site("here.yaml")
    site["pip"] = {"torch_backend": "off"}
    site["stacks"] = {"force": {"matrix": {"accelerator": ["cpu"]}}}
    example.write("here.yaml", site)
    example.yard = cache_directory() / f"lumi-{os.getpid()}"
    try:
        yield example
    finally:
        shutil.rmtree(example.yard)


def trained(work: Work, yard: Path, *words: str | Path, seen: bool, **variables: str) -> list[float]:
    """The ranks train; `seen`: whether they see the yard of the host. Return the loss of each step."""
    (work.directory / "program.py").write_text(PROGRAM)
    for name in ("train.py", "resnet.py"):
        shutil.copy(EXAMPLES / "resnet" / name, work.directory)
    layout = ("-N", "4", "-r", "1", "-c", "2", "-g", "0", "--backend", "torchrun", "--stream", "all")
    variables["STACKYARD_TMP"] = str(work.directory)
    done = work.run("--yard", yard, "launch", *words, *layout, "program.py", *SMALL, **variables)
    said = [line.partition(" ")[2] for line in done.out.splitlines()]
    assert sorted(line for line in said if line.startswith("rank ")) == [
        f"rank {rank} of 4 on n{rank + 1} yard {seen}" for rank in range(4)
    ], done.out + done.err
    work.nothing_left()
    return [json.loads(line)["loss"] for line in said if '"loss"' in line and '"step"' in line]


def test_pytorch_trains_from_its_sif_and_from_its_squashfs(lumi: Example, tmp_path: Path) -> None:
    if why := unavailable():
        pytest.skip(why)
    try:
        images.apptainer()
    except MissingError as error:
        pytest.skip(f"{error}; {error.detail}")
    lumi.run("deploy", "--image", "squashfs", "recipes/pytorch.yaml")
    lumi.run("image", "from-folder", images.image_directory(), "--name", "rocm")
    lumi.run("image", "build", "pytorch", "--format", "sif", "--base", "rocm", "-o", tmp_path / "pytorch.sif")
    outside = {name: images.environ()[name] for name in ("PATH", "APPTAINER_USERNS")}
    with SlurmCluster.own(4) as cluster, working(cluster, tmp_path) as work:
        sif = trained(work, lumi.yard, "--container", tmp_path / "pytorch.sif", seen=False, **outside)
        own = trained(work, lumi.yard, "--with", "pytorch", seen=True)
    assert len(sif) == 4 and sif == pytest.approx(own, rel=1e-3)


def test_flax_runs_and_the_gpu_variants_of_two_recipes_are_locked(lumi: Example) -> None:
    lumi.run("deploy", "recipes/jax.yaml")
    assert lumi.published()["jax/0.10.2-cpu-1"]["state"] == "published"
    for recipe, plugin in (("jax", "jax-rocm7-plugin"), ("tensorflow", "tensorflow-rocm")):
        file = f"recipes/{recipe}.yaml"
        lumi.run("lock", file, site="site.yaml")
        rocm = next(each for each in lumi.locked(file) if each.variant == "rocm")
        assert plugin in {package.name for package in rocm.pip}
