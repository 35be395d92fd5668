"""Compiles packages on top of a base: sources are prepared on this machine and built in a container of the base.

The settings are those of a stack's ``build:``. Builds find the compilers, CUDA and MPI of the base, and the directories
of this machine named in their variables.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from stackyard.core.errors import InputError, MissingError, StackyardError
from stackyard.core.names import canonical, pip_name
from stackyard.host.files.hashing import sha256_file
from stackyard.host.run.command import CommandError, Result
from stackyard.images.bases.container import VENV, Box, ContainerSetup
from stackyard.images.bases.model import PythonEnvironment
from stackyard.inputs.models import BuildSpec, Check, PackageBuild, PipOptions, Variant
from stackyard.lock.lockfile.fingerprint import conda_requirements, constraints, pip_requirements
from stackyard.make import tools
from stackyard.make.job import cores
from stackyard.make.wheels import c_extensions as extensions
from stackyard.make.wheels import key as wheelkey
from stackyard.make.wheels import source, toolchain

Judge = Callable[[Check, Result], str | None]
"""What is wrong with what a check printed, or None."""
_NONE: Mapping[str, str] = {}
_OF_A_BASE = frozenset({"python", "pip"})


@dataclass(frozen=True)
class Packages:
    """The packages to install on top of a base.

    Attributes:
        requirements: in pip's syntax.
        find_links: directories of this machine with packages.
        constraints: in pip's syntax, for dependencies.
        no_binary: packages without build settings that are compiled even if wheels exist.
        variables: set during each build, e.g. HOROVOD_WITH_PYTORCH; ``{env:NAME}`` and the others are replaced.
        build: the build settings of single packages.
        checks: run in the result before it is saved.
        recipe: the files with these settings, each with its sha256.
        given: the other inputs of the container.
    """

    requirements: tuple[str, ...]
    find_links: tuple[Path, ...] = ()
    constraints: tuple[str, ...] = ()
    no_binary: tuple[str, ...] = ()
    variables: Mapping[str, str] = field(default_factory=dict)
    build: BuildSpec = field(default_factory=BuildSpec)
    checks: tuple[Check, ...] = ()
    recipe: Mapping[str, str] = field(default_factory=dict)
    given: ContainerSetup = field(default_factory=ContainerSetup)

    def with_places(self, environ: Mapping[str, str]) -> Packages:
        """A copy with ``{env:NAME}`` directories mounted in the container."""
        texts = [self._all(), *(self.build.variables | build.variables for build in self.build.packages.values())]
        names = sorted(name for text in texts for name in wheelkey.read_from_environment(text))
        named = (Path(environ.get(name, "")) for name in names)
        places = (place for place in named if place.is_absolute() and place.is_dir() and place != Path("/"))
        all_places = dict.fromkeys([*self.given.places, *self.find_links, *places])
        return replace(self, given=replace(self.given, places=tuple(all_places)))

    def of(self, how: PackageBuild | None) -> dict[str, str]:
        """The environment variables for compiling a package, unexpanded."""
        return {**self._all(), **(how.variables if how else {})}

    def _all(self) -> dict[str, str]:
        return {**self.build.variables, **self.variables}


def of_variant(variant: Variant, platform: str) -> Packages:
    """The packages that a stack's file requests on top of a base.

    Raises:
        InputError: it has a feature that bases do not support, or a file does not exist.
    """
    file = next(iter(variant.files), variant.stack)
    conda = [
        requirement.name for requirement in conda_requirements(variant, platform) if requirement.name not in _OF_A_BASE
    ]
    options = variant.environment.pip_options
    lines = pip_requirements(variant, platform)
    local = next((line.line for line in lines if line.kind == "path"), "")
    for what, why in (
        (", ".join(conda), "conda packages are not installed on a base: name pip packages"),
        (variant.post and "the post script", "it is not run on a base: remove `post:`"),
        (local, "a local project is not seen in the base: make an archive of it, and name its directory: --find-links"),
        (options.model_copy(update={"no_binary": ()}) != PipOptions() and "the options of its pip section",
         "name indexes and directories in pip.conf"),
        (not lines and "no pip packages", "name them in `environment: dependencies: pip:`"),
    ):  # fmt: skip
        if what:
            raise InputError(f"cannot install {file} on a base: {what}", hint=why)
    return Packages(
        requirements=tuple(line.line for line in lines),
        constraints=tuple(constraint.line for constraint in constraints(variant, platform)),
        no_binary=options.no_binary,
        build=variant.build,
        checks=variant.checks,
        recipe={Path(name).name: sha256_file(Path(name)) for name in _recipe(variant)},
    )


def _recipe(variant: Variant) -> list[str]:
    return [*variant.files, *(name for how in variant.build.packages.values() for name in how.patches)]


@dataclass(frozen=True)
class BaseBuild:
    """One build on top of a base.

    Attributes:
        environ: the variables of this machine, for ``{env:NAME}``.
        tools: variables with the paths of the base's programs.
    """

    box: Box
    python: PythonEnvironment
    packages: Packages
    environ: Mapping[str, str]
    tools: Mapping[str, str] = field(default_factory=dict)

    @property
    def log(self) -> Path:
        """The log of programs run on this machine."""
        return self.box.work / "build.log"

    def run(
        self, *argv: str, how: PackageBuild | None = None, check: bool = True, paths: Mapping[str, str] = _NONE
    ) -> Result:
        """Run a program in the container with the variables of a package's build."""
        words = {"prefix": self.python.path, "python": f"{VENV}/bin/python", "ncores": str(cores())}
        values = wheelkey.substitute(self.packages.of(how), words, self.environ)
        return self.box.run(*argv, check=check, variables={**self.tools, **values}, paths=paths)

    def pip(
        self, command: str, *words: str, how: PackageBuild | None = None, paths: Mapping[str, str] = _NONE
    ) -> Result:
        """Run pip in the virtual environment."""
        links = [f"--find-links={directory}" for directory in self.packages.find_links]
        return self.run(f"{VENV}/bin/python", "-m", "pip", command, "--no-cache-dir", "--disable-pip-version-check",
                        *links, *words, how=how, paths=paths)  # fmt: skip


