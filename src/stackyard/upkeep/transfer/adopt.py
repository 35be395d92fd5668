"""Adopts a prefix that other tools made: examines it, describes it as a stack of one variant, and publishes that.

The prefix is neither changed nor copied. This module decides which problems are errors and which are warnings.
"""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from stackyard.core import grammar
from stackyard.core.errors import InputError, MissingError, StackyardError
from stackyard.core.findings import some
from stackyard.core.progress import Progress
from stackyard.deploy import deploy
from stackyard.deploy.deploy import Request, Result
from stackyard.deploy.plan import Planner, Task
from stackyard.deploy.preconditions import surroundings
from stackyard.deploy.writing import DeployLeases
from stackyard.host.files import filelocks, filesystem, home
from stackyard.host.machine.probe import machine
from stackyard.host.run import clock
from stackyard.host.run.identity import account_name
from stackyard.images.squashfs import possible
from stackyard.images.squashfs.file import special
from stackyard.inputs.models import CheckExceptions, Stack, Variant
from stackyard.inputs.stacks import naming
from stackyard.inputs.workspace import Workspace
from stackyard.lock.base import installed
from stackyard.lock.base.installed import InstalledPackages
from stackyard.lock.lockfile.model import Lock, LockedVariant
from stackyard.make import adopted as foreign
from stackyard.verify.expectations import in_force
from stackyard.yard import disk
from stackyard.yard.generation.origin import origin
from stackyard.yard.kinds.adopted import AdoptedPrefix, Kind
from stackyard.yard.kinds.payload import Prefix
from stackyard.yard.layout import Yard
from stackyard.yard.revision import adoptedfiles, revisions
from stackyard.yard.revision.contents import Tree
from stackyard.yard.revision.record import BuildRecord

OLDEST = (2, 7), (3, 5)
"""The oldest Pythons that can be verified."""
_LOCKS = (".conda_lock*", "*.lock", ".*.lock")
_SHOWN = 3


@dataclass(frozen=True)
class ForeignPrefix:
    """A prefix, its packages and the problems found in it."""

    prefix: Path
    adopted: AdoptedPrefix
    packages: InstalledPackages
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True)
class AdoptionOptions:
    """The options of an adoption; those left out keep the values of the previous adoption."""

    name: str | None = None
    version: str | None = None
    exceptions: Mapping[str, tuple[str, ...]] | None = None
    allow_unverified: bool = False
    image: bool = False


# --------------------------------------------------------------------------- looking at it


def look(path: Path, yard: Yard, *, image: bool = False) -> ForeignPrefix:
    """Examine a prefix. Writes nothing.

    Args:
        image: it is to be packed: require that every file of it can be.

    Raises:
        InputError: it is not a prefix, it is in a yard, its Python is not supported, or its path cannot be used.
        MissingError: it is a virtual environment whose Python was removed.
        StackyardError: it cannot be read, or a program is installing into it.
    """
    prefix = path.absolute()  # not resolved: the first lines of its commands have this path
    prefix = prefix.resolve() if ".." in prefix.parts else prefix
    kind = _kind(prefix)
    _require_outside(prefix, yard)
    _require_still(prefix)
    tree = foreign.look(prefix)
    packages = installed.installed(prefix)
    _require_python(prefix, kind, packages)
    text = adoptedfiles.noted(prefix, tree).to_text()
    described = AdoptedPrefix(kind, str(prefix), hashlib.sha256(text.encode()).hexdigest())
    if image:
        _require_packable(prefix, tree, yard)
    return ForeignPrefix(prefix, described, packages, tuple(_warnings(prefix, packages, yard, image=image)))


