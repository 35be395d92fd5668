"""`stackyard doctor`, the machine: each finding on a real process that has it, or on the files of a machine with it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from support import shells
from support.accounts import Accounts

OF_HERE = {"host-loopback", "clock-free", "no-answer", "mount-stale"}
"""What this machine really has: its name and its clock, and the mounts of other tests whose servers are stopped."""


def lines(*prefix: str, root: Path = Path("/"), yard: Path = Path("/nonexistent"), **variables: str) -> dict[str, str]:
    """The findings of a process that is started in this way: the message and the remedy of each, by rule."""
    words = [*prefix, sys.executable, "-c", shells.PROGRAM, str(yard), str(root)]
    environ = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "HOME": "/tmp", **variables}
    done = subprocess.run(words, env=environ, text=True, capture_output=True, check=False, timeout=60)
    assert done.returncode == 0 and not done.stderr, done.stderr
    rows = (line.split("\t", 1) for line in done.stdout.splitlines())
    return {rule: text for rule, text in rows if rule not in OF_HERE}


@pytest.fixture
def healthy(tmp_path: Path) -> Path:
    return shells.machine(tmp_path / "root")


def about_machine(root: Path, **environ: str) -> set[str]:
    return shells.rules(environ, root / "none", root, "machine") - {
        "shm-small",
        "shm-full",
        *(OF_HERE - {"host-loopback"}),
    }


def test_healthy_machine(healthy: Path) -> None:
    assert about_machine(healthy) == set()


@pytest.mark.parametrize(("limit", "rule", "text"), [
    ("--nofile=512:", "open-files", "ulimit -n 1024"),
    ("--nofile=512:512", "open-files", "raise the hard limit, 512"),
    ("--stack=1048576:", "stack-size", "may have 1024 KiB"),
    ("--as=17179869184:17179869184", "address-space", "use a compute node"),
    ("--fsize=1073741824:unlimited", "file-size", "ulimit -f unlimited"),
    ("--cpu=600:600", "cpu-time", "ended after 600 s"),
])  # fmt: skip
def test_limits(limit: str, rule: str, text: str) -> None:
    findings = lines("prlimit", limit)
    assert set(findings) == {rule} and text in findings[rule]


def test_limits_of_an_account(accounts: Accounts) -> None:
    anna = accounts.user("anna")
    done = anna.run("prlimit", "--nproc=512:512", anna.bin / "python", "-c", shells.PROGRAM, "/nonexistent", "/")
    assert "may run 512 processes" in done.out and "hard limit, 512" in done.out


def test_limits_that_a_fabric_needs(healthy: Path) -> None:
    port = healthy / "sys/class/infiniband/mlx5_0/ports/1"
    shells.write(port / "state", "4: ACTIVE")
    shells.write(port / "phys_state", "5: LinkUp")
    shells.write(healthy / "dev/infiniband/uverbs0")
    findings = lines("prlimit", "--memlock=65536:65536", root=healthy)
    assert "may lock 64 KiB" in findings["locked-memory"] and "LimitMEMLOCK=infinity" in findings["locked-memory"]
    assert "memlock" not in str(lines("prlimit", "--memlock=65536:65536"))
    assert "fabric-disabled" in lines(root=healthy, NCCL_IB_DISABLE="1")


def test_fabric(healthy: Path) -> None:
    ports = healthy / "sys/class/infiniband/mlx5_0/ports"
    for number, state in enumerate(("1: DOWN", "4: ACTIVE"), 1):
        shells.write(ports / f"{number}/state", state)
        shells.write(ports / f"{number}/phys_state", "3: Disabled" if "DOWN" in state else "5: LinkUp")
    assert "fabric-devices" in about_machine(healthy)
    shells.write(healthy / "dev/infiniband/uverbs0")
    clean = about_machine(healthy)
    assert not {rule for rule in clean if rule.startswith("fabric")}  # one port of two is not connected: as usual
    shells.write(ports / "2/state", "2: INIT")
    assert "fabric-waiting" in about_machine(healthy)
    shells.write(ports / "2/state", "1: DOWN")
    assert "fabric-down" in about_machine(healthy)


def test_many_cores_need_more_files(healthy: Path) -> None:
    assert "open-files" not in lines("prlimit", "--nofile=1024:", root=healthy)
    (healthy / "proc/driver/nvidia/gpus/0000:01:00.0").mkdir(parents=True)
    assert "ulimit -n 4096" in lines("prlimit", "--nofile=1024:", root=healthy)["open-files"]


def test_core_files(healthy: Path) -> None:
    shells.write(healthy / "proc/sys/kernel/core_pattern", "core.%p")
    assert "core-files" in lines("prlimit", "--core=unlimited:unlimited", root=healthy)
    assert "core-files" not in lines("prlimit", "--core=0:unlimited", root=healthy)
    shells.write(healthy / "proc/sys/kernel/core_pattern", "|/usr/lib/systemd/systemd-coredump %P")
    assert "core-files" not in lines("prlimit", "--core=unlimited:unlimited", root=healthy)


def namespaced(*script: str) -> Sequence[str]:
    """The beginning of a command line in a mount namespace of its own, after these commands."""
    if os.geteuid() != 0:
        pytest.skip("mounts in a namespace need root")
    return ("unshare", "--mount", "sh", "-ec", "\n".join([*script, 'exec "$@"']), "sh")


def test_host_name(tmp_path: Path, healthy: Path) -> None:
    name = os.uname().nodename
    hosts = shells.write(tmp_path / "hosts", f"127.0.0.1 localhost {name}.site {name}\n192.0.2.7 {name}")
    words = namespaced(f"mount --bind {hosts} /etc/hosts")
    environ = {"PATH": "/usr/bin:/bin", "HOME": "/tmp"}
    argv = [*words, sys.executable, "-c", shells.PROGRAM, "/nonexistent", "/"]
    done = subprocess.run(argv, env=environ, text=True, capture_output=True, check=True)
    assert f"the host name {name} is 127.0.0.1 in /etc/hosts" in done.stdout
    for text, alone, together in (
        (f"127.0.1.1 {name}", False, True), (f"127.0.0.1 {name}", True, True),
        (f"192.0.2.7 {name}\n127.0.0.1 {name}", False, False), (f"#127.0.0.1 {name}\n::1 {name}", False, False),
    ):  # fmt: skip
        shells.write(healthy / "etc/hosts", text)
        (healthy / "etc/slurm").exists() and (healthy / "etc/slurm").rmdir()
        assert ("host-loopback" in about_machine(healthy)) is alone, text
        (healthy / "etc/slurm").mkdir()
        assert ("host-loopback" in about_machine(healthy)) is together, text


def test_shared_memory_of_a_container() -> None:
    findings = lines(*namespaced("mount -t tmpfs -o size=64m tmpfs /dev/shm"))
    assert "has 64 MiB" in findings["shm-small"] and "--shm-size" in findings["shm-small"]
    assert "shm-missing" in lines(*namespaced("mount -t tmpfs -o ro tmpfs /dev/shm"))
    full = "mount -t tmpfs -o size=2g tmpfs /dev/shm; fallocate -l 2000m /dev/shm/left"
    assert "shm-full" in lines(*namespaced(full))


def test_temporary_directory(tmp_path: Path) -> None:
    assert "temporary-missing" in lines(TMPDIR=str(tmp_path / "gone"))
    findings = lines(
        *namespaced(f"mount -t tmpfs -o noexec,size=64m,nr_inodes=100 tmpfs {tmp_path}"), TMPDIR=str(tmp_path)
    )
    assert {"temporary-noexec", "room"} <= set(findings)
    inodes = lines(*namespaced(f"mount -t tmpfs -o size=2g,nr_inodes=1000 tmpfs {tmp_path}",
                               f"for i in $(seq 990); do : > {tmp_path}/$i; done"), TMPDIR=str(tmp_path))  # fmt: skip
    assert "more files are possible" in inodes["inodes"]


def test_namespaces_and_fuse(accounts: Accounts) -> None:
    anna = accounts.user("anna")
    closed = [
        "unshare",
        "--user",
        "--map-root-user",
        "sh",
        "-c",
        'echo 0 > /proc/sys/user/max_user_namespaces; exec "$@"',
    ]
    done = anna.run(*closed, "sh", anna.bin / "python", "-c", shells.PROGRAM, "/nonexistent", "/")
    assert "user-namespaces" in done.out and "No space left on device (see user.max_user_namespaces)" in done.out
    assert "not the device of FUSE" in lines(*namespaced("mount --bind /dev/null /dev/fuse"))["fuse"]


def test_gpus(healthy: Path) -> None:
    gpu = healthy / "sys/bus/pci/devices/0000:3b:00.0"
    shells.write(gpu / "vendor", "0x10de")
    shells.write(gpu / "class", "0x030200")
    assert "gpu-without-driver" in about_machine(healthy)
    (gpu / "driver").symlink_to("../../drivers/vfio-pci")
    (healthy / "sys/bus/pci/drivers/vfio-pci").mkdir(parents=True)
    assert "gpu-without-driver" not in about_machine(healthy)
    version = "NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.54.15  Tue Mar  5 22:23:56 UTC 2024"
    shells.write(healthy / "proc/driver/nvidia/version", version)
    shells.write(healthy / "proc/driver/nvidia/gpus/0000:3b:00.0/information", "Model: \t NVIDIA A100")
    assert "gpu-devices" in about_machine(healthy)
    shells.write(healthy / "dev/nvidia0")
    library = shells.write(healthy / "usr/lib64/libcuda.so.550.54.15")
    (library.parent / "libcuda.so.1").symlink_to(library.name)
    shells.write(healthy / "usr/local/cuda/version.json", '{"cuda": {"name": "CUDA SDK", "version": "12.6.77"}}')
    assert not {rule for rule in about_machine(healthy) if "gpu" in rule or "driver" in rule}
    shells.write(healthy / "usr/local/cuda-13/version.json", '{"cuda": {"version": "13.0.0"}}')
    finding = shells.found({"CUDA_HOME": "/usr/local/cuda-13"}, healthy / "none", healthy, "machine")["driver-too-old"]
    assert "needs a driver for CUDA 13.0, and driver 550.54.15 runs CUDA up to 12.4" in finding.message
    library.rename(library.with_name("libcuda.so.570.86.10"))
    (library.parent / "libcuda.so.1").unlink()
    (library.parent / "libcuda.so.1").symlink_to("libcuda.so.570.86.10")
    assert "gpu-library" in about_machine(healthy)


def test_devices_of_others(healthy: Path, accounts: Accounts, common: Path) -> None:
    root = shells.machine(common / "root")
    shells.write(root / "proc/driver/nvidia/gpus/0000:3b:00.0/information", "Model: A100")
    shells.write(root / "dev/nvidia0").chmod(0o600)
    done = accounts.user("anna").run(accounts.user("anna").bin / "python", "-c", shells.PROGRAM, "/nonexistent", root)
    assert "permission denied: /dev/nvidia0" in done.out


@pytest.mark.parametrize("version", [1, 2])
def test_control_groups(healthy: Path, version: int) -> None:
    top = healthy / "sys/fs/cgroup"
    if version == 2:
        shells.write(healthy / "proc/self/cgroup", "0::/user.slice/job")
        shells.write(top / "user.slice/job/memory.max", "max")
        shells.write(top / "user.slice/memory.max", str(1 << 30))
        shells.write(top / "user.slice/job/cpu.max", "50000 100000")
        shells.write(top / "user.slice/job/pids.max", "300")
        shells.write(top / "user.slice/job/pids.current", "7")
    else:
        shells.write(healthy / "proc/self/cgroup", "9:name=systemd:/x\n4:memory:/job\n3:pids:/\n1:cpu,cpuacct:/")
        shells.write(top / "memory/job/memory.limit_in_bytes", str(1 << 30))
        shells.write(top / "memory/memory.limit_in_bytes", "9223372036854771712")
        shells.write(top / "cpu,cpuacct/cpu.cfs_quota_us", "50000")
        shells.write(top / "cpu,cpuacct/cpu.cfs_period_us", "100000")
        shells.write(top / "pids/pids.max", "300")
        shells.write(top / "pids/pids.current", "7")
    findings = shells.found({"OMP_NUM_THREADS": "4096"}, healthy / "none", healthy, "machine")
    assert "1.0 GiB" in findings["memory-limit"].message and "300 processes" in findings["process-limit"].message
    assert "0.5 processors" in findings["cpu-quota"].message and "too-many-threads" in findings


def test_memory_of_other_nodes(healthy: Path) -> None:
    for number, cores in enumerate(("0-3", "4-7")):
        shells.write(healthy / f"sys/devices/system/node/node{number}/cpulist", cores)
    shells.write(healthy / "proc/self/status", "Cpus_allowed_list:\t0-3\nMems_allowed_list:\t0-1")
    assert "numa-memory" not in about_machine(healthy)
    shells.write(healthy / "proc/self/status", "Cpus_allowed_list:\t4-7\nMems_allowed_list:\t0")
    assert "4 cores of NUMA node 1" in shells.found({}, healthy / "none", healthy, "machine")["numa-memory"].message


def test_bare_root(tmp_path: Path) -> None:
    """As in a chroot: neither /proc nor /sys is mounted."""
    findings = lines(*namespaced("mount -t tmpfs none /proc", "mount -t tmpfs none /sys"))
    assert set(findings) == {"proc-missing"}
    assert "proc-missing" in about_machine(tmp_path / "nothing")


def test_strict_reservation(healthy: Path) -> None:
    shells.write(healthy / "proc/sys/vm/overcommit_memory", "2")
    assert "overcommit" in about_machine(healthy)
