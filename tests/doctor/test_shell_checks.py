"""`stackyard doctor`, the shell: each finding by the environment that has it, and none in environments that work."""

from __future__ import annotations

import sys
import venv
from pathlib import Path

import pytest

from support import shells


def test_plain_shell(tmp_path: Path) -> None:
    assert shells.rules({}, tmp_path / "yard") == set()


def test_environment(tmp_path: Path) -> None:
    env = shells.conda(tmp_path / "base/envs/ml", numpy="2.1.0")
    active = {"CONDA_PREFIX": str(env), "CONDA_DEFAULT_ENV": "ml", "CONDA_SHLVL": "2",
              "CONDA_EXE": str(tmp_path / "base/bin/conda")}  # fmt: skip
    environ = {**active, "HOME": str(tmp_path), "PATH": shells.path(env / "bin", tmp_path / "base/condabin")}
    shells.install(tmp_path / ".local/lib/python3.10/site-packages", numpy="1.26.4")  # of another Python
    shells.install(
        tmp_path / ".local/lib/python3.11/site-packages", numpy="2.1.0", black="24.1"
    )  # as the environment's
    assert shells.rules(environ, tmp_path / "yard") == set()


def test_real_virtual_environment(tmp_path: Path) -> None:
    venv.create(tmp_path / "env", symlinks=True)
    shells.command(tmp_path / "env/bin/pip", f"#!{tmp_path}/env/bin/python")
    environ = {"VIRTUAL_ENV": str(tmp_path / "env"), "PATH": shells.path(tmp_path / "env/bin")}
    assert shells.rules(environ, tmp_path / "yard") == set()


def test_modules_of_a_tool_chain(tmp_path: Path) -> None:
    """As EasyBuild's modules leave a shell: many modules, their Python first, packages on PYTHONPATH."""
    names = "GCCcore/13.2.0:zlib/1.2.13:OpenMPI/4.1.6-GCC-13.2.0:Python/3.11.5-GCCcore-13.2.0:SciPy-bundle/2023.11"
    shells.command(tmp_path / "Python/bin/python3.11")
    (tmp_path / "Python/bin/python").symlink_to("python3.11")
    packages = shells.install(tmp_path / "SciPy/lib/python3.11/site-packages", numpy="1.26.2")
    environ = {"LOADEDMODULES": names, "PATH": shells.path(tmp_path / "Python/bin"), "PYTHONPATH": str(packages)}
    assert shells.rules(environ, tmp_path / "yard") == set()


def test_modules_beside(tmp_path: Path) -> None:
    modules = {"LOADEDMODULES": "gcc/12.2:openmpi/4.1.5:cuda/12.4:cray-mpich/8.1.28"}
    finding = shells.found(modules, tmp_path / "yard")["modules-beside"]
    assert "openmpi/4.1.5 and cray-mpich/8.1.28" in finding.message and "module unload openmpi/4.1.5" in finding.remedy
    nested = {"LOADEDMODULES": "Core/python/3.9.1:anaconda3/2023.09"}
    assert "modules-beside" in shells.found(nested, tmp_path / "yard")


@pytest.mark.parametrize("first", [True, False])
def test_base_of_conda_beside_a_module(tmp_path: Path, first: bool) -> None:
    base, stack = shells.conda(tmp_path / "miniconda3"), shells.conda(tmp_path / "stack/prefix")
    order = (base, stack) if first else (stack, base)
    environ = {"PATH": shells.path(*(prefix / "bin" for prefix in order)), "CONDA_EXE": str(base / "bin/conda"),
               "LOADEDMODULES": "pytorch/2.13"}  # fmt: skip
    finding = shells.found(environ, tmp_path / "yard")["conda-base"]
    assert f"active {'before' if first else 'behind'} the module pytorch/2.13" in finding.message
    assert "conda deactivate" in finding.remedy
    assert shells.rules({**environ, "LOADEDMODULES": ""}, tmp_path / "yard") == set()  # conda's own business
    alone = {**environ, "PATH": shells.path(base / "bin"), "LOADEDMODULES": "git/2.43"}
    assert shells.rules(alone, tmp_path / "yard") == set()


def test_other_python_before_the_environment(tmp_path: Path) -> None:
    env = shells.venv(tmp_path / "env")
    other = shells.command(tmp_path / "module/bin/python").parent
    environ = {"VIRTUAL_ENV": str(env), "PATH": shells.path(other, env / "bin")}
    finding = shells.found(environ, tmp_path / "yard")["python-elsewhere"]
    assert f"python is {other}/python, not that of the active environment {env}" in finding.message
    assert shells.rules({"VIRTUAL_ENV": str(tmp_path / "gone")}, tmp_path / "yard") == {"environment-gone"}


