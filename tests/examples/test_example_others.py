"""The examples whose channels, processors or GPUs are elsewhere: what is understood of them, how far they go here.

Where something cannot be had, the command must name it with its place and what to do.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
from sitebed import EXAMPLES, POWER, Example, pinned, powerai_channel, versions

from support.channel import Package, make_channel
from support.cli import stackyard
from support.wheelpkg import host_subdir

IBM = "https://public.dhe.ibm.com/ibmdl/export/pub/software/server/ibm-ai/conda/"
ROCM = (
    "pytorch-triton-rocm==2.3.1",
    "torch==2.3.1+rocm6.0",
    "torchaudio==2.3.1+rocm6.0",
    "torchvision==0.18.1+rocm6.0",
)


def parsed(example: str, file: str, *options: str | Path) -> dict[str, Any]:
    """What ``show --parsed`` understood of an example's file."""
    value: dict[str, Any] = stackyard(*options, "show", "--parsed", EXAMPLES / example / file, "--json").value
    return value


def names(understood: dict[str, Any]) -> list[str]:
    """The channels, in order."""
    return [entry["channel"] for entry in understood["channels"]]


# --------------------------------------------------------------------------- LUMI


@pytest.fixture
def lumi(tmp_path: Path) -> Example:
    """LUMI with a channel that has what its environment.yml asks for by name and version, to be locked."""
    lines = pinned(EXAMPLES / "lumi/environment.yml")
    pairs = [line.split("=") for line in lines if line.count("=") == 1 and "==" not in line]
    assert len(pairs) == 12
    packages = [Package(name, version, files={f"share/{name}": f"{version}\n"}) for name, version in pairs]
    return Example("lumi", tmp_path, {"conda-forge": make_channel(tmp_path / "channel", packages)})


def test_a_file_for_amd_gpus_is_understood_whole() -> None:
    understood = parsed("lumi", "environment.yml", "--site", EXAMPLES / "lumi/site.yaml")
    assert (understood["name"], names(understood)) == ("pytorch-rocm", ["conda-forge"])
    assert len(understood["conda"]) == 12
    assert tuple(entry["line"] for entry in understood["pip"]) == ROCM
    assert understood["pip_options"]["extra_index_urls"] == ["https://download.pytorch.org/whl/"]


def test_a_stack_ties_packages_to_their_index() -> None:
    understood = stackyard("--site", EXAMPLES / "lumi/site.yaml", "show", "--parsed", EXAMPLES / "lumi/stack.yaml").out
    for line in ROCM:
        assert f"{line}   (from https://download.pytorch.org/whl/rocm6.0)" in understood
    assert "needs: node_kind: lumi-g" in understood


@pytest.mark.parametrize(("file", "index"), [("stack.yaml", "whl/rocm6.0"), ("environment.yml", "whl")])
@pytest.mark.parametrize("command", [("lock",), ("deploy", "--dry-run")])
def test_the_index_that_cannot_be_reached_is_named_with_its_place(
    lumi: Example, command: tuple[str, ...], file: str, index: str
) -> None:
    for name in ("stack.yaml", "environment.yml"):
        path = lumi.directory / name
        path.write_text(path.read_text().replace("download.pytorch.org", "download.pytorch.invalid"))
    refused = lumi.run(*command, file, site="site.yaml", expect=1)
    assert f"(https://download.pytorch.invalid/{index}) cannot be reached" in refused.err
    assert f"{lumi.directory}/environment.yml:19:9: " in refused.err
    assert "name a mirror in site.yaml, or use a lock made where it can be reached" in refused.err
    assert not (lumi.directory / f"{file}.lock").exists()


# --------------------------------------------------------------------------- PowerAI without a container


@pytest.fixture(scope="module")
def powerai(tmp_path_factory: pytest.TempPathFactory) -> Example:
    """Summit with a channel that has the three packages that IBM's image held; locked."""
    tmp_path = tmp_path_factory.mktemp("powerai")
    channel = powerai_channel(tmp_path / "channel")
    known = ("ibm-powerai", IBM, "https://repo.anaconda.com/pkgs/main", "https://repo.anaconda.com/pkgs/r")
    site = Example("summit-containers", tmp_path, dict.fromkeys(known, channel))
    site.run("lock", "stack.yaml", site="site.yaml")
    return site