def _kind(prefix: Path) -> Kind:
    try:
        if not stat.S_ISDIR(prefix.stat().st_mode):
            raise NotADirectoryError
        os.scandir(prefix).close()
    except PermissionError as error:
        hint = "ask its owner for the right to read all of it"
        raise StackyardError(f"cannot adopt {prefix}: permission denied", hint=hint) from error
    except OSError as error:
        hint = "name the directory of a conda environment or of a virtual environment"
        raise InputError(f"cannot adopt {prefix}: no such directory", hint=hint) from error
    try:
        grammar.YARD(str(prefix))
    except grammar.GrammarError as error:
        hint = "make a symbolic link to it whose path has ASCII letters, digits and / . _ - only, and adopt that"
        raise InputError(f"cannot adopt {prefix}: {error}", hint=hint) from error
    kind = installed.kind_of(prefix)
    if kind is None:
        raise InputError(
            f"cannot adopt {prefix}: neither a conda prefix (conda-meta/) nor a virtual environment (pyvenv.cfg)",
            hint="`conda env list` shows prefixes; one that neither made can be described in a stack.yaml",
        )
    return kind


def _require_outside(prefix: Path, yard: Yard) -> None:
    real = Path(os.path.realpath(prefix))
    own = [Path(os.path.realpath(ancestor.root)) for ancestor in yard.lineage()]
    other = (
        top
        for top in (real, *real.parents)
        if all(disk.is_directory(p) for p in (Yard(top).stacks, Yard(top).generations))
    )
    inside = next((top for top in own if real.is_relative_to(top)), None) or next(other, None)
    if inside is not None:
        raise InputError(
            f"cannot adopt {prefix}: it is in the yard {inside}, which has a record of it",
            hint="add packages to a published revision with `stackyard extend`",
        )


def _require_packable(prefix: Path, tree: Tree, yard: Yard) -> None:
    if Path(os.path.realpath(yard.root)).is_relative_to(os.path.realpath(prefix)):
        raise InputError(
            f"cannot pack {prefix}: the yard {yard.root} is in it", hint="adopt it into a yard elsewhere, or as it is"
        )
    if problems := [f"{what}: {name}" for name, what in special(prefix.resolve())]:
        hint = "remove them from the prefix, or adopt it as it is, without --image"
        raise StackyardError(f"cannot pack {prefix}: {some(problems, _SHOWN)}", hint=hint)
    closed = [name for name, status in tree.items() if stat.S_ISREG(status.st_mode) and not _is_readable(prefix / name)]
    if closed:
        raise StackyardError(
            f"cannot pack {prefix}: permission denied: {some(sorted(closed), _SHOWN)}",
            hint="ask its owner for the right to read all of it",
        )


def _is_readable(path: Path) -> bool:
    return os.access(path, os.R_OK, follow_symlinks=False)


def _require_still(prefix: Path) -> None:
    """Refuse a prefix into which a visible process installs now. Later changes show in its files."""
    for directory in (prefix, prefix / "conda-meta"):
        for file in (file for pattern in _LOCKS for file in directory.glob(pattern)):
            holders = filelocks.holders(file)
            if holders:
                raise StackyardError(
                    f"cannot adopt {prefix}: {'; '.join(holders)} holds its lock {file.name}",
                    hint="adopt it when nothing installs into it any more",
                )


def _require_python(prefix: Path, kind: str, packages: InstalledPackages) -> None:
    python = Prefix(prefix).python
    if packages.interpreter.source == "none" and kind == "conda":
        return
    if not python.exists():
        if kind == "venv":
            home = installed.settings(prefix).get("home", "unknown")
            raise MissingError(
                f"cannot adopt {prefix}: the Python that it was made from no longer exists: {home}",
                hint="restore that Python; or list the packages in a file, and deploy it: `stackyard deploy FILE`",
            )
        raise StackyardError(
            f"cannot adopt {prefix}: {python} not found, although conda-meta lists python",
            hint="wait until nothing installs into it; if nothing does, install python again",
        )
    version = packages.interpreter.version
    if not _is_supported(prefix, version):
        raise InputError(
            f"cannot adopt {prefix}: its Python {version or 'of unknown version'} is not supported",
            hint="CPython 2.7, and from 3.5 on; list the packages in a file with a newer Python, and deploy it",
        )