def environment(build: BuildSpec) -> dict[str, str]:
    """This process's environment, with the host modules that a build loads."""
    return {**os.environ, **(toolchain.with_modules(build.modules) if build.modules else {})}


def require_tools(building: BaseBuild) -> dict[str, str]:
    """The variables for the paths of the tools that builds need.

    Raises:
        MissingError: names every program that the base lacks, or has in too old a version.
    """
    lacking, paths = [], {}
    for tool in building.packages.build.tools:
        path = building.run("/bin/sh", "-c", 'command -v "$1"', "sh", tool.name, check=False).stdout.strip()
        if tool.variable:
            paths[tool.variable] = path
        if not path:
            lacking.append(f"{tool.name} not found on PATH")
        elif tool.version:
            version = tools.version_of(tool.name, lambda word, path=path: building.run(path, word, check=False))  # type: ignore[misc]
            if not tools.satisfies(version, tool.version):
                lacking.append(f"{tool.name} {version or 'of unknown version'} ({path}), not {tool.version}")
    if lacking:
        base = building.box.kept.base.name
        raise MissingError(f"cannot build on the base {base}: {'; '.join(lacking)}",
                           hint="`--before LINE` prepares the base: --before '. /opt/mpi/activate'")  # fmt: skip
    return paths


def compile_all(building: BaseBuild) -> dict[str, str]:
    """Compile the packages with build settings; the path of each wheel in the container, by canonical name."""
    named = {pip_name(line): line for line in building.packages.requirements}
    results = {}
    for name, how in building.packages.build.packages.items():
        line = named.get(canonical(name))
        if line is None:
            raise InputError(f"cannot compile {name}: it is not among the packages to install",
                             hint="name it among the pip packages, or remove it from `build: packages:`")  # fmt: skip
        if how.no_binary or how.patches:
            results[canonical(name)] = _compiled(building, canonical(name), line, how)
    return results


