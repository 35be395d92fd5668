"""Host programs for a build: found, with their versions checked and recorded before any long step."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from stackyard.core.errors import MissingError, StackyardError
from stackyard.core.late import dataclass
from stackyard.core.names import pip_name
from stackyard.host.run import command

if TYPE_CHECKING:
    from stackyard.inputs.models import HostTool, Variant
    from stackyard.lock.lockfile.model import LockedVariant


@dataclass(frozen=True)
class Tool:
    """A program that was found. `version` is empty if it cannot be read."""

    name: str
    path: str
    version: str = ""
    variable: str = ""


@dataclass(frozen=True)
class _Kind:
    """A family of programs: the format of its version output, its packages, and how to install it."""

    arguments: tuple[str, ...] = ("--version",)
    pattern: str = r"(\d+(?:\.\d+)+)"
    packages: tuple[str, ...] = ()
    get: str = ""


_MPI = _Kind(
    ("-showme:version", "-v", "--version"),  # Open MPI's wrappers, MPICH's, and the launchers
    r"(?:Open MPI|\(Open MPI\)|MPICH version|MPICH Version:|HYDRA.*Version:)\s+(\d+(?:\.\d+)+)",
    ("openmpi", "mpich", "mvapich2"),
    "load the site's MPI (`build: modules:`), or install its development package (libopenmpi-dev, mpich)",
)
_GNU = _Kind(("-dumpfullversion", "-dumpversion"), get="install the compiler, or load the site's (`build: modules:`)")
_KINDS: Mapping[str, _Kind] = {
    "nvcc": _Kind(
        ("--version",), r"V(\d+\.\d+\.\d+)", ("cuda-nvcc", "cuda-toolkit", "cudatoolkit-dev"),
        "load the site's CUDA module (`build: modules:`), or put its bin directory on PATH",
    ),
    "hipcc": _Kind(("--version",), r"HIP version:\s*(\d+(?:\.\d+)+)", ("hip",), "load the site's ROCm module"),
    **dict.fromkeys(("mpicc", "mpicxx", "mpic++", "mpif90", "mpifort", "mpirun", "mpiexec"), _MPI),
    **dict.fromkeys(("gcc", "g++", "gfortran", "cc", "c++"), _GNU),
    "cmake": _Kind(packages=("cmake",), get="add cmake to the package's build `requires:`, or install it"),
    "ninja": _Kind(packages=("ninja",), get="add ninja to the package's build `requires:`, or install it"),
}  # fmt: skip


def find(name: str, environ: Mapping[str, str]) -> Tool | None:
    """A program on the PATH of `environ` with its version, or None."""
    path = command.which(name, environ)
    if path is None:
        return None
    return Tool(name, str(path), version_of(name, lambda word: _asked([path, word], environ)))


def require(
    tools: tuple[HostTool, ...], environ: Mapping[str, str], stack: str, provided: frozenset[str] = frozenset()
) -> dict[str, Tool]:
    """Find all of these programs at once.

    Args:
        stack: the stack to build, for the message.
        provided: names of packages that are not installed yet; a program that one of them brings is not missing.

    Raises:
        MissingError: naming every program that is missing or has the wrong version, and how to get it.
    """
    programs: dict[str, Tool] = {}
    problems: list[str] = []
    hints: list[str] = []
    for tool in tools:
        kind = _KINDS.get(tool.name, _Kind())
        here = find(tool.name, environ)
        if here is None:
            if not provided & {tool.name, *kind.packages}:
                problems.append(f"{tool.name} not found on PATH")
                hints.append(kind.get or f"install {tool.name}, or name the module that brings it (`build: modules:`)")
            continue
        if tool.version and not satisfies(here.version, tool.version):
            problems.append(f"{tool.name} {here.version or 'of unknown version'} ({here.path}), not {tool.version}")
            hints.append(kind.get or f"put another {tool.name} first on PATH")
        programs[tool.name] = Tool(here.name, here.path, here.version, tool.variable)
    if problems:
        raise MissingError(f"cannot build {stack}: {'; '.join(problems)}", hint="; ".join(dict.fromkeys(hints)))
    return programs


def satisfies(version: str, requirement: str) -> bool:
    """Whether a version is in a range such as ``>=11.0,<13``; a bare ``12`` or ``12.4`` means ``==12.*``.

    Raises:
        StackyardError: the range is not valid.
    """
    from packaging.specifiers import SpecifierSet

    text = requirement if re.match(r"\s*[<>=!~]", requirement) else f"=={requirement}.*"
    try:
        return bool(version) and SpecifierSet(text).contains(version, prereleases=True)
    except ValueError as error:
        raise StackyardError(f"{requirement!r} is not a version range", hint="write it as >=11.0,<13") from error


def provided_packages(locked: LockedVariant, variant: Variant) -> frozenset[str]:
    """The names of all packages installed before compilation."""
    return frozenset([*(p.name for p in locked.conda), *(p.name for p in locked.pip)]) | build_requirements(variant)


def build_requirements(variant: Variant) -> frozenset[str]:
    """The names of the build requirements of all packages of a stack."""
    lines = (line for how in variant.build.packages.values() for line in how.requires)
    return frozenset(name for name in map(pip_name, lines) if name)


def compilers(environ: Mapping[str, str]) -> dict[str, Tool]:
    """The default compilers; part of every wheel's key."""
    names = (environ.get("CC") or "cc", environ.get("CXX") or "c++")
    tools = (find(name.split()[0], environ) for name in names)
    return {tool.name: tool for tool in tools if tool}


def version_of(name: str, ask: Callable[[str], command.Result | None]) -> str:
    """The version of a program; empty if it cannot be read.

    Args:
        ask: runs it with one argument.
    """
    kind = _KINDS.get(name, _Kind())
    for argument in kind.arguments:
        result = ask(argument)
        match = re.search(kind.pattern, result.output) if result is not None else None
        if result is not None and match and result.returncode == 0:
            return match.group(1)
    return ""


def _asked(argv: Sequence[str | Path], environ: Mapping[str, str]) -> command.Result | None:
    try:
        return command.run(argv, env=environ, timeout_s=30, check=False)
    except StackyardError:
        return None