def _is_supported(prefix: Path, version: str) -> bool:
    implementation = installed.settings(prefix).get("implementation", "CPython")
    parts = version.split(".")[:2]
    if implementation.lower() != "cpython" or len(parts) < 2 or not all(part.isdigit() for part in parts):
        return False
    number = (int(parts[0]), int(parts[1]))
    return number == OLDEST[0] or number >= OLDEST[1]


# --------------------------------------------------------------------------- warnings


def _warnings(prefix: Path, packages: InstalledPackages, yard: Yard, *, image: bool) -> Iterator[str]:
    yield from packages.notices
    yield from _also_packed(prefix) if image else _who_may_write(prefix, packages)
    local = filesystem.only_here(prefix)
    if local and not filesystem.only_here(yard.root):
        yield f"{prefix} is on a file system of this machine only ({local}): other nodes do not have it"
    if packages.editable:
        places = [f"{name} from {place}" for name, place in sorted(packages.editable.items())]
        yield f"editable projects, whose files are elsewhere and change at any time: {some(places, _SHOWN)}"
    if packages.interpreter.source == "host":
        config = installed.settings(prefix)
        yield f"its Python is that of {config.get('home', 'the host')}, which is not part of it"
        if config.get("include-system-site-packages", "").lower() == "true":
            yield "it sees the packages of that Python too (include-system-site-packages), which are not recorded"
    yield from _user_site(packages.interpreter.version)


def _also_packed(prefix: Path) -> Iterator[str]:
    """What a base of conda has beside its own packages."""
    for name, what in (("envs", "other environments"), ("pkgs", "the package cache of conda")):
        if disk.is_directory(prefix / name) and disk.names(prefix / name):
            yield f"{prefix / name} is packed too: {what}"


def _who_may_write(prefix: Path, packages: InstalledPackages) -> Iterator[str]:
    python, programs = packages.interpreter.version, Prefix(prefix).program_directories[0]
    inner = installed.site_packages(prefix, python, packages.conda) if python else programs
    names: dict[str, None] = {}
    for place in (prefix, programs, prefix / "conda-meta", inner):
        if disk.is_directory(place):
            names |= dict.fromkeys(_writers(place.stat()))
    if names:
        yield f"others may change its files: {', '.join(names)}; `stackyard verify` finds what changed"


def _writers(status: os.stat_result) -> Iterator[str]:
    if status.st_uid not in (0, os.geteuid()):
        yield f"its owner {account_name(status.st_uid)}"
    if status.st_mode & stat.S_IWOTH:
        yield "everybody"
    elif status.st_mode & stat.S_IWGRP and status.st_gid != 0:
        yield f"its group {filesystem.group_name(status.st_gid)}"


def _user_site(version: str) -> Iterator[str]:
    own = home.find()
    directory = installed.site_packages(own / ".local", version) if own and version else None
    try:
        names = [name for name in disk.names(directory) if name.endswith(".dist-info")] if directory else []
    except OSError:
        return
    if names:
        shown = some([name.partition("-")[0] for name in sorted(names)], _SHOWN)
        yield f"packages in {directory} are not part of it, and the module hides them: {shown}"


# --------------------------------------------------------------------------- describing it


def request(prefix: ForeignPrefix, options: AdoptionOptions, workspace: Workspace, command: tuple[str, ...]) -> Request:
    """The request that publishes the prefix as a stack of one variant.

    Raises:
        InputError: the name or the version is not valid for a module, or the name is taken.
    """
    stack = _stack(prefix, options, workspace.yard)
    return Request(workspace.site, workspace.yard, (stack,), allow_unverified=options.allow_unverified, command=command)


