"""Compiles source packages to wheels, once per key (`wheelkey`), and keeps them in the yard's cache.

The caches of built wheels of uv and pip are not used: both return the same wheel after the build variables have
changed. ``uv build`` runs on the prepared source, in the stack (with the build requirements in a temporary environment
on top of it, so that they do not stay) or in isolation. The result does not depend on the prefix (`relink`): meanwhile
the prefix has a long name besides its own, in the work directory, which leaves room for the path of any other.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stackyard.core.names import canonical, of_purls, pip_name
from stackyard.core.secrets import shown
from stackyard.host.run.view import View
from stackyard.host.tools import uv
from stackyard.inputs.stacks.buildinputs import package_build
from stackyard.lock.lockfile.model import PipPackage
from stackyard.lock.satisfied import satisfied
from stackyard.make import programs
from stackyard.make.job import Job, cores
from stackyard.make.wheels import c_extensions as extensions
from stackyard.make.wheels import cached, indexes, relink, source, uncompiled
from stackyard.make.wheels import install as pip
from stackyard.make.wheels import key as wheelkey
from stackyard.make.wheels.buildsystem import add_requires
from stackyard.make.wheels.cached import CompiledWheel
from stackyard.make.wheels.toolchain import Toolchain
from stackyard.yard.kinds.payload import Prefix
from stackyard.yard.write.atomic import fault_point

if TYPE_CHECKING:
    from stackyard.inputs.models import PackageBuild


_TIMEOUT_S = 6 * 3600
_LEASE = "building"


def compile_all(job: Job, toolchain: Toolchain, install: Callable[[Sequence[pip.Wheel]], None]) -> list[CompiledWheel]:
    """Compile (or find) and install every package that is locked as source, dependencies first.

    Args:
        install: installs wheels into the prefix, where later compilations need them.

    Raises:
        StackyardError: a package does not compile; earlier results are in the cache.
    """
    wheels: list[CompiledWheel] = []
    pending: list[pip.Wheel] = []
    for package in in_order([p for p in job.locked.pip if p.kind != "wheel"]):
        how = package_build(job.variant.build, package.name)
        wheel = cached.find(job, package, wheelkey.digest(_inputs(job, package, toolchain)))
        if wheel is None:
            if pending and how is not None and not how.isolation:
                install(pending)
                pending = []
            wheel = _compile(job, package, toolchain)
        wheels.append(wheel)
        pending.append(wheel.wheel)
    if pending:
        install(pending)
    return wheels


def in_order(packages: Sequence[PipPackage]) -> list[PipPackage]:
    """Packages after their requirements; then by name. Cycles are broken."""
    named = {canonical(p.name): p for p in packages}
    done: dict[str, PipPackage] = {}

    def visit(name: str, above: tuple[str, ...]) -> None:
        if name in done or name in above:
            return
        for requirement in sorted(map(pip_name, named[name].requires)):
            if requirement in named:
                visit(requirement, (*above, name))
        done[name] = named[name]

    for name in sorted(named):
        visit(name, ())
    return list(done.values())


def _inputs(job: Job, package: PipPackage, toolchain: Toolchain) -> dict[str, Any]:
    return wheelkey.inputs(
        job, package, package_build(job.variant.build, package.name), toolchain.environ, toolchain.tools
    )


def _compile(job: Job, package: PipPackage, toolchain: Toolchain) -> CompiledWheel:
    started = time.monotonic()
    values = _inputs(job, package, toolchain)
    key = wheelkey.digest(values)
    job.progress.phase(job.module, "compile", f"{package.name} {package.version}")
    fault_point("wheel")
    with cached.work_directory(job, key) as work:
        root = source.prepare(job, package, work / "source")
        how = package_build(job.variant.build, package.name)
        if how:
            source.apply_patches(how.patches, root, f"{package.name} {package.version}", job.paths.log)
        placeholder = relink.placeholder(work, job.prefix)
        built, output = _build(job, package, toolchain, root, placeholder)
        reason = extensions.missing(built, root, output)
        if reason and how and not how.incomplete:
            raise extensions.refuse(package, built, reason, output, job.paths.log)
        if package.kind == "sdist":
            pip.require_as_locked(built.name, package.name, package.version, shown(package.url))
        elif package.version and canonical(built.name.split("-")[1]) != canonical(package.version.replace("+", "_")):
            job.progress.notice(f"{package.name} {package.version} (as locked) was compiled to {built.name}")
        notes = [f"{package.name} {package.version}: {reason}"] if reason else []
        inputs = wheelkey.recorded(values, job, how)
        about = {"seconds": round(time.monotonic() - started, 1), "inputs": inputs, "notes": notes}
        relative = work / "relative" / built.name
        relative.parent.mkdir()
        changed = relink.without_prefix(built, relink.Target.of(job.prefix, job), placeholder, relative)
        return cached.keep(job, package, key, relative if changed else built, about, placeholder)


def _build(job: Job, package: PipPackage, toolchain: Toolchain, root: Path, placeholder: Path) -> tuple[Path, str]:
    """Run ``uv build`` in the directory of the placeholder; returns the wheel and the output."""
    work = placeholder.parent
    how = package_build(job.variant.build, package.name)
    isolated = how is None or how.isolation
    # packages that need torch to build see the prefix; others get an isolated environment from uv
    view = relink.named(placeholder, job)
    path = [*map(str, job.payload.program_directories), toolchain.environ.get("PATH", os.defpath)]
    python = job.python
    if how and not isolated:
        python = _environment(job, _absent(job, how.requires), placeholder, view)
        path.insert(0, str(python.parent))
    elif how and how.requires:
        add_requires(root, how.requires)
    env = {**_loaded(job, toolchain, path), **_variables(job, how, toolchain, placeholder), **_version_hint(package)}
    settings = [f"--config-setting={k}={v}" for k, v in sorted(wheelkey.config_settings(package, how).items())]
    argv: programs.Argv = [
        uv.program(), "build", "--wheel", "--no-sources", "--no-python-downloads", "--python", python,
        "--out-dir", work / "out", *settings, *(indexes.options(job) if isolated else ["--no-build-isolation"]), root,
    ]  # fmt: skip
    fault_point("wheel")
    what = f"compiling {package.name} {package.version}"
    try:
        done = programs.run(argv, what=what, log=job.paths.log, env=env, cwd=root, timeout_s=_TIMEOUT_S, view=view)
    except programs.FailedError as error:
        raise uncompiled.explained(job, package, error) from error
    return next((work / "out").glob("*.whl")), done.output


def _absent(job: Job, requires: Sequence[str]) -> list[str]:
    """The build requirements that the stack does not satisfy; those it has (torch) are used from the stack."""
    present: dict[str, str] = {
        name: version for p in job.locked.conda for name, version in of_purls(p.purls) if version
    }
    present |= {canonical(p.name): p.version for p in job.locked.pip}
    return [text for text in requires if not satisfied(present.get(pip_name(text), ""), text)]


def _environment(job: Job, requires: Sequence[str], placeholder: Path, view: View) -> Path:
    """Create a temporary environment with build requirements on top of the stack; uv compiles those without a wheel."""
    directory, site_packages = placeholder.parent / "env", job.site_packages.relative_to(job.prefix)

    def run(*words: str | os.PathLike[str]) -> None:
        what = f"creating a build environment for {job.module}"
        programs.run([uv.program(), *words], what=what, log=job.paths.log, env=indexes.environment(job), view=view)

    run("venv", "--python", job.python, "--no-project", "--no-python-downloads", directory)
    python = Prefix(directory).python
    (directory / site_packages / "_stack.pth").write_text(f"{placeholder / site_packages}\n", encoding="utf-8")
    if requires:
        run("pip", "install", "--python", python, *indexes.options(job), *requires)
    return python


def _loaded(job: Job, toolchain: Toolchain, path: Sequence[str]) -> dict[str, str]:
    """The environment for compiling: the host modules' variables, overridden by those of every build."""
    return {**toolchain.environ, **programs.build_environment(path, indexes.environment(job))}


def _variables(job: Job, how: PackageBuild | None, toolchain: Toolchain, prefix: Path) -> dict[str, str]:
    named = {tool.variable: tool.path for tool in toolchain.tools.values() if tool.variable}
    variables = wheelkey.variables(job, how)
    known = {**os.environ, **toolchain.environ}
    return {**named, **wheelkey.substitute(variables, wheelkey.words(prefix, job.python, str(cores())), known)}


def _version_hint(package: PipPackage) -> dict[str, str]:
    """The version for projects that read it from git; a snapshot or a shallow checkout has no history."""
    name = canonical(package.name).replace("-", "_").upper()
    return {f"SETUPTOOLS_SCM_PRETEND_VERSION_FOR_{name}": package.version} if package.version else {}
