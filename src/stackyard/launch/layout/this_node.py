"""This machine as a `Node`: sockets, cores and their hardware threads, GPUs and the cores near them, from the kernel.

Only files below ``/sys`` and ``/proc`` are read and nothing is started, so it is fast and works without vendor
programs. Missing facts get the simplest default, listed in `Node.assumed`. Cores outside this process's affinity mask,
which a batch system or a container narrows, are left out, and so are GPUs that CUDA_VISIBLE_DEVICES or
ROCR_VISIBLE_DEVICES hides by number.
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Literal

from stackyard.core.late import dataclass
from stackyard.host.machine.probe import memory_gib
from stackyard.launch.layout.model import Node, NodeDomain

THIS = "this machine"
"""The name of the kind of a node that no site file describes."""


@dataclass(frozen=True)
class _Core:
    """A core of the machine: its package, NUMA node and the operating system's numbers of its threads, ascending."""

    package: int
    numa: int
    threads: tuple[int, ...]


@dataclass(frozen=True)
class _Numbering:
    """The numbering of cores and threads: `of` maps cores to numbers; `smt` is 1 if only first threads are usable."""

    of: Mapping[_Core, int]
    smt: int
    style: Literal["adjacent", "split"]
    all_cores: int
    assumed: tuple[str, ...] = ()


def this_node(
    root: Path = Path("/"), affinity: Collection[int] | None = None, environ: Mapping[str, str] | None = None
) -> Node:
    """Read this machine. Never fails: what cannot be read gets a default, listed in `assumed`.

    Args:
        root: the root directory of the machine; a captured tree works too.
        affinity: usable hardware threads; None: this process's affinity mask.
        environ: the variables that hide GPUs; None: this process's.
    """
    allowed = frozenset(os.sched_getaffinity(0) if affinity is None else affinity)
    environ = os.environ if environ is None else environ
    cores = _cores(root, allowed)
    numbering = _numbering(cores, allowed)
    usable = [core for core in cores if _first_allowed(core, allowed, numbering) is not None]
    vendor, gpus = _gpus(root, environ)
    domains, assumed = _domains(usable, numbering, gpus)
    return Node(
        kind=THIS,
        domains=domains,
        all_cores=numbering.all_cores,
        smt=numbering.smt,
        smt_numbering=numbering.style,
        gpu_vendor=vendor,
        memory_gib=memory_gib(root),
        assumed=(*numbering.assumed, *assumed),
    )


def _cores(root: Path, allowed: Collection[int]) -> list[_Core]:
    """All cores of the machine in the order of their first threads; each allowed CPU alone without /sys."""
    numa = {cpu: node for node, cpus in _numa_nodes(root).items() for cpu in cpus}
    cores: dict[tuple[int, ...], _Core] = {}
    for directory in (root / "sys/devices/system/cpu").glob("cpu[0-9]*"):
        topology = directory / "topology"
        siblings = _numbers(_read(topology / "core_cpus_list") or _read(topology / "thread_siblings_list"))
        if siblings:
            package = _integer(_read(topology / "physical_package_id"))
            cores[siblings] = _Core(max(package, 0), numa.get(siblings[0], 0), siblings)
    for cpu in allowed:
        if not any(cpu in threads for threads in cores):
            cores[(cpu,)] = _Core(0, numa.get(cpu, 0), (cpu,))
    return sorted(cores.values(), key=lambda core: core.threads)


def _numa_nodes(root: Path) -> dict[int, tuple[int, ...]]:
    directories = (root / "sys/devices/system/node").glob("node[0-9]*")
    return {
        int(directory.name.removeprefix("node")): _numbers(_read(directory / "cpulist")) for directory in directories
    }


