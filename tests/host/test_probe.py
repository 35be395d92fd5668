"""Probes read the machine at hand and captured trees of files of other machines."""

from __future__ import annotations

import os
import platform
import subprocess
from pathlib import Path

import pytest

from stackyard.host.machine import probe
from stackyard.host.machine.platforms import this_platform
from stackyard.host.machine.probe import GpuDevice, machine

DRIVER = (
    "NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.54.15  Tue Mar  5 22:23:56 UTC 2024\n"
    "GCC version:  gcc version 12.2.0 (Debian 12.2.0-14)\n"
)
OPEN_DRIVER = "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.65.06  Release Build  (root@host)\n"
SMI = """+-----------------------------------------------------------------------------------------+
| NVIDIA-SMI 550.54.15              Driver Version: 550.54.15      CUDA Version: 12.4     |
"""
V2 = "fpu cx16 lahf_lm popcnt pni sse4_1 sse4_2 ssse3"
V3 = V2 + " avx avx2 bmi1 bmi2 f16c fma abm movbe xsave"
V4 = V3 + " avx512f avx512bw avx512cd avx512dq avx512vl"


def tree(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


def test_this_machine_as_other_programs_see_it() -> None:
    found = machine()
    assert found.hostname == platform.node()
    assert found.platform == this_platform()
    assert found.kernel == platform.release()
    assert found.cores == len(os.sched_getaffinity(0))
    assert found.glibc == platform.libc_ver()[1]
    total = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 1024**3
    assert found.memory_gib == pytest.approx(total, abs=0.2)
    assert machine() is found


@pytest.mark.parametrize(
    ("flags", "level"), [("fpu", "x86_64_v1"), (V2, "x86_64_v2"), (V3, "x86_64_v3"), (V4, "x86_64_v4"),
                         (V4.replace("fma", ""), "x86_64_v2")],
)  # fmt: skip
def test_x86_levels(tmp_path: Path, flags: str, level: str) -> None:
    root = tree(tmp_path, {"proc/cpuinfo": f"processor\t: 0\nflags\t\t: {flags}\nbugs\t\t: none\n"})
    assert probe.microarchitecture("x86_64", root) == level


def test_power_generation(tmp_path: Path) -> None:
    root = tree(tmp_path, {"proc/cpuinfo": "processor\t: 0\ncpu\t\t: POWER9, altivec supported\n"})
    assert probe.microarchitecture("ppc64le", root) == "power9le"


@pytest.mark.parametrize(("text", "version"), [(DRIVER, "550.54.15"), (OPEN_DRIVER, "580.65.06"), ("", "")])
def test_nvidia_driver(tmp_path: Path, text: str, version: str) -> None:
    assert probe.nvidia_driver(tree(tmp_path, {"proc/driver/nvidia/version": text})) == version


def test_nvidia_gpus_by_the_drivers_files(tmp_path: Path) -> None:
    information = "Model: \t\t NVIDIA A100-SXM4-40GB\nIRQ:   \t\t 180\nGPU UUID: \t GPU-1\n"
    places = [f"proc/driver/nvidia/gpus/0000:{bus}:00.0/information" for bus in ("07", "0f")]
    root = tree(tmp_path, dict.fromkeys(places, information))
    assert probe.nvidia_gpus(root) == (GpuDevice("nvidia", "NVIDIA A100-SXM4-40GB"),) * 2


def test_amd_gpus_are_the_nodes_with_simd_units(tmp_path: Path) -> None:
    nodes = "sys/class/kfd/kfd/topology/nodes"
    root = tree(
        tmp_path,
        {
            f"{nodes}/0/properties": "cpu_cores_count 64\nsimd_count 0\ngfx_target_version 0\n",
            f"{nodes}/1/properties": "cpu_cores_count 0\nsimd_count 440\ngfx_target_version 90010\n",
            f"{nodes}/10/properties": "cpu_cores_count 0\nsimd_count 304\ngfx_target_version 90402\n",
        },
    )
    assert probe.amd_gpus(root) == (GpuDevice("amd", "gfx90a"), GpuDevice("amd", "gfx942"))


def stand_in(directory: Path, script: str) -> dict[str, str]:
    """A directory with an ``nvidia-smi`` that follows the program's documented output."""
    program = directory / "nvidia-smi"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    return {"PATH": f"{directory}:/usr/bin:/bin"}


def test_nvidia_smi(tmp_path: Path) -> None:
    (tmp_path / "table").write_text(SMI)
    environ = stand_in(
        tmp_path,
        f"case \"$1\" in --query-gpu=name) echo 'NVIDIA H200'; echo 'NVIDIA H200';; *) cat {tmp_path}/table;; esac",
    )
    found = probe.nvidia_smi(environ)
    assert (found.driver, found.cuda, found.gpus) == ("550.54.15", "12.4", (GpuDevice("nvidia", "NVIDIA H200"),) * 2)


@pytest.mark.parametrize("script", ["echo 'NVIDIA-SMI has failed'; exit 9", "sleep 30"])
def test_nvidia_smi_without_a_driver_or_that_hangs(tmp_path: Path, script: str) -> None:
    assert probe.nvidia_smi(stand_in(tmp_path, script), timeout_s=0.5) == probe.NvidiaSmi()


def test_probe_is_quick_to_import() -> None:
    code = "import sys; from stackyard.host.machine import probe, modules; import stackyard.verify.report; "
    code += "print(*sys.modules)"
    loaded = subprocess.run([*_python(), code], capture_output=True, text=True, check=True).stdout.split()
    assert not {"pydantic", "rattler", "ruamel", "rich", "jinja2", "elftools", "click"} & set(loaded)


def _python() -> list[str]:
    import sys

    return [sys.executable, "-c"]
