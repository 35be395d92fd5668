"""Horovod, compiled for real: the example is deployed as a user would, its table is read, two ranks all-reduce.

Takes some minutes of compiling the first time. The yard is the one in ``.cache`` that the launch tests use, too.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from stackyard.core.errors import MissingError
from stackyard.host.files.elf import read_elf
from support import tinywheel, torchstack
from support.processes import wait_for

STACKYARD = Path(sys.executable).with_name("stackyard")
MINUTES_40 = 2400
HOME = os.environ.get("HOME", "/")  # of the person who runs the tests: where pip.conf may be

pytestmark = [pytest.mark.long, pytest.mark.real]

ROOT_MAY_RUN_MPI = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"} if os.geteuid() == 0 else {}
ALLREDUCE = """
import horovod.torch as hvd, torch
hvd.init()
total = hvd.allreduce(torch.full((1000,), float(hvd.rank() + 1)), op=hvd.Sum)
assert torch.all(total == 3.0)
built = [hvd.mpi_built(), hvd.gloo_built()]
if hvd.rank() == 0:
    print(f"ranks {hvd.size()} sum {total[0].item()} built {all(built)}", flush=True)  # one write: mpirun tags each
"""


@pytest.fixture(scope="module")
def yard() -> Path:
    """A yard in which the example was deployed."""
    try:
        return torchstack.horovod_yard()
    except MissingError as error:
        if error.detail is None:
            pytest.skip(str(error))
        raise


@pytest.fixture
def example(yard: Path) -> Path:
    """The example in a directory of its own, with the lock that was deployed."""
    return torchstack.horovod_example()


def stackyard(yard: Path, *words: str | Path, **extra: str) -> str:
    """Run the program with pip's own configuration in force; what it prints on standard output."""
    return run([STACKYARD, "--yard", yard, *words], extra)


def run(argv: list[str | Path], extra: Mapping[str, str]) -> str:
    done = subprocess.run(argv, env=environ(extra), capture_output=True, text=True, timeout=MINUTES_40, check=False)
    assert done.returncode == 0, f"{argv}\n{done.stdout[-6000:]}\n{done.stderr[-6000:]}"
    return done.stdout


def environ(extra: Mapping[str, str]) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("STACKYARD_", "XDG_"))}
    return {**kept, "HOME": HOME, **extra}


