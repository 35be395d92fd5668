"""Horovod on top of a base: compiled in a container of the base, for its torch and its MPI, and run on two nodes."""

from __future__ import annotations

import os
import re
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from images import hostmpi
from stackyard.core.errors import MissingError
from support import images, programs, stuckmpi, torchstack
from support.cli import stackyard
from support.slurm import SlurmCluster
from support.slurmcli import Work, working

pytestmark = [pytest.mark.rare, pytest.mark.real]

SYSTEM = ("bash", "binutils", "cmake", "coreutils", "dash", "findutils", "g++", "gcc", "grep", "hostname",
          "libc6-dev", "libopenmpi-dev", "make", "openmpi-bin", "sed")  # fmt: skip
ALTERNATIVES = {"c++": "g++", "cc": "gcc", "mpicc": "mpicc.openmpi", "mpicxx": "mpicxx.openmpi"}
"""Links that no package has: Debian's installation scripts make them."""
VERSION = f"python{sys.version_info.major}.{sys.version_info.minor}"
NOT_OF_TORCH = ("__pycache__", "mpi4py*", "pip*", "setuptools*")
SITE = """\
name: test
nodes: {n: {cores: 32}}
scheduler: {kind: slurm, exclusive: false, mpi: pmix}
launch: {container: {runtime: apptainer, binds: [%s]}}
"""
EXAMPLE = torchstack.EXAMPLES / "kaust-horovod"
HOROVOD = """\
name: hvd
version: '1'
environment:
  dependencies:
    - pip: [horovod==0.28.1]
build:
  tools: [{name: cmake, version: '>=3.13', variable: HOROVOD_CMAKE}, mpicxx]
  packages:
    horovod:
      isolation: false
      requires: [setuptools<80, wheel, packaging, cffi, cloudpickle, psutil, pyyaml]
      patches: [horovod-cxx17.patch]
      variables:
        HOROVOD_WITH_PYTORCH: 1
        HOROVOD_WITHOUT_TENSORFLOW: 1
        HOROVOD_WITHOUT_MXNET: 1
        HOROVOD_WITHOUT_GLOO: 1
        HOROVOD_WITH_MPI: 1
        MAKEFLAGS: -j{ncores}
checks:
  - name: Horovod finds the torch and the MPI of the base
    python: import horovod.torch as hvd; assert hvd.mpi_built() and not hvd.gloo_built()
"""
ALLREDUCE = """\
import horovod.torch as hvd, os, torch
hvd.init()
total = hvd.allreduce(torch.full((1000,), float(hvd.rank() + 1)), op=hvd.Sum)
mapped = open("/proc/self/maps").read()
mpi = next(line.split()[-1] for line in mapped.splitlines() if "/libmpi.so" in line)
print(f"rank {hvd.rank()} of {hvd.size()} on {os.uname().nodename}: sum {total[0].item()}, {torch.__file__} "
      f"{hvd.__file__} {os.path.basename(mpi)}", flush=True)
"""


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A system with compilers, CMake, an MPI, a Python and a virtual environment with torch: links to kept files."""
    programs.need("gcc", "g++", "cmake", "mpicxx", "mksquashfs", "squashfuse", "patch")
    try:
        images.apptainer()
        torch = torchstack.python(torchstack.torch_yard()).parents[1] / "lib" / VERSION / "site-packages"
        system = images.system_directory("compilers", SYSTEM)
    except MissingError as error:
        pytest.skip(f"{error}; {error.detail}")
    made, venv = tmp_path / "root", tmp_path / "root/opt/venv"
    shutil.copytree(system, made, symlinks=True, copy_function=os.link)
    for name, program in ALTERNATIVES.items():
        (made / "usr/bin" / name).symlink_to(program)
    unwanted = shutil.ignore_patterns("site-packages", "test", "idlelib", "__pycache__", "*.a")
    for name in ("lib", "include"):
        shutil.copytree(Path(sys.base_prefix, name), made / "opt/python" / name, symlinks=True, ignore=unwanted)
    hostmpi.with_cache(made, "/opt/python/lib")  # where its libpython is
    (venv / "bin").mkdir(parents=True)
    (made / "opt/python/bin").mkdir()
    shutil.copy2(Path(sys.base_prefix, "bin", VERSION), made / "opt/python/bin")
    (venv / "bin/python").symlink_to(f"/opt/python/bin/{VERSION}")
    (venv / "pyvenv.cfg").write_text("home = /opt/python/bin\ninclude-system-site-packages = false\n")
    shutil.copytree(torch, venv / "lib" / VERSION / "site-packages", symlinks=True, copy_function=os.link,
                    ignore=shutil.ignore_patterns(*NOT_OF_TORCH))  # fmt: skip
    return made


@pytest.fixture
def work(slurm: SlurmCluster, tmp_path: Path) -> Iterator[Work]:
    with working(slurm, tmp_path, allreduce=ALLREDUCE) as work:
        (work.directory / "hvd.yaml").write_text(HOROVOD)
        shutil.copy(EXAMPLE / "patches/horovod-cxx17.patch", work.directory)
        site = tmp_path / "site.yaml"
        site.write_text(SITE % f"{slurm.directory}/spmix")
        yield work


def test_it_is_compiled_in_the_base_and_its_ranks_find_each_other(root: Path, work: Work) -> None:
    outside = {name: images.environ()[name] for name in ("PATH", "APPTAINER_USERNS")}
    given = {**outside, "HOME": torchstack.HOME, "OMP_NUM_THREADS": "1"}  # where pip.conf may be
    ours = ("--yard", work.directory / "yard")

    def done(*words: str | Path) -> None:
        stackyard(*ours, *words, cwd=work.directory, timeout_s=2400, **given)

    done("image", "from-folder", root, "--name", "torch")
    done("image", "extend", "torch", "hvd.yaml", "--name", "hvd")
    done("image", "build", "--base", "hvd", "--format", "sif", "-o", "hvd.sif")
    words = ("launch", "-N", "2", "-r", "1", "-c", "1", "--backend", "horovod", "--stream", "all")
    ran = stuckmpi.again(lambda: work.run(*words, "--container", "hvd.sif", "allreduce.py", **given), work.directory)
    said = re.findall(r"rank (\d) of 2 on (\w+): sum ([\d.]+), (\S+) (\S+) (\S+)", ran.out)
    assert sorted((rank, total) for rank, _, total, *_ in said) == [("0", "3.0"), ("1", "3.0")], ran.out + ran.err
    assert len({host for _, host, *_ in said}) == 2
    site = f"lib/{VERSION}/site-packages"
    for *_, torch, horovod, mpi in said:
        assert torch == f"/opt/venv/{site}/torch/__init__.py" and mpi.startswith("libmpi.so.40")
        assert horovod == f"/opt/stackyard/venv/{site}/horovod/torch/__init__.py"
