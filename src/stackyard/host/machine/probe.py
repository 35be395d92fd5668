"""The properties of this machine: conda platform, C library, kernel, cores, memory and accelerators.

Everything is read from files of the kernel; only NVIDIA's CUDA version needs ``nvidia-smi``, and without that
program, the driver's files still list the GPUs. Standard library only and quick, since read commands
call it. The functions that read files take the root directory of the machine, so that a captured tree can be read too.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import asdict
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

from stackyard.core.errors import StackyardError
from stackyard.core.late import dataclass
from stackyard.host.machine import platforms
from stackyard.host.run.command import run, which

_X86_LEVELS: tuple[tuple[str, frozenset[str]], ...] = (
    ("x86_64_v2", frozenset(["cx16", "lahf_lm", "popcnt", "pni", "sse4_1", "sse4_2", "ssse3"])),
    ("x86_64_v3", frozenset(["avx", "avx2", "bmi1", "bmi2", "f16c", "fma", "abm", "movbe", "xsave"])),
    ("x86_64_v4", frozenset(["avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"])),
)
"""What each level of the x86-64 psABI adds, as named in /proc/cpuinfo (pni is SSE3, abm is LZCNT)."""


@dataclass(frozen=True)
class GpuDevice:
    """One accelerator as the driver reports it."""

    vendor: Literal["nvidia", "amd"]
    model: str


@dataclass(frozen=True)
class Machine:
    """The properties of a node that software depends on.

    Attributes:
        platform: conda's name, e.g. ``linux-64``.
        architecture: the kernel's name, e.g. ``x86_64``.
        glibc: version of the GNU C library; empty where the C library is another one.
        cores: logical CPUs that this process may use (its affinity, which a batch system narrows).
        memory_gib: physical memory in GiB.
        microarchitecture: archspec's name, coarse: ``x86_64_v1`` to ``x86_64_v4``, ``power9``, ``aarch64``.
        nvidia_driver: version of the loaded NVIDIA driver, else empty.
        cuda: newest CUDA version that the driver runs, else empty.
        gpus: the accelerators that are present.
    """

    hostname: str
    platform: str
    architecture: str
    glibc: str
    kernel: str
    cores: int
    memory_gib: float
    microarchitecture: str
    nvidia_driver: str = ""
    amd_driver: str = ""
    cuda: str = ""
    gpus: tuple[GpuDevice, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """The machine as JSON values."""
        return {**asdict(self), "gpus": [asdict(gpu) for gpu in self.gpus]}


@lru_cache(maxsize=1)
def machine() -> Machine:
    """The properties of this machine, determined once per process.

    Raises:
        StackyardError: it is not a Linux machine of a known architecture.
    """
    name = os.uname()
    platform = platforms.of_machine(name.machine)
    if name.sysname != "Linux" or platform is None:
        raise StackyardError(
            f"unsupported machine: {name.sysname} on {name.machine}",
            hint=f"supported: Linux on {', '.join(row.machine for row in platforms.LINUX)}",
        )
    root = Path("/")
    smi = nvidia_smi()
    return Machine(
        hostname=name.nodename,
        platform=platform.conda,
        architecture=name.machine,
        glibc=glibc(),
        kernel=name.release,
        cores=len(os.sched_getaffinity(0)),
        memory_gib=memory_gib(root),
        microarchitecture=microarchitecture(name.machine, root),
        nvidia_driver=smi.driver or nvidia_driver(root),
        amd_driver=amd_driver(root),
        cuda=smi.cuda,
        gpus=(*(smi.gpus or nvidia_gpus(root)), *amd_gpus(root)),
    )


def glibc() -> str:
    """Version of the GNU C library of this process, or empty under another C library."""
    try:
        text = os.confstr("CS_GNU_LIBC_VERSION") or ""
    except (ValueError, OSError):
        return ""
    return text.removeprefix("glibc ").strip()


def memory_gib(root: Path) -> float:
    """Physical memory in GiB, rounded to a tenth; 0 without /proc."""
    match = re.search(r"^MemTotal:\s+(\d+) kB", _read(root / "proc/meminfo"), re.MULTILINE)
    return round(int(match.group(1)) / 1024**2, 1) if match else 0.0


def microarchitecture(architecture: str, root: Path) -> str:
    """archspec's name of the micro-architecture, from /proc/cpuinfo.

    For x86-64 the highest level of the psABI whose features are all there; for POWER the processor's generation;
    for others the architecture itself, which every package for it runs on.
    """
    text = _read(root / "proc/cpuinfo")
    if architecture == "x86_64":
        return _x86_level(text)
    if architecture == "ppc64le":
        match = re.search(r"POWER(\d+)", text)
        return f"power{match.group(1)}le" if match else architecture
    return architecture


def nvidia_driver(root: Path) -> str:
    """Version of the loaded NVIDIA kernel module, or empty."""
    return _first(r"Kernel Module.*?\s(\d{3}\.\d+(?:\.\d+)?)\s", _read(root / "proc/driver/nvidia/version"))


def nvidia_gpus(root: Path) -> tuple[GpuDevice, ...]:
    """The GPUs that the NVIDIA kernel module drives, by its files in /proc."""
    models = (_model(path) for path in sorted((root / "proc/driver/nvidia/gpus").glob("*/information")))
    return tuple(GpuDevice("nvidia", model) for model in models)


def amd_driver(root: Path) -> str:
    """Version of the amdgpu kernel module, if it has one (the kernel's own has none), else empty."""
    return _read(root / "sys/module/amdgpu/version").strip()


def amd_gpus(root: Path) -> tuple[GpuDevice, ...]:
    """The GPUs of the AMD compute driver: topology nodes with SIMD units (those without are CPUs)."""
    gpus = []
    for properties in sorted(
        (root / "sys/class/kfd/kfd/topology/nodes").glob("*/properties"), key=lambda path: int(path.parent.name)
    ):
        values = dict(line.split(maxsplit=1) for line in _read(properties).splitlines() if " " in line)
        if int(values.get("simd_count", "0")) > 0:
            gpus.append(GpuDevice("amd", _gfx(values.get("gfx_target_version", "0"))))
    return tuple(gpus)


@dataclass(frozen=True)
class NvidiaSmi:
    """The output of ``nvidia-smi``; all empty without the program or the driver."""

    driver: str = ""
    cuda: str = ""
    gpus: tuple[GpuDevice, ...] = ()


def nvidia_smi(environ: Mapping[str, str] | None = None, timeout_s: float = 30) -> NvidiaSmi:
    """Run ``nvidia-smi``; the first call on an idle node initialises the GPUs, which can take seconds."""
    program = which("nvidia-smi", environ)
    if program is None:
        return NvidiaSmi()
    try:
        table = run([program], timeout_s=timeout_s, check=False)
        names = run([program, "--query-gpu=name", "--format=csv,noheader"], timeout_s=timeout_s, check=False)
    except StackyardError:
        return NvidiaSmi()
    if table.returncode != 0:
        return NvidiaSmi()
    listed = names.stdout.splitlines() if names.returncode == 0 else []
    return NvidiaSmi(
        driver=_first(r"Driver Version:\s*([\d.]+)", table.stdout),
        cuda=_first(r"CUDA (?:UMD )?Version:\s*([\d.]+)", table.stdout),
        gpus=tuple(GpuDevice("nvidia", line.strip()) for line in listed if line.strip()),
    )


def _x86_level(cpuinfo: str) -> str:
    flags = frozenset(_first(r"^flags\s*:(.*)$", cpuinfo).split())
    level = "x86_64_v1"
    for name, needed in _X86_LEVELS:
        if not needed <= flags:
            break
        level = name
    return level


def _model(information: Path) -> str:
    return _first(r"^Model:\s*(.+?)\s*$", _read(information)) or "NVIDIA GPU"


def _gfx(version: str) -> str:
    """``90010`` is gfx90a: major, minor and stepping, two decimal digits each, the last two in hexadecimal."""
    number = int(version)
    return f"gfx{number // 10000}{number // 100 % 100:x}{number % 100:x}"


def _first(pattern: str, text: str) -> str:
    match = re.search(pattern, text, re.MULTILINE)
    return match.group(1) if match else ""


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