def _compiled(building: BaseBuild, name: str, line: str, how: PackageBuild) -> str:
    """Fetch the source in the container, patch it here, compile it there."""
    paths = _required(building, name, how)
    isolation = [] if how.isolation else ["--no-build-isolation"]
    building.pip("download", "--no-deps", f"--no-binary={name}", "-d", f"/tmp/{name}/sdist", *isolation, line,
                 how=how, paths=paths)  # fmt: skip
    work = building.box.tmp / name
    (archive,) = (work / "sdist").iterdir()
    (work / "source").mkdir()
    source.unpack(archive, work / "source")
    inside = [path for path in (work / "source").iterdir() if path.is_dir()]
    root = inside[0] if len(inside) == 1 else work / "source"
    source.apply_patches(how.patches, root, name, building.log)
    settings = [f"--config-settings={key}={value}" for key, value in sorted(how.config_settings.items())]
    done = building.pip("wheel", "-v", "--no-deps", "-w", f"/tmp/{name}/wheel", *isolation, *settings,
                        f"/tmp/{root.relative_to(building.box.tmp)}", how=how, paths=paths)  # fmt: skip
    (wheel,) = (work / "wheel").glob("*.whl")
    reason = extensions.missing(wheel, root, done.output)
    if reason and not how.incomplete:
        raise StackyardError(
            f"compiling {name} on the base {building.box.kept.base.name} made {wheel.name}: {reason}",
            hint=f"if the wheel is what you want, set `incomplete: true` under `build: packages: {name}:`",
            detail="\n".join(done.output.splitlines()[-30:]),
        )
    return f"/tmp/{wheel.relative_to(building.box.tmp)}"


def _required(building: BaseBuild, name: str, how: PackageBuild) -> dict[str, str]:
    """Install the build requirements into a temporary directory; returns the search paths with it."""
    if not how.requires or how.isolation:
        return {}
    place = f"/tmp/{name}/requires"
    building.pip("install", "--no-compile", "--target", place, *how.requires)
    return {"PYTHONPATH": place, "PATH": f"{place}/bin"}


def require_checks(
    building: BaseBuild, own: Mapping[str, str], judge: Judge, unmet: Callable[[Check], str | None]
) -> list[str]:
    """Run the checks in the result; returns sentences about skipped checks and permitted failures.

    Args:
        own: the variables by which programs find the installed packages.
        judge: returns the problem in a check's output.
        unmet: returns why this machine cannot run a check, or None.

    Raises:
        StackyardError: a check failed.
    """
    notices = []
    for check in building.packages.checks:
        why = unmet(check)
        if why is not None:
            notices.append(f"skipped: {check.name}: {why}")
            continue
        try:
            done = building.box.run(*_argv(building, check), check=False, variables=own, paths={"PATH": f"{VENV}/bin"})
            problem = judge(check, done)
        except CommandError as error:
            done, problem = error.result, error.message
        if problem and check.required:
            raise StackyardError(f"check failed: {check.name}: {problem}", detail=done.output)
        if problem:
            notices.append(f"not passed: {check.name}: {problem}")
    return notices


def _argv(building: BaseBuild, check: Check) -> list[str]:
    if check.run:
        words = {"{prefix}": building.python.path, "{python}": f"{VENV}/bin/python"}
        return [words.get(word, word) for word in check.run]
    if check.python:
        return [f"{VENV}/bin/python", "-c", check.python]
    target = building.box.tmp / "check"
    shutil.copyfile(check.script, target)
    return [*([f"{VENV}/bin/python"] if check.script.endswith(".py") else ["/bin/bash"]), "/tmp/check"]
