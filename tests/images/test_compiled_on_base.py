"""A package that is compiled on top of a base: in a container of the base, for its MPI, and run on two nodes."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from images import hostmpi
from stackyard.core.errors import MissingError
from support import images, programs, stuckmpi
from support.cli import stackyard
from support.slurm import SlurmCluster
from support.slurmcli import working

pytestmark = [pytest.mark.long, pytest.mark.real]

HOME = os.environ.get("HOME", "/")  # of the person who runs the tests: where pip.conf may be
SYSTEM = ("bash", "binutils", "coreutils", "dash", "findutils", "gcc", "grep", "libc6-dev", "libopenmpi-dev",
          "openmpi-bin", "sed")  # fmt: skip
ALTERNATIVES = {"cc": "gcc", "mpicc": "mpicc.openmpi"}
"""Links that no package has: Debian's installation scripts make them."""
VERSION = f"python{sys.version_info.major}.{sys.version_info.minor}"
STACK = """\
name: mpi
version: '1'
environment:
  dependencies:
    - pip: [mpi4py==4.1.2]
build:
  tools: [mpicc]
  packages:
    mpi4py:
      no_binary: true
      isolation: false
      requires: [setuptools<80, wheel, cython]
      variables: {CFLAGS: -O0}
checks:
  - name: it finds the MPI of the base
    python: import mpi4py.MPI as MPI; assert MPI.Get_library_version().startswith("Open MPI")
"""
SITE = """\
name: test
nodes: {n: {cores: 32}}
scheduler: {kind: slurm, exclusive: false, mpi: pmix}
launch: {container: {runtime: apptainer, binds: [%s]}}
"""
RANKS = """\
import os, mpi4py
from mpi4py import MPI
world = MPI.COMM_WORLD
mapped = open("/proc/self/maps").read()
library = next(line.split()[-1] for line in mapped.splitlines() if "/libmpi.so" in line)
total = world.allreduce(world.rank + 1)
print(f"rank {world.rank} of {world.size} on {os.uname().nodename}: {total} {mpi4py.__file__} {library}", flush=True)
"""


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A system with a compiler, an MPI and a Python with headers."""
    programs.need("gcc", "mpicxx", "mksquashfs", "squashfuse")
    try:
        images.apptainer()
        system = images.system_directory("compiler", SYSTEM)
    except MissingError as error:
        pytest.skip(f"{error}; {error.detail}")
    made = tmp_path / "root"
    shutil.copytree(system, made, symlinks=True, copy_function=os.link)
    for name, program in ALTERNATIVES.items():
        (made / "usr/bin" / name).symlink_to(program)
    unwanted = shutil.ignore_patterns("site-packages", "test", "idlelib", "__pycache__", "*.a")
    for name in ("lib", "include"):
        shutil.copytree(Path(sys.base_prefix, name), made / "opt/python" / name, symlinks=True, ignore=unwanted)
    (made / "opt/python/bin").mkdir()
    shutil.copy2(Path(sys.base_prefix, "bin", VERSION), made / "opt/python/bin")
    hostmpi.with_cache(made, "/opt/python/lib")  # where its libpython is
    (made / "opt/venv/bin").mkdir(parents=True)
    (made / "opt/venv/lib" / VERSION / "site-packages").mkdir(parents=True)
    (made / "opt/venv/bin/python").symlink_to(f"/opt/python/bin/{VERSION}")
    (made / "opt/venv/pyvenv.cfg").write_text("home = /opt/python/bin\ninclude-system-site-packages = false\n")
    return made


def test_it_is_compiled_in_the_base_and_its_ranks_find_each_other(
    slurm: SlurmCluster, root: Path, tmp_path: Path
) -> None:
    given = {**{name: images.environ()[name] for name in ("PATH", "APPTAINER_USERNS")}, "HOME": HOME}
    with working(slurm, tmp_path, ranks=RANKS) as work:
        (work.directory / "mpi.yaml").write_text(STACK)
        (tmp_path / "site.yaml").write_text(SITE % f"{slurm.directory}/spmix")
        for words in (
            ("from-folder", root, "--name", "system"), ("extend", "system", "mpi.yaml", "--name", "mpi"),
            ("build", "--base", "mpi", "--format", "sif", "-o", "mpi.sif"),
        ):  # fmt: skip
            stackyard("--yard", work.directory / "yard", "image", *words, cwd=work.directory, timeout_s=1200, **given)
        words = ("launch", "-N", "2", "-r", "1", "-c", "1", "--backend", "mpi", "--stream", "all")
        done = stuckmpi.again(lambda: work.run(*words, "--container", "mpi.sif", "ranks.py", **given), work.directory)
        wrapped_python_has_it(work.directory / "yard", tmp_path, given)
    said = sorted(re.findall(r"rank (\d) of (\d) on (\w+): (\d+) (\S+) (\S+)", done.out))
    assert [(rank, size, total) for rank, size, _, total, *_ in said] == [("0", "2", "3"), ("1", "2", "3")], done.out
    assert len({host for _, _, host, *_ in said}) == 2
    package = f"/opt/stackyard/venv/lib/{VERSION}/site-packages/mpi4py/__init__.py"
    assert {each[4] for each in said} == {package} and all("/libmpi.so.40" in each[5] for each in said)


def wrapped_python_has_it(yard: Path, directory: Path, given: dict[str, str]) -> None:
    """Commands of the extended base as a module: its mpi4py is imported, and an environment on top starts."""
    run = ("--yard", yard, "run", "wrapped", "--")
    words = ("wrap", "mpi", "--commands", "python,mpirun.openmpi", "--name", "wrapped", "--version", "1")
    stackyard("--yard", yard, *words, cwd=directory, timeout_s=600, **given)
    code = "import sys, mpi4py.MPI as M; print(sys.prefix, M.Get_library_version().split(',')[0])"
    assert stackyard(*run, "python", "-c", code, **given).out.startswith("/opt/stackyard/venv Open MPI v4")
    stackyard(*run, "python", "-m", "venv", "--without-pip", "--system-site-packages", directory / "top", **given)
    code = "import sys; print(sys.prefix, sys.prefix != sys.base_prefix)"
    done = subprocess.run([directory / "top/bin/python", "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == f"{directory / 'top'} True\n"