def test_pip_of_another_python(tmp_path: Path) -> None:
    env = shells.venv(tmp_path / "env")
    pip = shells.command(tmp_path / ".local/bin/pip", f"#!{sys.executable}")
    environ = {"VIRTUAL_ENV": str(env), "PATH": shells.path(pip.parent, env / "bin")}
    assert "pip-elsewhere" in shells.found(environ, tmp_path / "yard")
    pip.write_text(
        f"#!/bin/sh\n'''exec' {tmp_path}/other/bin/python3 \"$0\" \"$@\"\n' '''\n"
    )  # pip's form of a long path
    assert f"for {tmp_path}/other/bin/python3" in shells.found(environ, tmp_path / "yard")["pip-elsewhere"].message
    pip.write_text(f"#!{env}/bin/python\n")
    assert shells.rules(environ, tmp_path / "yard") == set()


def test_commands_of_the_home_directory(tmp_path: Path) -> None:
    env = shells.conda(tmp_path / "env")
    for directory in (env / "bin", tmp_path / ".local/bin"):
        shells.command(directory / "torchrun")
    shells.command(tmp_path / ".local/bin/black")
    environ = {"HOME": str(tmp_path), "PATH": shells.path(tmp_path / ".local/bin", env / "bin")}
    finding = shells.found(environ, tmp_path / "yard")["local-commands"]
    assert "torchrun" in finding.message and "black" not in finding.message
    environ["PATH"] = shells.path(env / "bin", tmp_path / ".local/bin")
    assert shells.rules(environ, tmp_path / "yard") == set()


def test_packages_of_the_home_directory(tmp_path: Path) -> None:
    env = shells.conda(tmp_path / "env", numpy="2.1.0", typing_extensions="4.12.2")
    shells.install(tmp_path / ".local/lib/python3.11/site-packages", numpy="1.26.4", **{"Typing-Extensions": "4.9.0"})
    environ = {"HOME": str(tmp_path), "PATH": shells.path(env / "bin")}
    finding = shells.found(environ, tmp_path / "yard")["user-packages"]
    assert "numpy 1.26.4 instead of 2.1.0, typing-extensions 4.9.0 instead of 4.12.2" in finding.message
    assert "PYTHONNOUSERSITE=1" in finding.remedy
    assert shells.rules({**environ, "PYTHONNOUSERSITE": "1"}, tmp_path / "yard") == set()
    moved = {**environ, "HOME": "/nonexistent", "PYTHONUSERBASE": str(tmp_path / ".local")}
    assert "user-packages" in shells.found(moved, tmp_path / "yard")


def test_python_path(tmp_path: Path) -> None:
    env = shells.conda(tmp_path / "env", numpy="2.1.0")
    older = shells.install(tmp_path / "site/lib/python3.9/site-packages")
    other = shells.install(tmp_path / "module/packages", numpy="1.24.0", scipy="1.10")
    environ = {"PATH": shells.path(env / "bin"), "PYTHONPATH": f"{older}:{other}:{tmp_path}/mine"}
    findings = shells.found(environ, tmp_path / "yard")
    assert "packages of Python 3.9, and python is 3.11" in findings.pop("python-path-version").message
    assert "numpy 1.24.0 instead of 2.1.0" in findings.pop("python-path-packages").message
    assert not findings
    assert shells.rules({"PYTHONPATH": f"{tmp_path}:"}, tmp_path / "yard") == {"python-path-here"}
    assert shells.rules({"PYTHONHOME": "/opt/python"}, tmp_path / "yard") == {"python-home"}


@pytest.mark.parametrize(("value", "here"), [
    ("/usr/bin:/bin", False), ("/usr/bin:/bin:", True), (":/usr/bin", True), ("/usr/bin:.:/bin", True),
    ("/usr/bin::/bin", True), ("/opt/.bin:/usr/bin", False),
])  # fmt: skip
def test_working_directory_in_path(tmp_path: Path, value: str, here: bool) -> None:
    assert ("path-here" in shells.rules({"PATH": value}, tmp_path / "yard")) is here