def record(yard: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(stackyard(yard, "show", "horovod", "--json"))
    return found


def ticked(table: str) -> set[str]:
    """The names with an X in the table of ``horovodrun --check-build``."""
    return set(re.findall(r"\[X\] (\S+)", table))


def test_it_is_published_with_the_torch_that_pip_is_configured_for(yard: Path) -> None:
    packages = {package["name"]: package for package in record(yard)["packages"]}
    assert packages["torch"]["version"].partition("+")[0] == "2.13.0"
    assert re.fullmatch(r"[0-9a-f]{64}", packages["torch"]["sha256"])
    assert packages["horovod"]["version"] == "0.28.1"


def test_the_table_ticks_pytorch_mpi_and_gloo(yard: Path) -> None:
    table = stackyard(yard, "run", "horovod", "--", "horovodrun", "--check-build")
    assert ticked(table) == {"PyTorch", "MPI", "Gloo"}


@pytest.mark.parametrize("launcher", [
    ("horovodrun", "--gloo", "-np", "2"),
    ("horovodrun", "--mpi", "-np", "2"),
    ("mpirun", "-np", "2"),
], ids=["gloo", "horovodrun-mpi", "mpirun"])  # fmt: skip
def test_two_ranks_all_reduce(yard: Path, launcher: tuple[str, ...], tmp_path: Path) -> None:
    program = tmp_path / "allreduce.py"
    program.write_text(ALLREDUCE)
    words = ("run", "horovod", "--", *launcher, "python", str(program))
    text = stackyard(yard, *words, OMP_NUM_THREADS="1", **ROOT_MAY_RUN_MPI)
    assert "ranks 2 sum 3.0 built True" in text


def test_its_checks_are_in_the_report_and_passed(yard: Path) -> None:
    report = record(yard)["report"]
    document = report if isinstance(report, dict) else json.loads(Path(report).read_text())
    own = {check["name"]: check["status"] for check in document["checks"] if check["kind"] == "own"}
    assert len(own) == 2
    assert set(own.values()) == {"passed"}


def test_a_second_deploy_compiles_nothing(yard: Path, example: Path) -> None:
    before = json.loads(stackyard(yard, "list", "--json"))
    stackyard(yard, "deploy", example / "stack.yaml")
    assert json.loads(stackyard(yard, "list", "--json")) == before


def test_a_pure_python_package_that_is_added_or_moved_compiles_nothing(
    yard: Path, example: Path, tmp_path: Path
) -> None:
    """In a user's own yard, where the paths are others, and then in another revision there."""
    user = User(yard, tmp_path)
    stack = shutil.copytree(example, tmp_path / "example")
    requirements = (stack / "requirements.txt").read_text()
    wheels = tmp_path / "wheels"
    for number in (1, 2):
        tinywheel.wheel(wheels, "pure", f"{number}.0")
        (stack / "requirements.txt").write_text(f"{requirements}--find-links {wheels}\npure=={number}.0\n")
        user.stackyard("deploy", "--name", "mine", stack / "stack.yaml")
        user.has(f"mine/0.28.1-cpu-openmpi-{number}", "pure", f"{number}.0")


def test_an_extension_compiles_nothing(yard: Path, tmp_path: Path) -> None:
    user = User(yard, tmp_path)
    user.stackyard("extend", "--name", "mine", "--base", "horovod", "--pip", "six")
    shown = json.loads(user.stackyard("show", "mine", "--json"))
    assert Path(shown["path"]).is_relative_to(tmp_path)
    assert " build --wheel " not in Path(shown["path"], "build.log").read_text()
    assert ticked(user.stackyard("run", "mine", "--", "horovodrun", "--check-build")) == {"PyTorch", "MPI", "Gloo"}


class User:
    """A user with a yard below that of the example, which is a site's here."""

    def __init__(self, yard: Path, home: Path) -> None:
        self._home, self._site = home, home / "site.yaml"
        self._site.write_text(f"yard: {yard}\n")

    def stackyard(self, *words: str | Path) -> str:
        words = (STACKYARD, "--site", self._site, *words)
        return run(list(words), {"STACKYARD_HOME": str(self._home / "yard"), "OMP_NUM_THREADS": "1"})

    def has(self, module: str, package: str, version: str) -> None:
        """A revision has this package, its Horovod was not compiled for it, and works."""
        shown = json.loads(self.stackyard("show", module, "--json"))
        assert Path(shown["path"]).is_relative_to(self._home)
        assert (package, version) in {(row["name"], row["version"]) for row in shown["packages"]}
        assert " build --wheel " not in Path(shown["path"], "build.log").read_text()
        assert ticked(self.stackyard("run", module, "--", "horovodrun", "--check-build")) == {"PyTorch", "MPI", "Gloo"}
        (library,) = Path(shown["prefix"]).glob("lib/python3*/site-packages/horovod/torch/mpi_lib_v2*.so")
        elf = read_elf(library)
        assert elf is not None and "$ORIGIN/../../torch/lib" in (elf.runpath or elf.rpath)


def test_without_the_patch_the_wheel_in_the_cache_is_not_taken(yard: Path, example: Path) -> None:
    """It is compiled, which would fail after minutes; the deploy is interrupted as soon as that has begun."""
    before = json.loads(stackyard(yard, "list", "--json"))
    stack = (example / "stack.yaml").read_text()
    other = example / "unpatched.yaml"
    other.write_text(stack.replace("patches: [patches/horovod-cxx17.patch]", "patches: []"))
    builds = set((yard / "cache/wheels").glob(".build-*"))
    argv = [STACKYARD, "--yard", yard, "deploy", "--version", "0.28.1.unpatched", other]

    def compiles_or_ended() -> bool:
        now = set((yard / "cache/wheels").glob(".build-*")) - builds
        return deploy.poll() is not None or any(True for build in now for _ in build.rglob("*.o"))

    with subprocess.Popen(argv, env=environ({}), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as deploy:
        try:
            wait_for(compiles_or_ended, MINUTES_40)
        finally:
            deploy.send_signal(signal.SIGINT)
        assert deploy.wait(300) == 130
    assert json.loads(stackyard(yard, "list", "--json")) == before
