"""Compiles source packages to wheels, once per key (`wheelkey`), and keeps them in the yard's cache.

The caches of built wheels of uv and pip are not used: both return the same wheel after the build variables have
changed. ``uv build`` runs on the prepared source, in the stack (with the build requirements in a temporary environment
on top of it, so that they do not stay) or in isolation, and its result is kept as

    cache/wheels/<2 digits>/<key>/{<name>.whl, meta.json}

A wheel whose files contain the prefix (an RPATH, a built-in path) is valid for that prefix only; `meta.json` records
this, and another prefix gets its own wheel.
"""

from __future__ import annotations

import os
import shutil
import time
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stackyard.core.errors import StackyardError
from stackyard.core.names import canonical, of_purls, pip_name
from stackyard.core.secrets import shown
from stackyard.host.files import at
from stackyard.host.files.hashing import sha256_file, sha256_text
from stackyard.host.run.view import View
from stackyard.host.tools import uv
from stackyard.inputs.stacks.buildinputs import package_build
from stackyard.lock.lockfile.model import PipPackage
from stackyard.lock.satisfied import satisfied
from stackyard.make import programs
from stackyard.make.job import Job, cores
from stackyard.make.wheels import c_extensions as extensions
from stackyard.make.wheels import indexes, source, uncompiled
from stackyard.make.wheels import install as pip
from stackyard.make.wheels import key as wheelkey
from stackyard.make.wheels.buildsystem import add_requires
from stackyard.make.wheels.toolchain import Toolchain
from stackyard.yard import checksum, disk, formats
from stackyard.yard.cache.caches import may_look_into, searched
from stackyard.yard.kinds.payload import Prefix
from stackyard.yard.layout import Yard
from stackyard.yard.write import atomic, lease
from stackyard.yard.write.atomic import fault_point, write_json

if TYPE_CHECKING:
    from stackyard.inputs.models import PackageBuild


_TIMEOUT_S = 6 * 3600
_LEASE = "building"


@dataclass(frozen=True)
class CompiledWheel:
    """A wheel compiled from source, now or earlier. `key` is its cache key, `notes` are for the record."""

    package: PipPackage
    wheel: pip.Wheel
    key: str
    notes: tuple[str, ...] = ()


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
        wheel = find(job, package, toolchain)
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


def find(job: Job, package: PipPackage, toolchain: Toolchain) -> CompiledWheel | None:
    """The wheel in this yard's cache or in a parent's, compiled from the same inputs and usable here."""
    if job.rebuild:
        return None
    key = wheelkey.digest(_inputs(job, package, toolchain))
    for yard in searched(job.yard):
        for directory in (yard.wheel(key), yard.wheel(key, _bound(job))):
            meta = _meta(directory)
            if meta and _suits(job, package, meta):
                wheel = _wheel(directory / meta["wheel"], package, meta["sha256"])
                return CompiledWheel(package, wheel, key, tuple(meta.get("notes", ())))
            if meta is None and may_look_into(directory):
                job.progress.notice(f"damaged in the cache, so compiled again: {package.name} in {directory}")
    return None


def kept(yard: Yard, package: PipPackage, start: str, prefix: str) -> pip.Wheel | None:
    """The cached wheel that a revision was built with, if any.

    Args:
        start: the start of its key, as the revision's record has it.
        prefix: the prefix of that revision.
    """
    for directory in (f for ancestor in searched(yard) for f in sorted(ancestor.wheels.glob(f"{start[:2]}/{start}*"))):
        meta = _meta(directory)
        if meta and meta["prefix"] in ("", prefix):
            return _wheel(directory / meta["wheel"], package, meta["sha256"])
    return None


def _suits(job: Job, package: PipPackage, meta: Mapping[str, Any]) -> bool:
    """Whether a cached wheel is valid for this prefix, and has all extensions that this stack requires."""
    how = package_build(job.variant.build, package.name)
    if how and not how.incomplete and meta.get("notes", meta["wheel"].endswith("-none-any.whl")):
        return False
    return meta["prefix"] in ("", os.fspath(job.prefix))


def _inputs(job: Job, package: PipPackage, toolchain: Toolchain) -> dict[str, Any]:
    return wheelkey.inputs(
        job, package, package_build(job.variant.build, package.name), toolchain.environ, toolchain.tools
    )


def _bound(job: Job) -> str:
    """The marker of a wheel that contains this prefix."""
    return sha256_text(os.fspath(job.prefix))[:12]


def _meta(directory: Path) -> dict[str, Any] | None:
    """The metadata of a cached wheel; None if there is none or if its hash does not match."""
    try:
        meta: dict[str, Any] = formats.content(checksum.read(directory / "meta.json"))
        return meta if sha256_file(directory / at.component(meta["wheel"])) == meta["sha256"] else None
    except (OSError, ValueError, KeyError, StackyardError):
        return None


def _wheel(path: Path, package: PipPackage, sha256: str) -> pip.Wheel:
    return pip.Wheel(package.name, path.name.split("-")[1], path.as_uri(), sha256)


def _compile(job: Job, package: PipPackage, toolchain: Toolchain) -> CompiledWheel:
    started = time.monotonic()
    values = _inputs(job, package, toolchain)
    key = wheelkey.digest(values)
    job.progress.phase(job.module, "compile", f"{package.name} {package.version}")
    fault_point("wheel")
    with _work_directory(job, key) as work:
        root = source.prepare(job, package, work / "source")
        how = package_build(job.variant.build, package.name)
        if how:
            source.apply_patches(how.patches, root, f"{package.name} {package.version}", job.paths.log)
        built, output = _build(job, package, toolchain, root, work)
        reason = extensions.missing(built, root, output)
        if reason and how and not how.incomplete:
            raise extensions.refuse(package, built, reason, output, job.paths.log)
        if package.kind == "sdist":
            pip.require_as_locked(built.name, package.name, package.version, shown(package.url))
        elif package.version and canonical(built.name.split("-")[1]) != canonical(package.version.replace("+", "_")):
            job.progress.notice(f"{package.name} {package.version} (as locked) was compiled to {built.name}")
        notes = [f"{package.name} {package.version}: {reason}"] if reason else []
        return _keep(job, package, built, values, time.monotonic() - started, notes)