def test_library_path(tmp_path: Path) -> None:
    env = shells.conda(tmp_path / "env")
    (env / "lib/libtcl8.6.so").touch()
    finding = shells.found({"LD_LIBRARY_PATH": str(env / "lib")}, tmp_path / "yard")["library-path-conda"]
    assert "libtcl8.6.so" in finding.reason
    for number, place in ((33, env / "lib"), (28, tmp_path / "gcc10/lib64"), (34, tmp_path / "gcc14/lib64")):
        place.mkdir(parents=True, exist_ok=True)
        (place / f"libstdc++.so.6.0.{number}").touch()
        (place / "libstdc++.so.6").symlink_to(f"libstdc++.so.6.0.{number}")
    environ = {"PATH": shells.path(env / "bin"), "LD_LIBRARY_PATH": str(tmp_path / "gcc10/lib64")}
    assert "libstdc++.so.6.0.28 is older" in shells.found(environ, tmp_path / "yard")["library-path-older"].message
    newer = {**environ, "LD_LIBRARY_PATH": f"{tmp_path}/gcc14/lib64:{tmp_path}/none"}
    assert shells.rules(newer, tmp_path / "yard") == set()
    stubs = {"LD_LIBRARY_PATH": "/usr/local/cuda/lib64/stubs:/usr/local/cuda/lib64"}
    assert shells.rules(stubs, tmp_path / "yard") == {"library-path-stubs"}


def test_preload(tmp_path: Path) -> None:
    there = tmp_path / "libthere.so"
    there.touch()
    value = {"LD_PRELOAD": f"{there}:{tmp_path}/gone.so libnamed.so"}
    assert f"{tmp_path}/gone.so" in shells.found(value, tmp_path / "yard")["preload-missing"].message
    assert shells.rules({"LD_PRELOAD": f"{there}"}, tmp_path / "yard") == set()


def test_openmp(tmp_path: Path) -> None:
    env = shells.conda(tmp_path / "env")
    site = env / "lib/python3.11/site-packages"
    (env / "lib/libomp.so").touch()
    (env / "lib/libiomp5.so").symlink_to("libomp.so")
    (env / "lib/libgomp.so.1").symlink_to("libomp.so")
    environ = {"PATH": shells.path(env / "bin")}
    assert shells.rules(environ, tmp_path / "yard") == set()
    (site / "faiss_cpu.libs").mkdir()
    (site / "faiss_cpu.libs/libiomp5-0a1b2c3d.so").touch()
    assert "OpenMP library twice" in shells.found(environ, tmp_path / "yard")["openmp-twice"].message
    assert shells.rules({"KMP_DUPLICATE_LIB_OK": "TRUE"}, tmp_path / "yard") == {"openmp-suppressed"}
    plain = shells.venv(tmp_path / "plain")
    (plain / "lib/python3.11/site-packages/torch/lib").mkdir(parents=True)
    (plain / "lib/python3.11/site-packages/torch/lib/libgomp-a34b3233.so.1").touch()
    mixed = {"PATH": shells.path(plain / "bin"), "LD_LIBRARY_PATH": str(tmp_path / "intel")}
    assert shells.rules(mixed, tmp_path / "yard") == set()
    shells.command(tmp_path / "intel/libiomp5.so")
    assert shells.rules(mixed, tmp_path / "yard") == {"openmp-mixed"}


def test_mpi_of_an_environment(tmp_path: Path) -> None:
    env = shells.conda(tmp_path / "env")
    shells.command(env / "bin/mpirun")
    environ = {"PATH": shells.path(env / "bin"), "LOADEDMODULES": "gcc/12:openmpi/4.1.5"}
    assert "not that of the module openmpi/4.1.5" in shells.found(environ, tmp_path / "yard")["mpi-mixed"].message
    assert shells.rules({"PATH": shells.path(env / "bin")}, tmp_path / "yard") == set()


def test_variables_of_a_job(tmp_path: Path) -> None:
    left = {"RANK": "0", "WORLD_SIZE": "4", "MASTER_ADDR": "n1"}
    assert shells.rules(left, tmp_path / "yard") == {"rank-left"}
    assert shells.rules({**left, "SLURM_JOB_ID": "7"}, tmp_path / "yard") == set()
    assert shells.rules({"CUDA_LAUNCH_BLOCKING": "1"}, tmp_path / "yard") == {"cuda-blocking"}


def test_words_of_others_are_harmless(tmp_path: Path) -> None:
    finding = shells.found({"PYTHONHOME": "/x\x1b[2J\n[fake]{y}"}, tmp_path / "yard")["python-home"]
    assert "\\x1b[2J\\n[fake]{y}" in finding.message
