"""The Python that the shell finds first, and what hides its packages and its commands."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from stackyard.core.findings import Finding, some
from stackyard.core.late import dataclass
from stackyard.core.names import canonical
from stackyard.doctor.checks.base import Surroundings, said
from stackyard.doctor.checks.shell import loaded, of_family
from stackyard.host.run.command import which
from stackyard.lock.base import installed
from stackyard.yard import disk

_SHOWN = 4
_METADATA = re.compile(r"(.+?)-([^-]+)(?:-py[\d.]+)?\.(?:dist|egg)-info")
_INTERPRETER = re.compile(rb"^(?:#!|'''exec' ) *(/[^\s'\"]*python[\d.]*)", re.MULTILINE)
_FAMILIES = "python"


@dataclass(frozen=True)
class Python:
    """An interpreter on PATH: its program, the prefix of its packages, its version (``3.11``), and what made it."""

    program: Path
    prefix: Path
    version: str
    kind: str

    @property
    def packages(self) -> Mapping[str, str]:
        """The versions of its distributions, by name."""
        return distributions(installed.site_packages(self.prefix, self.version)) if self.version else {}


def first(around: Surroundings) -> Python | None:
    """The Python that the shell finds first, or None."""
    program = which("python", around.environ) or which("python3", around.environ)
    if program is None:
        return None
    real = Path(os.path.realpath(program))
    prefix = program.parent.parent
    kind = installed.kind_of(prefix) or ""
    match = re.search(r"(\d+\.\d+)$", real.name)
    version = match[1] if match else installed.settings(prefix).get("version", "").rpartition(".")[0]
    return Python(program, prefix if kind else real.parent.parent, version, kind)


def distributions(directory: Path) -> dict[str, str]:
    """The versions of the distributions in a directory, by name; empty if it cannot be read."""
    try:
        found = (_METADATA.fullmatch(name) for name in disk.names(directory))
        return {canonical(match[1]): match[2] for match in found if match}
    except OSError:
        return {}


def look_at_environments(around: Surroundings) -> Iterator[Finding]:
    """An active environment that does not exist, or whose Python is not the first one; conda's base beside a module."""
    python = first(around)
    active = around.environ.get("VIRTUAL_ENV") or around.environ.get("CONDA_PREFIX", "")
    if active and not disk.is_directory(Path(active)):
        yield said("environment-gone", prefix=active)
    elif active and python and not _is_first(python.program, Path(active, "bin/python")):
        yield said("python-elsewhere", program=python.program, prefix=active)
    base = around.environ.get("CONDA_EXE", "").rpartition("/bin/")[0]
    if around.environ.get("CONDA_DEFAULT_ENV") == "base":
        base = base or around.environ.get("CONDA_PREFIX", "")
    places = around.paths("PATH")
    others = [part for part in places if part != f"{base}/bin" and _is_environment(part)]
    if base and f"{base}/bin" in places and loaded(around) and (of_family(around, _FAMILIES) or others):
        before = python is not None and python.prefix == Path(base)
        modules = of_family(around, _FAMILIES) or loaded(around)[-1:]
        yield said("conda-base", base=base, module=modules[0], place="before" if before else "behind")


def _is_first(program: Path, own: Path) -> bool:
    """Whether a program is in the directory of the environment's own Python, or that has none."""
    return not os.path.lexists(own) or program.parent.samefile(own.parent)


def _is_environment(directory: str) -> bool:
    """Whether a directory of PATH has the commands of a conda environment or of a virtual one."""
    return directory.endswith("/bin") and installed.kind_of(Path(directory).parent) is not None


def look_at_commands(around: Surroundings) -> Iterator[Finding]:
    """A pip of another Python, and commands of ``~/.local/bin`` that hide those of the environment."""
    python, pip = first(around), which("pip", around.environ)
    if python is None:
        return
    places, inner = around.paths("PATH"), str(python.program.parent)
    if pip and inner in places and str(pip.parent) in places[: places.index(inner) + 1]:
        other = _INTERPRETER.search(_head(pip))
        if other and os.path.realpath(other[1]) != os.fsencode(os.path.realpath(python.program)):
            yield said("pip-elsewhere", pip=pip, python=python.program, other=os.fsdecode(other[1]))
    local = f"{around.environ.get('HOME', '')}/.local/bin"
    if python.kind and local in places and inner in places and places.index(local) < places.index(inner):
        hidden = sorted(set(disk.names(Path(local))) & set(disk.names(Path(inner))))
        if hidden:
            yield said("local-commands", directory=local, prefix=python.prefix, names=some(hidden, _SHOWN))


def _head(file: Path) -> bytes:
    with file.open("rb") as stream:
        return stream.read(512)


def look_at_packages(around: Surroundings) -> Iterator[Finding]:
    """Packages in the home directory or on PYTHONPATH that hide those of the environment."""
    python = first(around)
    if python is None:
        return
    packages = python.packages if python.kind else {}
    if python.kind == "conda" and python.version and not around.environ.get("PYTHONNOUSERSITE"):
        user = around.environ.get("PYTHONUSERBASE") or f"{around.environ.get('HOME', '')}/.local"
        directory = installed.site_packages(Path(user), python.version)
        if both := _both(distributions(directory), packages):
            yield said("user-packages", directory=directory, prefix=python.prefix, names=both)
    for part in around.paths("PYTHONPATH"):
        match = re.search(r"/python(\d+\.\d+)(?:/|$)", part)
        if match and python.version and match[1] != python.version:
            yield said("python-path-version", part=part, version=match[1], python=python.version)
        elif both := _both(distributions(Path(part)), packages):
            yield said("python-path-packages", part=part, prefix=python.prefix, names=both)


def _both(outer: Mapping[str, str], inner: Mapping[str, str]) -> str:
    """The distributions that both have in different versions."""
    differ = [name for name in sorted(outer) if inner.get(name, outer[name]) != outer[name]]
    return some([f"{name} {outer[name]} instead of {inner[name]}" for name in differ], _SHOWN)
