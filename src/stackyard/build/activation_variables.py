"""Which operation a change of one variable means, and which variables only matter for building."""

from __future__ import annotations

import re

from stackyard.change import Default, Flags, Operation, Prepend, SetRestorable

# Compilers and binary tools as conda's compiler packages export them, their flags, and the tools' bookkeeping.
_TOOLS = (
    "ADDR2LINE AR AS CC CPP CXX CXXFILT ELFEDIT F77 F90 F95 FC GCC GCC_AR GCC_NM GCC_RANLIB GFORTRAN GPROF GXX LD "
    "LD_GOLD NM OBJCOPY OBJDUMP RANLIB READELF SIZE STRINGS STRIP NVCC CC_FOR_BUILD CXX_FOR_BUILD CUDAHOSTCXX"
)
_FLAGS = (
    "CFLAGS CXXFLAGS CPPFLAGS FFLAGS FCFLAGS FORTRANFLAGS LDFLAGS LDFLAGS_LD RUSTFLAGS NVCC_PREPEND_FLAGS "
    "NVCC_APPEND_FLAGS DEBUG_CFLAGS DEBUG_CXXFLAGS DEBUG_CPPFLAGS DEBUG_FFLAGS DEBUG_FORTRANFLAGS"
)
_OTHERS = (
    "BUILD HOST CMAKE_ARGS CMAKE_PREFIX_PATH MESON_ARGS CONDA_BUILD_SYSROOT CONDA_TOOLCHAIN_BUILD "
    "CONDA_TOOLCHAIN_HOST CONDA_BUILD_CROSS_COMPILATION build_alias host_alias DEBUG_CMAKE_ARGS "
    "_PYTHON_SYSCONFIGDATA_NAME _CONDA_PYTHON_SYSCONFIGDATA_NAME"
)
_FLAG_NAMES = frozenset(_FLAGS.split())
_BUILD_ONLY = frozenset((*_TOOLS.split(), *_FLAGS.split(), *_OTHERS.split()))
_BUILD_ONLY_PATTERN = re.compile(r"_CONDA_\w*|CONDA_BACKUP_\w*|__CONDA_\w*|\w+_FOR_BUILD|_CE_\w*")


def is_build_only(name: str) -> bool:
    """Whether a variable matters only for compiling (tools, flags) or to the scripts themselves."""
    return name in _BUILD_ONLY or _BUILD_ONLY_PATTERN.fullmatch(name) is not None


def before(name: str) -> str:
    """A value to set a variable to before activation, to see how activation changes it."""
    return "-DBEFORE=1" if name in _FLAG_NAMES else "/before/activation"


def operations(
    name: str, old: str | None, new: str | None, occupied: str | None, after: str | None
) -> tuple[Operation, ...]:
    """The operations that a change of one variable amounts to; none if no operation does.

    Args:
        old: its value before the scripts; `new`: after them.
        occupied: its value before them in another run; `after`: after them in that run.
    """
    if occupied is None or new is None or after is None:
        return (SetRestorable(name, new),) if new == after or occupied is None else ()
    if after == new:
        return (SetRestorable(name, new),)
    if after == occupied and old is None:
        return (Default(name, new),)
    front = new.rstrip(":") if old is None else new.removesuffix(f":{old}")
    if after == f"{front}:{occupied}":
        return tuple(Prepend(name, folder) for folder in reversed(front.split(":")) if folder)
    added = after.replace(occupied, "", 1).strip()
    if occupied in after and added == new.strip() and name in _FLAG_NAMES:
        return (Flags(name, added),)
    return ()
