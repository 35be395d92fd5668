"""The tools for compiling: the host's modules, its programs, and the compilers."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace

from stackyard.core.late import dataclass
from stackyard.make import tools
from stackyard.make.job import Job


@dataclass(frozen=True)
class Toolchain:
    """The environment of a compilation: the variables of the host modules, and the programs found in it."""

    environ: Mapping[str, str]
    tools: Mapping[str, tools.Tool]


def prepare(job: Job) -> Toolchain:
    """Load the stack's host modules and find its host tools, before any long step.

    Raises:
        MissingError: no module system found, or a tool is missing; the hint says how to get it.
        StackyardError: a module cannot be loaded.
    """
    spec = job.variant.build
    environ = with_modules(spec.modules) if spec.modules else {}
    search = [environ.get("PATH", ""), os.environ.get("PATH", os.defpath)]
    environ["PATH"] = os.pathsep.join(part for part in search if part)
    provided = tools.provided_packages(job.locked, job.variant)
    programs = tools.require(spec.tools, _searched(environ), job.module, provided)
    return Toolchain(environ, programs)


def complete(job: Job, before: Toolchain) -> Toolchain:
    """The toolchain after the stack is installed: with tools from its own packages, and the compilers.

    Raises:
        MissingError: a tool that a package of the stack should bring is missing.
    """
    inside = {**before.environ, "PATH": job.payload.search_path(before.environ["PATH"])}
    required = tuple(t for t in job.variant.build.tools if t.name not in before.tools)
    programs = tools.require(required, _searched(inside), job.module, tools.build_requirements(job.variant))
    return replace(before, tools={**tools.compilers(_searched(inside)), **before.tools, **programs})


def _searched(environ: Mapping[str, str]) -> dict[str, str]:
    return {**os.environ, **environ}


def with_modules(modules: tuple[str, ...]) -> dict[str, str]:
    """The environment of a shell with these host modules loaded, without the module system's own variables."""
    from stackyard.host.machine.modules import environment_with, is_bookkeeping, the_module_system

    loaded = environment_with(the_module_system(), (), modules)
    return {name: value for name, value in loaded.items() if not is_bookkeeping(name)}
