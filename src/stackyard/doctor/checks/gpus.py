"""GPUs: the driver, its devices and its library; and the toolkits that need a newer driver. Nothing is started."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import suppress

from stackyard.core.errors import StackyardError
from stackyard.core.findings import Finding
from stackyard.doctor.checks.base import Surroundings, listed, said
from stackyard.host.machine import probe
from stackyard.inputs.sites.sitemodels import Gpu
from stackyard.lock.conda.virtual import cuda_of
from stackyard.yard.generation import generations
from stackyard.yard.revision.directories import RevisionPaths
from stackyard.yard.revision.record import read_record

_NVIDIA, _DISPLAY = "0x10de", "0x03"  # the PCI vendor, and the class of display controllers
_SPARE = ("vfio-pci", "nouveau")
"""Drivers that take a GPU on purpose: for a virtual machine, or for a screen."""


def look_at_devices(around: Surroundings) -> Iterator[Finding]:
    """GPUs without a driver, and devices of the driver that this account cannot use."""
    driver = probe.nvidia_driver(around.root)
    if not driver and (bus := _without_driver(around)):
        yield said("gpu-without-driver", bus=bus[0], count=len(bus))
    gpus = len(probe.nvidia_gpus(around.root))
    devices = [f"dev/{name}" for name in around.names("dev") if re.fullmatch(r"nvidia\d+", name)]
    if probe.amd_gpus(around.root):
        devices.append("dev/kfd")
    elif gpus and not devices:
        yield said("gpu-devices", count=gpus)
    for device in devices:
        if not os.access(around.root / device, os.R_OK | os.W_OK):
            yield said("gpu-permission", device=f"/{device}")
            break


def _without_driver(around: Surroundings) -> list[str]:
    """The PCI addresses of NVIDIA's GPUs that no driver has taken on purpose."""
    top = "sys/bus/pci/devices"
    addresses = []
    for address in around.names(top):
        kind = around.read(f"{top}/{address}/vendor"), around.read(f"{top}/{address}/class")[:4]
        taken = (around.root / top / address / "driver").resolve().name
        if kind == (_NVIDIA, _DISPLAY) and taken not in _SPARE:
            addresses.append(address)
    return addresses


def look_at_driver(around: Surroundings) -> Iterator[Finding]:
    """The driver against its own library, the CUDA toolkit of this shell, and the stacks of the yard."""
    driver = probe.nvidia_driver(around.root)
    if not driver:
        return
    for directory in listed("system_libraries"):
        target = os.path.realpath(around.root / directory / "libcuda.so.1")
        match = re.search(r"libcuda\.so\.(\d{3}\.[\d.]+)$", target)
        if match and match[1] != driver:
            yield said("gpu-library", library=match[1], driver=driver, file=target)
    cuda = cuda_of(Gpu(vendor="nvidia", driver=driver))
    for name, toolkit in (*_of_shell(around), *_of_stacks(around)):
        if cuda and _newer(toolkit, cuda):
            yield said("driver-too-old", name=name, toolkit=toolkit, driver=driver, cuda=cuda)


def _newer(toolkit: str, cuda: str) -> bool:
    """Whether a toolkit needs a newer driver: from CUDA 11 on, one runs all toolkits of its major version."""
    one, other = ([int(part) for part in text.split(".")[:2]] for text in (toolkit, cuda))
    return one > other and (one[0] > other[0] or one[0] < 11)


def _of_shell(around: Surroundings) -> Iterator[tuple[str, str]]:
    home = around.environ.get("CUDA_HOME") or around.environ.get("CUDA_PATH") or "/usr/local/cuda"
    text = around.read(f"{home.lstrip('/')}/version.json") or around.read(f"{home.lstrip('/')}/version.txt")
    if match := re.search(r'"cuda" *: *\{[^}]*"version" *: *"(\d+\.\d+)|CUDA Version (\d+\.\d+)', text):
        yield home, match[1] or match[2]


def _of_stacks(around: Surroundings) -> Iterator[tuple[str, str]]:
    """The CUDA toolkits of the published revisions, by their modules."""
    with suppress(StackyardError, OSError):
        entries = [entry for yard in around.workspace().yard.lineage() for entry in generations.entries(yard)]
        for entry in (one for one in entries if one.state in ("published", "unverified")):
            record = read_record(RevisionPaths.of(entry.folder).record)
            packages = {package.name: package.version for package in record.packages}
            version = next((packages[name] for name in listed("cuda_packages") if name in packages), "")
            if re.match(r"\d+\.\d+", version) and "cuda-compat" not in packages:
                yield entry.module, version