def _build(job: Job, package: PipPackage, toolchain: Toolchain, root: Path, work: Path) -> tuple[Path, str]:
    """Run ``uv build``; returns the wheel and the output."""
    how = package_build(job.variant.build, package.name)
    isolated = how is None or how.isolation
    # packages that need torch to build see the prefix; others get an isolated environment from uv
    view = job.view(work, job.uv_cache)
    path = [*map(str, job.payload.program_directories), toolchain.environ.get("PATH", os.defpath)]
    python = job.python
    if how and not isolated:
        python = _environment(job, _absent(job, how.requires), work / "env", view)
        path.insert(0, str(python.parent))
    elif how and how.requires:
        add_requires(root, how.requires)
    env = {**_loaded(job, toolchain, path), **_variables(job, how, toolchain), **_version_hint(package)}
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


def _environment(job: Job, requires: Sequence[str], directory: Path, view: View) -> Path:
    """Create a temporary environment with build requirements on top of the stack; uv compiles those without a wheel."""

    def run(*words: str | os.PathLike[str]) -> None:
        what = f"creating a build environment for {job.module}"
        programs.run([uv.program(), *words], what=what, log=job.paths.log, env=indexes.environment(job), view=view)

    run("venv", "--python", job.python, "--no-project", "--no-python-downloads", directory)
    python = Prefix(directory).python
    own = directory / job.site_packages.relative_to(job.prefix)
    (own / "_stack.pth").write_text(f"{job.site_packages}\n", encoding="utf-8")
    if requires:
        run("pip", "install", "--python", python, *indexes.options(job), *requires)
    return python


def _loaded(job: Job, toolchain: Toolchain, path: Sequence[str]) -> dict[str, str]:
    """The environment for compiling: the host modules' variables, overridden by those of every build."""
    return {**toolchain.environ, **programs.build_environment(path, indexes.environment(job))}


def _variables(job: Job, how: PackageBuild | None, toolchain: Toolchain) -> dict[str, str]:
    named = {tool.variable: tool.path for tool in toolchain.tools.values() if tool.variable}
    variables = wheelkey.variables(job, how)
    known = {**os.environ, **toolchain.environ}
    return {**named, **wheelkey.substitute(variables, wheelkey.words(job, str(cores())), known)}


def _version_hint(package: PipPackage) -> dict[str, str]:
    """The version for projects that read it from git; a snapshot or a shallow checkout has no history."""
    name = canonical(package.name).replace("-", "_").upper()
    return {f"SETUPTOOLS_SCM_PRETEND_VERSION_FOR_{name}": package.version} if package.version else {}


def _keep(
    job: Job, package: PipPackage, built: Path, values: dict[str, Any], seconds: float, notes: Sequence[str]
) -> CompiledWheel:
    """Move a wheel into the cache atomically."""
    key = wheelkey.digest(values)
    bound = names_path(built, job.prefix)
    digest = sha256_file(built)
    directory = job.yard.wheel(key, _bound(job) if bound else "")
    temporary = atomic.temporary(directory)
    shutil.rmtree(temporary, ignore_errors=True)
    temporary.mkdir(parents=True)
    shutil.copyfile(built, temporary / built.name)
    fault_point("cache")
    inputs = wheelkey.recorded(values, job, package_build(job.variant.build, package.name))
    meta = {
        "wheel": built.name, "sha256": digest, "prefix": str(job.prefix) if bound else "",
        "seconds": round(seconds, 1), "inputs": inputs, "notes": list(notes),
    }  # fmt: skip
    write_json(temporary / "meta.json", meta, checked=True)
    present = None if job.rebuild else _meta(directory)
    if present is not None and _suits(job, package, present):  # of a build that was faster
        shutil.rmtree(temporary)
        wheel = _wheel(directory / present["wheel"], package, present["sha256"])
        return CompiledWheel(package, wheel, key, tuple(present.get("notes", ())))
    disk.remove_tree(directory)
    atomic.rename_directory(temporary, directory)
    return CompiledWheel(package, _wheel(directory / built.name, package, digest), key, tuple(notes))


def names_path(wheel: Path, path: Path) -> bool:
    """Whether a file in a wheel contains this path."""
    needle = os.fsencode(path)
    with zipfile.ZipFile(wheel) as bundle:
        return any(needle in bundle.read(info) for info in bundle.infolist() if not info.is_dir())


@contextmanager
def _work_directory(job: Job, key: str) -> Iterator[Path]:
    """Scratch space at a path that depends only on the key, since compilers write it into debug information.

    If another process is compiling the same wheel, this one uses another directory.
    """
    directory = job.yard.wheel_work(key)
    if lease.occupy(directory / _LEASE, directory.name) is None:
        directory = directory.with_name(f"{directory.name}-{os.urandom(8).hex()}")
        lease.occupy(directory / _LEASE, directory.name)
    try:
        for left in directory.iterdir():
            if left.name != _LEASE:
                disk.remove_tree(left)
        yield directory
    finally:
        disk.remove_tree(
            directory
        )  # its name is free before its lease is: the next process cannot take what is removed
