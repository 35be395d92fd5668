"""The shared libraries that the shell puts before those of the system and of the environment."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from stackyard.core.findings import Finding, some
from stackyard.doctor.checks.base import Surroundings, listed, said
from stackyard.doctor.checks.python import first
from stackyard.doctor.checks.shell import of_family
from stackyard.host.run.command import which
from stackyard.lock.base import installed
from stackyard.yard import disk

_SHOWN = 3
_CXX = re.compile(r"libstdc\+\+\.so\.6\.0\.(\d+)")
_LLVM, _GNU = "LLVM", "GNU"
_RUNTIMES = {_LLVM: re.compile(r"lib(iomp5|omp)(-[0-9a-f]+)?\.so[.\d]*"),
             _GNU: re.compile(r"libgomp(-[0-9a-f]+)?\.so[.\d]*")}  # fmt: skip
"""The OpenMP run-time libraries, also as wheels bring them. Intel's is LLVM's."""


def look_at_paths(around: Surroundings) -> Iterator[Finding]:
    """LD_LIBRARY_PATH with a conda environment or an older C++ library, and LD_PRELOAD with missing files."""
    system = [str(around.root / path) for path in listed("system_libraries")]
    python = first(around)
    inner = [str(python.prefix / "lib")] if python and python.kind == "conda" else system
    for part in around.paths("LD_LIBRARY_PATH"):
        names = _names(part)
        common = sorted(name for name in names if name.startswith(tuple(listed("common_libraries"))))
        if common and installed.kind_of(Path(part).parent) == "conda":
            yield said("library-path-conda", part=part, names=some(common, _SHOWN))
        elif (own := _cxx([part])) and own < (other := _cxx(inner)):
            yield said("library-path-older", part=part, own=own, other=other)
    for word in re.split(r"[:\s]+", around.environ.get("LD_PRELOAD", "")):
        if "/" in word and not os.path.lexists(word):
            yield said("preload-missing", file=word)


def look_at_mpi(around: Surroundings) -> Iterator[Finding]:
    """An mpirun of a Python environment before that of a loaded module."""
    mpirun, modules = which("mpirun", around.environ), of_family(around, "MPI")
    if mpirun and modules and installed.kind_of(mpirun.parent.parent):
        yield said("mpi-mixed", mpirun=mpirun, module=modules[0])


def look_at_openmp(around: Surroundings) -> Iterator[Finding]:
    """OpenMP run-time libraries that meet in one process: two of one kind, or the shell's and the environment's."""
    python = first(around)
    if python is None or not python.version or not python.kind:
        return
    site = installed.site_packages(python.prefix, python.version)
    inner = [python.prefix / "lib", *(site / name for name in listed("places_of_openmp"))]
    inner += [site / name for name in _names(site) if name.endswith(".libs")]
    outer = {*map(Path, around.paths("LD_LIBRARY_PATH"))} - set(inner)
    own, shell = _runtimes(inner), _runtimes(outer)
    twice = sorted(own[_LLVM] | shell[_LLVM])
    if len(twice) > 1:
        yield said("openmp-twice", files=some(twice, _SHOWN))
    for kind, other in ((_LLVM, _GNU), (_GNU, _LLVM)):
        if shell[kind] and own[other] and not own[kind]:
            yield said("openmp-mixed", own=min(own[other]), shell=min(shell[kind]))


def _runtimes(directories: Iterable[Path]) -> Mapping[str, set[str]]:
    """The OpenMP run-time libraries in directories, without links to the same one, by their kind."""
    found: dict[str, set[str]] = {kind: set() for kind in _RUNTIMES}
    for directory in directories:
        for name in _names(directory):
            for kind, pattern in _RUNTIMES.items():
                if pattern.fullmatch(name):
                    found[kind].add(os.path.realpath(directory / name))
    return found


def _names(directory: str | Path) -> list[str]:
    try:
        return disk.names(Path(directory))
    except OSError:
        return []


def _cxx(directories: list[str]) -> int:
    """The number of the C++ library in directories: 30 of libstdc++.so.6.0.30; 0: none."""
    for directory in directories:
        match = _CXX.fullmatch(Path(directory, "libstdc++.so.6").resolve().name)
        if match:
            return int(match[1])
    return 0