def _numbering(cores: list[_Core], allowed: Collection[int]) -> _Numbering:
    """Whether threads are numbered ``core + t * cores`` (split) or ``core * smt + t`` (adjacent).

    A machine that is neither (e.g. with two kinds of cores) is treated as having one thread per core, as is one whose
    second threads this process may not use: then a core's number is that of its one thread, which is always correct.
    """
    smt = max(len(core.threads) for core in cores)
    whole = all(set(core.threads) <= set(allowed) for core in cores if set(core.threads) & set(allowed))
    step = len(cores)
    if whole and all(core.threads == tuple(core.threads[0] + t * step for t in range(smt)) for core in cores):
        return _Numbering({core: core.threads[0] for core in cores}, smt, "split", step)
    if whole and all(
        core.threads == tuple(range(core.threads[0], core.threads[0] + smt)) and core.threads[0] % smt == 0
        for core in cores
    ):
        numbers = {core: core.threads[0] // smt for core in cores}
        return _Numbering(numbers, smt, "adjacent", max(numbers.values()) + 1)
    numbers = {core: min(set(core.threads) & set(allowed), default=core.threads[0]) for core in cores}
    why = "its cores differ" if whole else "this process may not use all threads of its cores"
    return _Numbering(numbers, 1, "split", len(cores), (f"one hardware thread per core is used, since {why}",))


def _first_allowed(core: _Core, allowed: Collection[int], numbering: _Numbering) -> int | None:
    usable = [thread for thread in core.threads if thread in allowed]
    return numbering.of[core] if usable else None


def _domains(
    cores: list[_Core], numbering: _Numbering, gpus: Mapping[int, int | None]
) -> tuple[tuple[NodeDomain, ...], tuple[str, ...]]:
    """One domain per package and NUMA node with usable cores; a GPU goes to its NUMA node's, else to the first one."""
    groups: dict[tuple[int, int], list[int]] = {}
    for core in cores:
        groups.setdefault((core.package, core.numa), []).append(numbering.of[core])
    places = sorted(groups)
    assumed: list[str] = []
    near: dict[tuple[int, int], list[int]] = {place: [] for place in places}
    for gpu, numa in gpus.items():
        at = next((place for place in places if place[1] == numa), None)
        if at is None:
            at = places[0]
            if len(places) > 1:
                assumed.append(f"GPU {gpu} is assumed to be next to the first cores: its NUMA node is unknown")
        near[at].append(gpu)
    domains = tuple(NodeDomain(place[0], tuple(sorted(groups[place])), tuple(near[place])) for place in places)
    return domains, tuple(assumed)


def _gpus(root: Path, environ: Mapping[str, str]) -> tuple[str, dict[int, int | None]]:
    """The vendor, and the NUMA node (None: unknown) of each visible GPU by the driver's number."""
    for vendor, devices, variable in (
        ("nvidia", _nvidia(root), "CUDA_VISIBLE_DEVICES"),
        ("amd", _amd(root), "ROCR_VISIBLE_DEVICES"),
    ):
        if devices:
            shown = _shown(len(devices), environ.get(variable))
            return (vendor if shown else ""), {gpu: _numa_of(root, devices[gpu]) for gpu in shown}
    return "", {}


def _nvidia(root: Path) -> list[str]:
    """PCI addresses in the order of the bus, which is nvidia-smi's order (and CUDA's with CUDA_DEVICE_ORDER set).

    A GPU without a device file (in a container with other GPUs) is left out. The file is not opened: the first open of
    an idle GPU takes seconds.
    """
    gpus = []
    for directory in (root / "proc/driver/nvidia/gpus").glob("*:*"):
        minor = re.search(r"^Device Minor:\s*(\d+)", _read(directory / "information"), re.MULTILINE)
        if minor is None or (root / f"dev/nvidia{minor[1]}").exists():
            gpus.append(directory.name.lower())
    return sorted(gpus)


def _amd(root: Path) -> list[str]:
    """PCI addresses in the order of the compute driver's nodes, which is ROCr's; CPUs are nodes without SIMD units."""
    nodes = (root / "sys/class/kfd/kfd/topology/nodes").glob("[0-9]*")
    gpus = []
    for directory in sorted(nodes, key=lambda path: int(path.name)):
        values = dict(line.split(maxsplit=1) for line in _read(directory / "properties").splitlines() if " " in line)
        if _integer(values.get("simd_count", "0")) > 0:
            location, domain = _integer(values.get("location_id", "0")), _integer(values.get("domain", "0"))
            bus, device, function = location >> 8 & 0xFF, location >> 3 & 0x1F, location & 7
            gpus.append(f"{domain:04x}:{bus:02x}:{device:02x}.{function}")
    return gpus


def _shown(count: int, variable: str | None) -> list[int]:
    """The GPUs that a visibility variable leaves visible. Other formats (UUIDs) cannot be resolved here: all."""
    if variable is None or not re.fullmatch(r"\s*|-1|\d+(\s*,\s*\d+)*", variable):
        return list(range(count))
    return [number for number in sorted(map(int, re.findall(r"-?\d+", variable))) if 0 <= number < count]


def _numa_of(root: Path, address: str) -> int | None:
    text = _read(root / "sys/bus/pci/devices" / address / "numa_node")
    number = _integer(text) if text else -1
    return number if number >= 0 else None


def _numbers(text: str) -> tuple[int, ...]:
    """A list of CPUs from the kernel, ``0-3,8``; empty for other text."""
    numbers: list[int] = []
    for match in re.finditer(r"(\d+)(?:-(\d+))?", text):
        numbers.extend(range(int(match[1]), int(match[2] or match[1]) + 1))
    return tuple(sorted(numbers))


def _integer(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        return -1


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return ""