def _stack(prefix: ForeignPrefix, options: AdoptionOptions, yard: Yard) -> Stack:
    name = naming.safe(prefix.prefix.name) if options.name is None else naming.given("--name", options.name)
    if not name:
        raise InputError(f"{prefix.prefix.name!r} is not a valid module name", hint="pass one with --name")
    before = _before(name, prefix, yard)
    version = _version(options, before)
    python = prefix.packages.interpreter.version
    axes = {"python": ".".join(python.split(".")[:2])} if python else {}
    exceptions = options.exceptions if options.exceptions is not None else _kept(before)
    variant = Variant(
        stack=name, version=version, name=naming.variant_name(axes), axes=axes, adopted=prefix.adopted,
        exceptions=CheckExceptions(**{"broken_commands": "warn", **exceptions}), notices=prefix.warnings,
        summary=f"{prefix.prefix}, adopted as it {'was, in an image' if options.image else 'is'}.",
        image="squashfs" if options.image else "prefix",
    )  # fmt: skip
    return Stack(name=name, summary=variant.summary, variants=(variant,), kind="adopted", file=str(prefix.prefix))


def _before(name: str, prefix: ForeignPrefix, yard: Yard) -> BuildRecord | None:
    """The newest revision of this name adopted from the same prefix.

    Raises:
        InputError: another stack has this name.
    """
    known = revisions.built(yard, name, lambda *_: None)
    mine = [record for record in known if record.origin.adopted_from == prefix.adopted.prefix]
    others = [record for record in known if record not in mine]
    if others and not mine:
        last = others[-1]
        source = last.origin.adopted_from
        from_where = f"was adopted from {source}" if source else "is a stack that was built"
        raise InputError(
            f"the name {name} is taken: {others[-1].module} {from_where}", hint="choose another with --name"
        )
    return revisions.latest(mine) if mine else None


def _version(options: AdoptionOptions, before: BuildRecord | None) -> str:
    if options.version is not None:
        return naming.given("--version", options.version)
    return before.version if before else clock.today().strftime("%Y.%m.%d")


def _kept(before: BuildRecord | None) -> dict[str, object]:
    """The exceptions of the previous revision's verification."""
    return dict(in_force(before).exceptions) if before else {}


def tasks(prefix: ForeignPrefix, deploy_request: Request) -> list[Task]:
    """The tasks of an adoption: one that publishes the next revision, or none. Writes nothing.

    Raises:
        InputError: another module has the same name.
    """
    (stack,) = deploy_request.stacks
    return list(
        Planner(
            stack, Lock(stack.name, (_locked(prefix, stack),)), deploy_request.site, deploy_request.yard, _platform()
        ).tasks()
    )


def _locked(prefix: ForeignPrefix, stack: Stack) -> LockedVariant:
    (variant,), packages = stack.variants, prefix.packages
    return LockedVariant(
        stack=stack.name, version=variant.version, variant=variant.name, platform=_platform(),
        spec_hash=prefix.adopted.files_sha256, interpreter=packages.interpreter, requested=packages.requested,
        conda=packages.conda, pip=packages.pip, notices=packages.notices,
        channels=tuple(dict.fromkeys(p.channel for p in packages.conda if p.channel)),
    )  # fmt: skip


def _platform() -> str:
    return machine().platform


def adopt(prefix: ForeignPrefix, deploy_request: Request, progress: Progress, leases: DeployLeases) -> Result:
    """Record, verify and publish a prefix.

    Args:
        leases: the held lease to build the stack of this name.

    Raises:
        StackyardError: the adoption could not start; failed checks are in the result.
    """
    surroundings.require(deploy_request)
    to_do = tasks(prefix, deploy_request)
    if any(task.action == "build" and task.variant.image == "squashfs" for task in to_do):
        possible.require_packing()
        possible.require_mounting(f"cannot pack {prefix.prefix}")
    for text in prefix.warnings:
        progress.notice(text)
    result = Result()
    made_by = origin(deploy_request.command, [deploy_request.site.file] if deploy_request.site.file else [])
    deploy.carry_out(to_do, deploy_request, made_by, progress, result, leases)
    return result
