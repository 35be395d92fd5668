"""The platforms: conda's name for each, and the names used by kernel, Python packages and ELF files.

Standard library only, since read commands use it.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Literal, get_args

from stackyard.core.late import dataclass

BuiltFor = Literal["linux-64", "linux-aarch64", "linux-ppc64le"]
BUILT_FOR: tuple[BuiltFor, ...] = get_args(BuiltFor)
"""The platforms that stacks can be locked and built for."""

ARCHITECTURES: Mapping[str, tuple[str, ...]] = {
    "linux": ("32", "64", "aarch64", "armv6l", "armv7l", "ppc64", "ppc64le", "riscv32", "riscv64", "s390x"),
    "osx": ("64", "arm64"),
    "win": ("32", "64", "arm64"),
}
"""conda's word for the architecture, per system."""

PLATFORMS: tuple[str, ...] = tuple(f"{system}-{arch}" for system, arches in ARCHITECTURES.items() for arch in arches)
"""Every platform that a selector or a ``platforms:`` list may name."""

SUBDIRS = (*PLATFORMS, "noarch", "emscripten-wasm32", "wasi-wasm32", "freebsd-64", "zos-z")
"""Every subdirectory that a conda channel may have."""


@dataclass(frozen=True)
class Linux:
    """One 64-bit Linux platform.

    Attributes:
        conda: conda's name, e.g. ``linux-64``.
        machine: the kernel's name (``uname -m``); also the architecture in wheel tags, PEP 508's ``platform_machine``
            and archspec's name of the family.
        elf: machine and word size of its ELF files, as pyelftools names them.
    """

    conda: str
    machine: str
    elf: str


LINUX = (
    Linux("linux-64", "x86_64", "EM_X86_64/64"),
    Linux("linux-aarch64", "aarch64", "EM_AARCH64/64"),
    Linux("linux-ppc64le", "ppc64le", "EM_PPC64/64"),
    Linux("linux-s390x", "s390x", "EM_S390/64"),
    Linux("linux-riscv64", "riscv64", "EM_RISCV/64"),
)


def of_machine(machine: str) -> Linux | None:
    """The platform of an architecture as the kernel reports it, or None."""
    return next((platform for platform in LINUX if platform.machine == machine), None)


def machine_of(platform: str) -> str:
    """The architecture of a conda platform as the kernel reports it, or conda's word where the table lacks it."""
    return next((row.machine for row in LINUX if row.conda == platform), platform.rpartition("-")[2])


def this_platform() -> str:
    """The conda platform of this machine, e.g. ``linux-64``."""
    machine = os.uname().machine
    platform = of_machine(machine)
    return platform.conda if platform else f"linux-{machine}"
