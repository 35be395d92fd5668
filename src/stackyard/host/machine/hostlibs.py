"""Shared libraries that a stack does not contain: the GPU driver's, the fabric's, and those of optional plug-ins.

They are part of the node. A stack may need them, but cannot be verified on a node without them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from fnmatch import fnmatchcase

from stackyard.host.machine.probe import Machine

DRIVER: Mapping[str, tuple[str, ...]] = {
    "nvidia": (
        "libcuda.so*", "libnvidia-*.so*", "libnvcuvid.so*", "libnvoptix.so*", "libcudadebugger.so*", "libnvrm*.so*",
        "libnvscibuf.so*", "libnvscisync.so*", "libGLX_nvidia.so*", "libEGL_nvidia.so*",
    ),
}  # fmt: skip
"""Libraries that come with a GPU's kernel driver and must match it, per vendor."""

FABRIC = (
    "libibverbs.so*", "libmlx4.so*", "libmlx5.so*", "librdmacm.so*", "libibumad.so*", "libefa.so*", "libfabric.so*",
    "libpsm2.so*", "libpsm_infinipath.so*", "libcxi.so*", "libxpmem.so*", "libgdrapi.so*", "libucp.so*", "libucs.so*",
    "libuct.so*", "libucm.so*", "libpmi.so*", "libpmi2.so*", "libpmix.so*",
)  # fmt: skip
"""Libraries of high-speed networks and of batch systems, which match the node's kernel and daemons."""

PLUGINS = (
    "*/nvidia/*/lib/nvshmem_*.so*", "*/nvidia/*/lib/libcufile_rdma.so*", "*/numba/np/ufunc/*pool*.so",
    "*/mpi4py/MPI.*.cpython-*.so", "*/mpi4py/MPI.*.abi3.so",
)  # fmt: skip
"""Files that their package opens only on suitable nodes: one per network, thread library or MPI."""

LEFTOVERS = ("*/site-packages/torch/lib/libgfortran.so*",)
"""Libraries that wheels carry and nothing is linked to; torch 2.15's needs libquadmath, which hosts without Fortran
lack."""


def driver_vendor(library: str) -> str | None:
    """The vendor whose GPU driver brings a library, or None."""
    return next((vendor for vendor, globs in DRIVER.items() if _any(library, globs)), None)


def missing_driver(message: str, machine: Machine) -> str | None:
    """The GPU driver's library reported missing by a loader, if this machine has no such GPU; else None."""
    match = re.search(r"([\w.+-]+\.so[\w.]*): cannot open shared object file", message)
    vendor = driver_vendor(match.group(1)) if match else None
    if match is None or vendor is None or any(gpu.vendor == vendor for gpu in machine.gpus):
        return None
    return match.group(1)


def is_fabric(library: str) -> bool:
    """Whether a library belongs to the network or the batch system of a node."""
    return _any(library, FABRIC)


def is_plugin(path: str) -> bool:
    """Whether a file is a plug-in that its package can do without."""
    return _any(path, PLUGINS)


def is_leftover(path: str) -> bool:
    """Whether a file is a library that a wheel carries and nothing is linked to."""
    return _any(path, LEFTOVERS)


def _any(name: str, globs: tuple[str, ...]) -> bool:
    return any(fnmatchcase(name, glob) for glob in globs)