def test_horovod_for_power_is_locked_as_source_from_the_real_index(powerai: Example) -> None:
    (variant,) = powerai.locked("stack.yaml")
    assert variant.platform == POWER
    assert versions(variant) == {"python": "3.6.13", "tensorflow-gpu": "1.10.0", "pytorch": "0.4.1"}
    kinds = {package.name: package.kind for package in variant.pip}
    assert kinds["horovod"] == "sdist" and kinds["tensorboardx"] == "wheel"
    assert all(len(package.sha256) == 64 for package in variant.pip)


@pytest.mark.parametrize("words", [("deploy",), ("deploy", "--dry-run")])
def test_what_is_for_another_processor_is_not_built_here(powerai: Example, words: tuple[str, ...]) -> None:
    refused = powerai.run(*words, "stack.yaml", site="site.yaml", expect=1)
    assert f"powerai is locked for {POWER}; this machine is {host_subdir()}" in refused.err
    assert "deploy on such a machine" in refused.err


def test_a_stack_for_containers_says_what_it_takes_from_the_machine() -> None:
    path = EXAMPLES / "summit-containers"
    out = stackyard("--site", path / "site.yaml", "show", "--parsed", path / "stack.yaml").out
    for words in ("tools: name: nvcc; name: mpicxx", "modules: cuda spectrum-mpi", "no_binary: horovod",
                  "libraries: libmpi* libpami* libcuda.so*", "CPATH: {env:CUDA_DIR}/targets"):  # fmt: skip
        assert words in out


# --------------------------------------------------------------------------- Horovod, as researchers write it


def test_the_researchers_environment_is_understood_with_its_other_file() -> None:
    understood = parsed("kaust-horovod", "environment.yml")
    assert understood["name"] is None
    assert names(understood) == ["pytorch", "conda-forge", "defaults"]
    assert [entry["line"] for entry in understood["pip"]] == [
        "mxnet-cu101mkl==1.6.*", "horovod==0.19.*", "jupyterlab-nvdashboard==0.2.*", "jupyter-tensorboard==0.2.*",
        "jupyterlab_sql==0.3.*",
    ]  # fmt: skip
    assert understood["pip_options"]["no_binary"] == ["horovod"]
    assert [Path(file).name for file in understood["files"]] == ["environment.yml", "requirements-gpu.txt"]
    assert any("environment.yml:21" in notice for notice in understood["notices"])


@pytest.mark.parametrize("file", ["stack.yaml", "stack-gpu.yaml"])
def test_both_stacks_of_horovod_are_understood(file: str) -> None:
    out = stackyard("show", "--parsed", EXAMPLES / "kaust-horovod" / file).out
    assert "no_binary: horovod" in out and "horovodrun --check-build" in out


def test_the_stack_that_is_compiled_is_locked_from_the_real_index_and_planned(tmp_path: Path) -> None:
    """It is not built here: compiling takes minutes, and has a test of its own."""
    directory = Path(shutil.copytree(EXAMPLES / "kaust-horovod", tmp_path / "horovod"))
    yard = tmp_path / "yard"
    said = stackyard("--yard", yard, "lock", directory / "stack.yaml")
    assert (said.out + said.err).count("built from source: horovod") == 1
    (first, *_) = stackyard("--yard", yard, "lock", directory / "stack.yaml", "--json").value
    (variant,) = first["variants"]
    horovod = next(package for package in variant["pip"] if package["name"] == "horovod")
    assert (horovod["version"], horovod["kind"]) == ("0.28.1", "sdist")
    assert "0.28.1-cpu-openmpi" in f"{variant['version']}-{variant['variant']}"
    torch = next(package for package in variant["pip"] if package["name"] == "torch")
    assert torch["version"].startswith("2.13.0") and torch["kind"] == "wheel"
    plan = stackyard("--yard", yard, "deploy", "--dry-run", directory / "stack.yaml").out
    assert "would build horovod/0.28.1-cpu-openmpi-1" in plan
    assert not (yard / "stacks").exists()
    assert "fresh" in stackyard("--yard", yard, "lock", directory / "stack.yaml").out
