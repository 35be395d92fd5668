"""Determines the operation that corresponds to a variable's change, and variables that matter only for building."""

from __future__ import annotations

import re
from collections.abc import Mapping

from stackyard.core.change import SEPARATORS, Append, Default, Flags, Join, Operation, Prepend, SetRestorable

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
    """A unique value to set a variable to before activation, to detect how activation changes it."""
    return f"-DBEFORE_{name}=1" if name in _FLAG_NAMES else f"/before/{name}"


def saved(value: str | None, other: Mapping[str, str]) -> bool:
    """Whether a script saves another variable's former value in a variable, to restore it at deactivation.

    Args:
        value: its value in the run in which the others had values.
        other: the variables before, in that run.
    """
    return value is not None and value.startswith(("/before/", "-DBEFORE_")) and value in other.values()


def operations(
    name: str, old: str | None, new: str | None, occupied: str | None, after: str | None
) -> tuple[Operation, ...]:
    """The operations equivalent to the change of a variable; none if no operation matches.

    Args:
        old: its value before the scripts; `new`: after them.
        occupied, after: its values before and after them in another run.
    """
    if occupied is None or new is None or after is None:
        return (SetRestorable(name, new),) if new == after or occupied is None else ()
    if after == new:
        return (SetRestorable(name, new),)
    if after == occupied and old is None:
        return (Default(name, new),)
    if after.count(occupied) != 1:
        return ()
    front, back = after.split(occupied)
    if name in _FLAG_NAMES:
        text = " ".join(part.strip() for part in (front, back) if part.strip())
        return (Flags(name, text),) if text == new.strip() else ()
    separator = _separator(front, back)
    return _extended(name, _sides(front, back, separator), separator, old, new) if separator else ()


def _separator(front: str, back: str) -> str:
    """The separator between the user's text and the added texts; empty if there is none, or they differ."""
    separators = {text for text in (front[-1:], back[:1]) if text}
    return separators.pop() if len(separators) == 1 and separators <= set(SEPARATORS) else ""


def _sides(front: str, back: str, separator: str) -> tuple[str, str]:
    """The added texts in front and behind, without the separators around them."""
    return front.rstrip(separator), back.lstrip(separator)


def _extended(name: str, sides: tuple[str, str], separator: str, old: str | None, new: str) -> tuple[Operation, ...]:
    """The operations that add texts before and behind the user's text.

    Args:
        old, new: its value before and after the scripts in the first run, which shows the result without a user's
            value.
    """
    front, back = sides
    added = Join(name, front, back, separator)
    bare = new.strip(separator) if not old else new
    if bare in (added.joined(old or ""), f"{front}{separator}{separator}{back}"):  # an empty entry between them
        return _on_path(name, front, back) if separator == ":" else (added,)
    if old is not None:
        return ()
    otherwise = bare.removeprefix(f"{front}{separator}" if front else "")
    otherwise = otherwise.removesuffix(f"{separator}{back}" if back else "")
    added = Join(name, front, back, separator, otherwise)
    return (added,) if otherwise and bare == added.joined("") else ()


def _on_path(name: str, front: str, back: str) -> tuple[Operation, ...]:
    """The operations that add directories before and behind those of a path list."""
    first = [Prepend(name, directory) for directory in reversed(front.split(":")) if directory]
    return (*first, *(Append(name, directory) for directory in back.split(":") if directory))
