"""Facts about a node, and the speed of one of its ranks. Standard library; torch is passed in if needed."""

from __future__ import annotations

import os
import platform
import re
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

MIB = 1 << 20
LOOP = 20000
_NVIDIA_FIELDS = "name,driver_version,memory.total,pci.bus_id,ecc.errors.uncorrected.volatile.total"


def facts(root: Path = Path("/")) -> dict[str, Any]:
    """The properties that should be equal on all nodes of a job, and the free space of the local disk.

    `root` is the directory of ``proc`` and ``sys``. Sizes are in GiB.
    """
    memory = _meminfo(root)
    gpus = nvidia(root) or amd(root)
    return {
        "cpu": cpu_model(root),
        "cores": os.cpu_count() or 0,
        "memory_gib": round(memory.get("MemTotal", 0) / MIB, 1),
        "hugepages": memory.get("HugePages_Total", 0),
        "kernel": platform.release(),
        "glibc": " ".join(platform.libc_ver()),
        "gpus": [gpu["model"] for gpu in gpus],
        "driver": gpus[0]["driver"] if gpus else "",
        "gpu_errors": [f"GPU {i}: {gpu['ecc']} memory errors" for i, gpu in enumerate(gpus) if gpu["ecc"]],
        "assigned": _assigned_gpus(),
        "disk_free_gib": round(shutil.disk_usage(tempfile.gettempdir()).free / (1 << 30), 1),
    }


def cpu_model(root: Path) -> str:
    """The processor's name from the kernel: ``model name`` (x86), ``cpu`` (POWER), implementer and part (Arm)."""
    fields: dict[str, str] = {}
    for line in _read(root / "proc/cpuinfo").splitlines():
        key, _, value = line.partition(":")
        fields.setdefault(key.strip(), value.strip())
    for key in ("model name", "cpu"):
        if fields.get(key):
            return fields[key].split(",")[0]
    parts = [fields[key] for key in ("CPU implementer", "CPU part") if key in fields]
    return f"{platform.machine()} {' '.join(parts)}".strip()


def clock_ghz(root: Path = Path("/")) -> float:
    """The fastest core's present clock in GHz; 0 if the kernel does not report it."""
    clocks = re.findall(r"^(?:cpu MHz|clock)\s*:\s*([0-9.]+)", _read(root / "proc/cpuinfo"), re.M)
    return max((float(mhz) / 1000 for mhz in clocks), default=0.0)


def nvidia(root: Path) -> list[dict[str, Any]]:
    """The node's NVIDIA GPUs from nvidia-smi, else from the kernel module's files in /proc."""
    program = shutil.which("nvidia-smi")
    if program:
        gpus = _nvidia_smi(program)
        if gpus:
            return gpus
    version = re.search(r"Kernel Module[^\d]*([\d.]+)", _read(root / "proc/driver/nvidia/version"))
    driver = version.group(1) if version else ""
    listed = sorted(root.glob("proc/driver/nvidia/gpus/*/information"))
    models = [re.search(r"Model:\s*(.+)", _read(path)) for path in listed]
    return [{"model": m.group(1).strip() if m else "", "driver": driver, "ecc": 0} for m in models]


