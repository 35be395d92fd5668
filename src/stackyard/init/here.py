"""What is seen on one machine: its cores as the kernel numbers them, its GPUs and what is next to them, file systems.

The functions that read files take the root directory of the machine, so that a captured tree can be read too.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from stackyard.core.late import dataclass
from stackyard.host.files import filesystem
from stackyard.host.machine import probe
from stackyard.host.machine.ranges import core_list, ranges
from stackyard.host.run.command import which

SHARED = {
    "lustre": "Lustre", "gpfs": "GPFS", "beegfs": "BeeGFS", "beegfs_nodev": "BeeGFS", "nfs": "NFS", "nfs4": "NFS",
    "ceph": "CephFS", "wekafs": "Weka", "panfs": "PanFS", "fuse.glusterfs": "GlusterFS", "orangefs": "OrangeFS",
    "dvs": "DVS", "quobyte": "Quobyte",
}  # fmt: skip
"""File systems that nodes share, by their type in mountinfo."""
_LOCAL = {"xfs", "ext4", "btrfs", "zfs", "f2fs"}
_LOCAL_NAME = re.compile(r"local|nvme|ssd|scratch|\btmp\b|mnt/bb", re.IGNORECASE)
_FABRICS = re.compile(r"^(hsn\d+|ib\d+|ibp\w+|opa\d+|ibs\w+)$")
_RUNTIMES = ("apptainer", "singularity", "ch-run", "podman-hpc", "enroot", "shifter", "sarus")


@dataclass(frozen=True)
class Cores:
    """The cores of a machine. `domains`: a socket, its cores and GPUs, for each NUMA node; empty: one for all."""

    cores: int
    sockets: int
    smt: int
    numbering: str
    domains: tuple[tuple[int, str, tuple[int, ...]], ...] = ()


@dataclass(frozen=True)
class Here:
    """A machine as it is seen from a process on it."""

    host: str
    machine: probe.Machine
    cores: Cores
    shared: tuple[str, ...]
    local: tuple[str, ...]
    interfaces: tuple[str, ...]
    runtimes: tuple[str, ...]


def look(environ: Mapping[str, str], root: Path = Path("/")) -> Here:
    """Look at this machine; no program but nvidia-smi is started."""
    shared, local = places()
    names = sorted(path.name for path in (root / "sys/class/net").glob("*"))
    return Here(
        os.uname().nodename.partition(".")[0], probe.machine(), cores(root), shared, local,
        tuple(name for name in names if _FABRICS.match(name)),
        tuple(name for name in _RUNTIMES if which(name, environ)),
    )  # fmt: skip


def cores(root: Path) -> Cores:
    """The cores by /sys; a machine without it has the CPUs of this process, on one socket."""
    found: dict[tuple[int, int], list[int]] = {}
    for directory in (root / "sys/devices/system/cpu").glob("cpu[0-9]*"):
        package, core = (_number(directory / "topology" / name) for name in ("physical_package_id", "core_id"))
        if package is not None and core is not None:
            found.setdefault((package, core), []).append(int(directory.name[3:]))
    if not found:
        return Cores(len(os.sched_getaffinity(0)), 1, 1, "split")
    threads = [sorted(each) for each in found.values()]
    smt = max(map(len, threads))
    adjacent = smt > 1 and all(each[-1] - each[0] == len(each) - 1 for each in threads)
    index = {first: at for at, first in enumerate(sorted(each[0] for each in threads))}
    packages = sorted({package for package, _ in found})
    owners = {index[min(each)]: packages.index(package) for (package, _), each in found.items()}
    domains = _domains(root, index, owners)
    return Cores(len(found), len(packages), smt, "adjacent" if adjacent else "split", domains)


def _domains(
    root: Path, index: Mapping[int, int], owners: Mapping[int, int]
) -> tuple[tuple[int, str, tuple[int, ...]], ...]:
    """The NUMA nodes with their cores and GPUs, where there are GPUs and their places are known."""
    gpus = _gpu_nodes(root)
    if not gpus or any(node < 0 for node in gpus):
        return ()
    found = []
    for directory in sorted((root / "sys/devices/system/node").glob("node[0-9]*"), key=lambda one: int(one.name[4:])):
        number = int(directory.name[4:])
        own = sorted(index[cpu] for cpu in _ids(_text(directory / "cpulist")) if cpu in index)
        near = tuple(at for at, node in enumerate(gpus) if node == number)
        if own:
            found.append((owners[own[0]], ranges(own), near))
    placed = {gpu for _, _, near in found for gpu in near}
    return tuple(found) if placed == set(range(len(gpus))) else ()


def _gpu_nodes(root: Path) -> list[int]:
    """The NUMA node of each GPU in the order of the driver; -1: the firmware does not say."""
    addresses = sorted(path.name for path in (root / "proc/driver/nvidia/gpus").glob("*"))
    if not addresses:
        cards = sorted((root / "sys/bus/pci/drivers/amdgpu").glob("*:*"))
        addresses = [path.name for path in cards if _text(path / "class").startswith(("0x0380", "0x0302", "0x1200"))]
    found = [_number(root / "sys/bus/pci/devices" / name.lower() / "numa_node") for name in addresses]
    return [-1 if each is None else each for each in found]


def places() -> tuple[tuple[str, ...], tuple[str, ...]]:
    """File systems that nodes share (``Lustre at /scratch``), and local ones with a name for scratch files."""
    mounted = filesystem.mounts()
    shared = [f"{SHARED[mount.kind]} at {mount.where}" for mount in mounted if mount.kind in SHARED]
    local = [mount.where for mount in mounted
             if mount.kind in _LOCAL and mount.where != "/" and _LOCAL_NAME.search(mount.where)]  # fmt: skip
    return tuple(dict.fromkeys(shared)), tuple(dict.fromkeys(local))


def _ids(text: str) -> tuple[int, ...]:
    """The numbers of a list of the kernel; none if it is not one."""
    with suppress(ValueError):
        return core_list(text.strip()) if text.strip() else ()
    return ()


def _text(path: Path) -> str:
    try:
        with path.open(encoding="utf-8", errors="replace") as file:
            return file.read(1 << 20)
    except OSError:
        return ""


def _number(path: Path) -> int | None:
    text = _text(path).strip()
    return int(text) if re.fullmatch(r"-?\d+", text) else None
