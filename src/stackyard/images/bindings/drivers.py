"""Whether a node's GPU driver runs the toolkit in an image, by the vendors' tables (``drivers.yaml``)."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from stackyard.core.findings import Finding
from stackyard.host.machine.probe import Machine
from stackyard.inputs.reading.yamlfile import packaged

_CUDART = re.compile(r"libcudart\.so\.(\d+(?:\.\d+)*)")


@dataclass(frozen=True)
class Toolkit:
    """A GPU toolkit in an image. `version` may be only the major number; `path`: the file it was detected by."""

    vendor: str
    version: str
    path: str

    @property
    def title(self) -> str:
        """``CUDA 12.4``."""
        return f"{'CUDA' if self.vendor == 'nvidia' else 'ROCm'} {self.version}"


@dataclass(frozen=True)
class Driver:
    """A GPU driver. `where`: the machine, for messages; `cuda`: the newest CUDA that it was released for."""

    vendor: str
    version: str
    where: str
    cuda: str = ""


def toolkit_of(path: str, text: str = "") -> Toolkit | None:
    """The toolkit that a file of an image belongs to: the CUDA run time, or ROCm's version file."""
    match = _CUDART.fullmatch(path.rpartition("/")[2])
    if match:
        return Toolkit("nvidia", ".".join(match.group(1).split(".")[:2]), path)
    if re.fullmatch(r"/opt/rocm[\w.-]*/\.info/version", path) and re.match(r"\d+\.\d+", text):
        return Toolkit("amd", ".".join(text.split("-", maxsplit=1)[0].strip().split(".")[:2]), path)
    return None


def of_machine(here: Machine) -> tuple[Driver, ...]:
    """The drivers of a machine. For AMD, the kernel reports its module's version, which differs from the driver's."""
    release = _table()["rocm"]["modules"].get(_two(here.amd_driver), "")
    nvidia = Driver("nvidia", here.nvidia_driver, "this machine", here.cuda)
    amd = Driver("amd", release or f"module {here.amd_driver}", "this machine")
    return (*((nvidia,) if here.nvidia_driver else ()), *((amd,) if here.amd_driver else ()))


def newest(toolkits: Iterable[Toolkit]) -> list[Toolkit]:
    """The newest toolkit of each vendor."""
    best: dict[str, Toolkit] = {}
    for toolkit in toolkits:
        known = best.get(toolkit.vendor)
        if known is None or numbers(toolkit.version) > numbers(known.version):
            best[toolkit.vendor] = toolkit
    return list(best.values())


def check_driver(toolkit: Toolkit, driver: Driver) -> Finding | None:
    """The problem with running a toolkit on a driver, or None."""
    return _cuda(toolkit, driver) if toolkit.vendor == "nvidia" else _rocm(toolkit, driver)


def _cuda(toolkit: Toolkit, driver: Driver) -> Finding | None:
    table = _table()["cuda"]
    major = toolkit.version.split(".")[0]
    first, source = table["minimum"].get(major, ""), table["source"]
    least = first
    if not first:  # from before there was minor version compatibility
        least, source = table["exact"].get(toolkit.version, ""), table["before"]
    if not least:
        return _unknown(toolkit, driver, table["source"])
    if numbers(driver.version) < numbers(least):
        return Finding(
            "gpu-driver", "refused",
            f"the NVIDIA driver {driver.version} of {driver.where} is too old for {toolkit.title} ({toolkit.path})",
            f"{toolkit.title} needs at least {least}: {source}",
            "use an image with an older CUDA, or one with the package cuda-compat, on data center GPUs",
        )  # fmt: skip
    if driver.cuda and first and numbers(toolkit.version) > numbers(driver.cuda):
        return Finding(
            "gpu-driver", "note", f"{toolkit.title} runs on the driver {driver.version} with a limited set of features",
            f"the driver of {driver.where} is for CUDA {driver.cuda}; within a major version programs run, but kernels "
            f"that are compiled when they start (PTX) do not: {source}",
        )  # fmt: skip
    return None


def _rocm(toolkit: Toolkit, driver: Driver) -> Finding | None:
    table = _table()["rocm"]
    runs = table["runs"].get(_two(driver.version))
    if runs is None:
        return _unknown(toolkit, driver, table["source"])
    if toolkit.version in runs:
        return None
    return Finding(
        "gpu-driver", "refused",
        f"{toolkit.title} ({toolkit.path}) is not supported on the AMD driver {driver.version} of {driver.where}",
        f"it supports ROCm {', '.join(runs)}: {table['source']}",
        f"use an image with ROCm {runs[-1]}",
    )  # fmt: skip


def _unknown(toolkit: Toolkit, driver: Driver, source: str) -> Finding:
    return Finding(
        "gpu-driver", "note", f"unknown whether the driver {driver.version} of {driver.where} runs {toolkit.title}",
        f"the vendor's table does not have it: {source}",
    )  # fmt: skip


def numbers(version: str) -> tuple[int, ...]:
    """A version as numbers, for comparing: ``450.80.02`` is (450, 80, 2)."""
    return tuple(int(part) for part in re.findall(r"\d+", version))


def _two(version: str) -> str:
    return ".".join(version.split(".")[:2])


@lru_cache(maxsize=1)
def _table() -> Any:
    return packaged(__package__, "drivers.yaml")