def _nvidia_smi(program: str) -> list[dict[str, Any]]:
    argv = [program, f"--query-gpu={_NVIDIA_FIELDS}", "--format=csv,noheader,nounits"]
    try:
        done = subprocess.run(argv, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, timeout=20, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return []
    if done.returncode:
        return []
    rows = [[word.strip() for word in line.split(",")] for line in done.stdout.decode().splitlines() if line.strip()]
    return [
        {"model": f"{row[0]} {row[2]} MiB", "driver": row[1], "ecc": int(row[4]) if row[4].isdigit() else 0}
        for row in rows
        if len(row) == _NVIDIA_FIELDS.count(",") + 1
    ]


def amd(root: Path) -> list[dict[str, Any]]:
    """The node's AMD GPUs from the kernel's KFD topology: nodes with compute units (``simd_count``) are GPUs.

    Source: the amdkfd driver's ``/sys/class/kfd/kfd/topology/nodes/*/properties``.
    """
    driver = _read(root / "sys/module/amdgpu/version").strip()
    gpus = []
    for path in sorted(root.glob("sys/class/kfd/kfd/topology/nodes/*/properties"), key=lambda p: int(p.parent.name)):
        values = dict(line.split(None, 1) for line in _read(path).splitlines() if " " in line)
        if int(values.get("simd_count", "0")) > 0:
            model = f"gfx {values.get('gfx_target_version', '?')} device {values.get('device_id', '?')}"
            gpus.append({"model": model, "driver": driver, "ecc": 0})
    return gpus


def cpu_speed(torch: Any, seconds: float) -> list[dict[str, Any]]:
    """One core's best burst in CPU time (single-precision matrix products with torch, else a Python loop: the unit
    differs), and ``share``, the CPU time per elapsed time: less than 1 where other processes use the core.
    """
    began, own = time.perf_counter(), time.thread_time()
    if torch is None:
        speed = {"name": "cpu", "value": _best(_loop, seconds, time.thread_time) * LOOP / 1e6, "unit": "Mop/s"}
    else:
        speed = {"name": "cpu", "value": _products(torch, seconds), "unit": "GFLOP/s"}
    share = (time.thread_time() - own) / (time.perf_counter() - began)
    return [speed, {"name": "share", "value": min(1.0, share), "unit": "of 1"}]


def _products(torch: Any, seconds: float) -> float:
    threads, n = torch.get_num_threads(), 256
    torch.set_num_threads(1)
    try:
        a, b = torch.rand(n, n), torch.rand(n, n)
        return _best(lambda: torch.mm(a, b), seconds, time.thread_time) * 2 * n**3 / 1e9
    finally:
        torch.set_num_threads(threads)


def memory_speed(seconds: float, mib: int = 32) -> dict[str, Any]:
    """GB/s of one core copying `mib` MiB: bytes read and bytes written, as STREAM's copy counts them."""
    source, target = bytearray(mib * MIB), memoryview(bytearray(mib * MIB))

    def copy() -> None:
        target[:] = source

    return {"name": "memory", "value": _best(copy, seconds, time.thread_time) * 2 * mib * MIB / 1e9, "unit": "GB/s"}


def gpu_speed(torch: Any, device: int, seconds: float) -> dict[str, Any]:
    """TFLOP/s of half-precision matrix products on one GPU, the best of several."""
    n = 4096
    a = torch.rand(n, n, device=f"cuda:{device}", dtype=torch.float16)
    torch.mm(a, a)

    def product() -> None:
        torch.mm(a, a)
        torch.cuda.synchronize(device)

    return {"name": "gpu", "value": _best(product, seconds, time.perf_counter) * 2 * n**3 / 1e12, "unit": "TFLOP/s"}


def _best(burst: Callable[[], Any], seconds: float, clock: Callable[[], float]) -> float:
    """1 / the shortest time of a burst on `clock`, in 1/s; at least three bursts, then until `seconds` are over."""
    end, best, times = time.perf_counter() + seconds, float("inf"), 0
    while times < 3 or time.perf_counter() < end:
        start = clock()
        burst()
        best, times = min(best, clock() - start), times + 1
    return 1 / max(best, 1e-9)


def _loop() -> int:
    total = 0
    for i in range(LOOP):
        total += i
    return total


def _assigned_gpus() -> str:
    names = ("CUDA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES")
    return next((f"{name}={os.environ[name]}" for name in names if os.environ.get(name)), "")


def _meminfo(root: Path) -> dict[str, int]:
    sizes = re.findall(r"^(\w+):\s+(\d+)", _read(root / "proc/meminfo"), re.M)
    return {name: int(value) for name, value in sizes}


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
