"""`stackyard doctor` on misconfigurations that people reported in public, reproduced from what they wrote.

The checks were written with the first ten at hand. The others were looked for when they were finished: six of ten were
found then; what the checks lacked for three more was added since.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from support import programs, shells
from support.bindfs import bindfs

Reported = Callable[[Path], set[str]]
"""Reproduces a report in a directory; the rules that are found."""


def in_shell(place: Path, about: str = "shell", **environ: str) -> set[str]:
    return shells.rules(environ, place / "yard", about=about)


def on_machine(root: Path, **environ: str) -> set[str]:
    return shells.rules(environ, root / "none", root, "machine")


def limited(place: Path, *limits: str, root: Path = Path("/")) -> set[str]:
    argv = ["prlimit", *limits, sys.executable, "-c", shells.PROGRAM, str(place / "yard"), str(root)]
    environ = {"PATH": shells.SYSTEM_PATH, "HOME": "/nonexistent"}
    done = subprocess.run(argv, env=environ, text=True, capture_output=True, check=True)
    return {line.partition("\t")[0] for line in done.stdout.splitlines()}


def default_modules(place: Path) -> set[str]:
    env = shells.conda(place / "env", numpy="1.16.4")
    modules = shells.install(place / "py-numpy/lib/python3.11/site-packages", numpy="1.14.3")
    return in_shell(place, PATH=shells.path(env / "bin"), PYTHONPATH=str(modules), LOADEDMODULES="py-numpy/1.14.3")


def libraries_of_an_environment(place: Path) -> set[str]:
    env = shells.conda(place / "caffe")
    shells.write(env / "lib/libtcl8.5.so")
    return in_shell(place, LD_LIBRARY_PATH=f"{env}/lib:")


def python_of_a_module(place: Path) -> set[str]:
    env, module = shells.conda(place / "env"), shells.command(place / "modules/python/3.7/bin/python").parent
    return in_shell(place, PATH=shells.path(module, env / "bin"), CONDA_PREFIX=str(env), CONDA_DEFAULT_ENV="env")


def loopback(place: Path) -> set[str]:
    return on_machine(shells.machine(place, etc__hosts=f"127.0.0.1 localhost {os.uname().nodename}"))


def locked_memory(place: Path) -> set[str]:
    root = shells.machine(place / "root", dev__infiniband__uverbs0="")
    shells.write(root / "sys/class/infiniband/mlx5_0/ports/1/state", "4: ACTIVE")
    return limited(place, "--memlock=65536:", root=root)


def open_files(place: Path) -> set[str]:
    root = shells.machine(place / "root")
    shells.write(root / "proc/driver/nvidia/gpus/0000:3b:00.0/information", "Model: A100")
    return limited(place, "--nofile=1024:", root=root)


def small_shared_memory(place: Path) -> set[str]:
    script = 'mount -t tmpfs -o size=64m tmpfs /dev/shm; exec "$@"'
    words = [sys.executable, "-c", shells.PROGRAM, str(place / "yard"), "/"]
    argv = ["unshare", "--mount", "sh", "-ec", script, "sh", *words]
    done = subprocess.run(argv, text=True, capture_output=True, check=True)
    return {line.partition("\t")[0] for line in done.stdout.splitlines()}


def old_driver(place: Path) -> set[str]:
    root = nvidia(place, "570.158.01", "570.158.01")
    shells.write(root / "usr/local/cuda/version.json", '{"cuda": {"version": "13.0.48"}}')
    return on_machine(root)


def nvidia(place: Path, driver: str, library: str) -> Path:
    text = f"NVRM version: NVIDIA UNIX x86_64 Kernel Module  {driver}  Tue Jul 13 16:14:05 UTC 2021"
    root = shells.machine(place, proc__driver__nvidia__version=text, dev__nvidia0="")
    shells.write(root / "proc/driver/nvidia/gpus/0000:3b:00.0/information", "Model: A100")
    file = shells.write(root / f"usr/lib/x86_64-linux-gnu/libcuda.so.{library}")
    (file.parent / "libcuda.so.1").symlink_to(file.name)
    return root


def user_site(place: Path) -> set[str]:
    env = shells.conda(place / "runtime", python="3.10", numpy="1.24.4")
    shells.install(place / ".local/lib/python3.10/site-packages", numpy="1.19.5")
    return in_shell(place, PATH=shells.path(env / "bin"), HOME=str(place))


def closed_namespaces(place: Path) -> set[str]:
    script = 'echo 0 > /proc/sys/user/max_user_namespaces; exec "$@"'
    words = [sys.executable, "-c", shells.PROGRAM, str(place / "yard"), "/"]
    argv = ["unshare", "--user", "--map-root-user", "sh", "-ec", script, "sh", *words]
    done = subprocess.run(argv, text=True, capture_output=True, check=True)
    return {line.partition("\t")[0] for line in done.stdout.splitlines()}


def python_home(place: Path) -> set[str]:
    return in_shell(place, PYTHONHOME="/opt/python3")


def toolkit_of_before(place: Path) -> set[str]:
    root = nvidia(place, "390.48.01", "390.48.01")
    shells.write(root / "usr/local/cuda/version.txt", "CUDA Version 9.2.148")
    return on_machine(root)


def older_version_of_the_home_directory(place: Path) -> set[str]:
    env = shells.conda(place / "lstchain", ctapipe="0.12.0")
    shells.install(place / ".local/lib/python3.11/site-packages", ctapipe="0.10.5")
    return in_shell(place, PATH=shells.path(env / "bin"), HOME=str(place), CONDA_PREFIX=str(env))


def no_devices_in_a_container(place: Path) -> set[str]:
    port = place / "sys/class/infiniband/mlx5_0/ports/1"
    shells.write(port / "state", "4: ACTIVE")
    shells.write(port / "phys_state", "5: LinkUp")
    return on_machine(shells.machine(place))


def small_temporary_directory(place: Path) -> set[str]:
    (place / "tmp").mkdir()
    script = f'mount -t tmpfs -o size=500m tmpfs {place}/tmp; TMPDIR={place}/tmp exec "$@"'
    words = [sys.executable, "-c", shells.PROGRAM, str(place / "yard"), "/"]
    done = subprocess.run(
        ["unshare", "--mount", "sh", "-ec", script, "sh", *words], text=True, capture_output=True, check=True
    )
    return {line.partition("\t")[0] for line in done.stdout.splitlines()}


def quota_of_half_the_cores(place: Path) -> set[str]:
    root = shells.machine(place, proc__self__cgroup="0::/")
    shells.write(root / "sys/fs/cgroup/cpu.max", f"{len(os.sched_getaffinity(0)) * 50000} 100000")
    return on_machine(root)


def usual_stack(place: Path) -> set[str]:
    return limited(place, "--stack=8388608:")


def stale_mount(place: Path) -> set[str]:
    programs.need("bindfs")
    with bindfs(place / "below", place / "myDirectory") as server:
        server.kill()
        server.wait()
        return in_shell(place, "machine")


def module_mpi_before_conda(place: Path) -> set[str]:
    env = shells.conda(place / "anaconda3")
    shells.command(env / "bin/mpirun")
    environ = {"PATH": f"{env}/bin:/nonexistent", "LOADEDMODULES": "mpi/openmpi-x86_64"}
    return in_shell(place, **environ)


SEEN: dict[str, tuple[str, Reported]] = {
    "monajemi/clusterjob/issues/25": ("python-path-packages", default_modules),
    "rcgsheffield/sheffield_hpc/issues/564": ("library-path-conda", libraries_of_an_environment),
    "conda/conda/issues/9952": ("python-elsewhere", python_of_a_module),
    "charmplusplus/charm/issues/1031": ("host-loopback", loopback),
    "ai4d-iasc/trixie/issues/81": ("locked-memory", locked_memory),
    "pytorch/pytorch/issues/165532": ("open-files", open_files),
    "NVIDIA/nccl/issues/342": ("shm-small", small_shared_memory),
    "cirruslabs/linux-image-templates/issues/64": ("driver-too-old", old_driver),
    "nextstrain/cli/pull/311": ("user-packages", user_site),
    "apptainer/apptainer/issues/2360": ("user-namespaces", closed_namespaces),
}
HELD_BACK: dict[str, tuple[str, Reported]] = {
    "OSC/ondemand/issues/298": ("python-home", python_home),
    # willsheffler/worms/issues/2, 512 processes: test_machine_checks has it, since it needs an account
    "pytorch/pytorch/issues/6098": ("driver-too-old", toolkit_of_before),
    "cta-observatory/cta-lstchain/pull/791": ("user-packages", older_version_of_the_home_directory),
    "pytorch/pytorch/issues/111424": ("fabric-devices", no_devices_in_a_container),
    "conda/conda-pack/issues/191": ("room", small_temporary_directory),
    "ollama/ollama/issues/17916": ("cpu-quota", quota_of_half_the_cores),
    "mitre/fusera/issues/164": ("mount-stale", stale_mount),
    "ContinuumIO/anaconda-issues/issues/1310": ("mpi-mixed", module_mpi_before_conda),
}


NOT_FOUND: dict[str, tuple[str, Reported]] = {
    "firemodels/fds/issues/5355": ("stack-size", usual_stack),  # 8 MiB, which every healthy machine has
}


@pytest.mark.parametrize("report", [*SEEN, *HELD_BACK, *NOT_FOUND])
def test_report(report: str, tmp_path: Path) -> None:
    rule, reproduce = {**SEEN, **HELD_BACK, **NOT_FOUND}[report]
    assert (rule in reproduce(tmp_path)) is (report not in NOT_FOUND)
