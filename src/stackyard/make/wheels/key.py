"""The inputs of a compiled wheel, and the cache key computed from them.

The key holds everything that influences the result: source, patches, variables, config settings, compilers and host
tools with path and version, loaded modules, build requirements, isolation, interpreter and platform. A package that is
compiled in the stack (no isolation) may use the headers of everything that is installed there, so the stack's binary
packages are part of its key too: a new torch compiles Horovod again, a new pure-Python package does not.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stackyard.core import secrets
from stackyard.core.errors import MissingError
from stackyard.host.files.hashing import sha256_values
from stackyard.inputs.stacks.buildinputs import patch_hash
from stackyard.lock.lockfile.model import PipPackage
from stackyard.make.job import Job
from stackyard.make.tools import Tool

if TYPE_CHECKING:
    from stackyard.inputs.models import PackageBuild

KEY_FORMAT = 1
_WORD = re.compile(r"\{(prefix|python|ncores|env:([A-Za-z_][A-Za-z0-9_]*))\}")


def substitute(variables: Mapping[str, str], words: Mapping[str, str], environ: Mapping[str, str]) -> dict[str, str]:
    """Replace ``{prefix}``, ``{python}``, ``{ncores}`` and ``{env:NAME}`` in the values of variables.

    Values of environment variables with secret-looking names are registered as secrets.

    Args:
        words: the values of the first three.
        environ: where ``{env:NAME}`` is looked up.

    Raises:
        MissingError: a named variable is not set.
    """

    def value(match: re.Match[str]) -> str:
        if match[2] is None:
            return words[match[1]]
        if match[2] not in environ:
            raise MissingError(
                f"environment variable not set: {match[2]} (used by a build variable)",
                hint=f"set {match[2]}, or name the module that sets it in the stack's `build: modules:`",
            )
        if secrets.is_secret(match[2], environ[match[2]]):
            secrets.know(environ[match[2]], f"${{{match[2]}}}")
        return environ[match[2]]

    return {name: _WORD.sub(value, text) for name, text in variables.items()}


def read_from_environment(variables: Mapping[str, str]) -> frozenset[str]:
    """The NAMEs of every ``{env:NAME}`` in the values of variables."""
    return frozenset(match[2] for text in variables.values() for match in _WORD.finditer(text) if match[2])


_SAME_EVERYWHERE = {name: f"{{{name}}}" for name in ("prefix", "python", "ncores")}
"""The placeholders in a key. The number of cores changes the time, not the result; of a prefix see `relink`."""


def words(prefix: Path, python: Path, ncores: str) -> dict[str, str]:
    """The values of the placeholders in a build."""
    return {"prefix": os.fspath(prefix), "python": os.fspath(python), "ncores": ncores}


def inputs(
    job: Job,
    package: PipPackage,
    how: PackageBuild | None,
    environ: Mapping[str, str],
    tools: Mapping[str, Tool],
) -> dict[str, Any]:
    """All inputs of one wheel, as plain values. `how` None: compiled in isolation, as by pip."""
    isolated = how is None or how.isolation
    return {
        "format": KEY_FORMAT,
        "package": [package.name, package.version, package.kind],
        "source": package.sha256 or package.commit,
        "subdirectory": package.subdirectory,
        "locked_inputs": dict(package.build_inputs),
        "patches": [patch_hash(name) for name in (how.patches if how else ())],
        "variables": substitute(variables(job, how), _SAME_EVERYWHERE, {**os.environ, **environ}),
        "config_settings": config_settings(package, how),
        "requires": list(how.requires) if how else [],
        "tools": {name: [_place(job, tool.path), tool.version] for name, tool in sorted(tools.items())},
        "modules": list(job.variant.build.modules),
        "isolation": isolated,
        "interpreter": _interpreter(job),
        "platform": job.locked.platform,
        "against": [] if isolated else binary_packages(job, package),
    }


def recorded(values: Mapping[str, Any], job: Job, how: PackageBuild | None) -> dict[str, Any]:
    """The inputs for a file that others read, with variables unexpanded, since one may be secret."""
    return {**values, "variables": variables(job, how)}


def variables(job: Job, how: PackageBuild | None) -> dict[str, str]:
    """The variables for compiling one package, as written in the stack's file."""
    return {**job.variant.build.variables, **(how.variables if how else {})}


def config_settings(package: PipPackage, how: PackageBuild | None) -> dict[str, str]:
    """Settings for the build backend, from the locked requirement line and the stack."""
    word = "config "
    line = {key.removeprefix(word): value for key, value in package.build_inputs.items() if key.startswith(word)}
    return {**line, **(how.config_settings if how else {})}


def digest(values: Mapping[str, Any]) -> str:
    """The cache key of a wheel with these inputs."""
    return sha256_values(values)


def binary_packages(job: Job, besides: PipPackage) -> list[str]:
    """The stack's packages that are built for a platform, each with its hash; pure Python packages are not included."""
    conda = [f"{p.name} {p.version} {p.sha256}" for p in job.locked.conda if not p.noarch and p.name != "python"]
    wheels = [
        f"{p.name} {p.version} {p.sha256}"
        for p in job.locked.pip
        if p.kind == "wheel" and not p.url.split("#")[0].endswith("-none-any.whl")
    ]
    return sorted([*conda, *wheels])


def _place(job: Job, program: str) -> str:
    """The path of a program; of one in the prefix, where it is there."""
    path = Path(program)
    return f"{{prefix}}/{path.relative_to(job.prefix)}" if path.is_relative_to(job.prefix) else program


def _interpreter(job: Job) -> list[str]:
    locked = job.locked.interpreter
    if job.variant.base is not None:
        return ["base", locked.version, job.variant.base.hash]
    if locked.source in ("host", "uv"):
        return [locked.source, locked.version, locked.sha256]
    return ["conda", *(f"{p.version} {p.build} {p.sha256}" for p in job.locked.conda if p.name == "python")]
