"""The cache of compiled wheels: what was compiled from the same inputs, made valid for another prefix if need be.

    cache/wheels/<2 digits>/<key>/{<name>.whl, meta.json}

A wheel that contains the path of a prefix is valid for that prefix only, as its `meta.json` records, and its directory
is `<key>-<start of the prefix's hash>`. The wheel for another prefix is made from it (`relink`); where that is
impossible, the package is compiled again.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stackyard.core.errors import StackyardError
from stackyard.host.files import at
from stackyard.host.files.hashing import sha256_file, sha256_text
from stackyard.inputs.stacks.buildinputs import package_build
from stackyard.lock.lockfile.model import PipPackage
from stackyard.make.job import Job
from stackyard.make.wheels import install as pip
from stackyard.make.wheels import relink
from stackyard.yard import checksum, disk, formats
from stackyard.yard.cache.caches import may_look_into, searched
from stackyard.yard.layout import Yard
from stackyard.yard.write import atomic, lease
from stackyard.yard.write.atomic import fault_point, write_json

_LEASE = "building"


@dataclass(frozen=True)
class CompiledWheel:
    """A wheel compiled from source, now or earlier. `key` is its cache key, `notes` are for the record."""

    package: PipPackage
    wheel: pip.Wheel
    key: str
    notes: tuple[str, ...] = ()


def find(job: Job, package: PipPackage, key: str) -> CompiledWheel | None:
    """The wheel in this yard's cache or in a parent's, compiled from the same inputs and usable here."""
    if job.rebuild:
        return None
    for yard in searched(job.yard):
        for directory in (yard.wheel(key), yard.wheel(key, _bound(job.prefix))):
            meta = _meta(directory)
            if meta and _suits(job, package, meta):
                wheel = _wheel(directory / meta["wheel"], package, meta["sha256"])
                return CompiledWheel(package, wheel, key, tuple(meta.get("notes", ())))
            if meta is None and may_look_into(directory):
                job.progress.notice(f"damaged in the cache, so compiled again: {package.name} in {directory}")
    return _of_another_prefix(job, package, key)


def _of_another_prefix(job: Job, package: PipPackage, key: str) -> CompiledWheel | None:
    """The wheel for this prefix, made from one that was compiled for another; None if that is impossible."""
    full = ""
    for meta, file in sorted(_bound_wheels(job, package, key), key=lambda found: -len(found[0]["prefix"])):
        try:
            with work_directory(job, key) as work:
                return _relinked(job, package, key, file, meta, work)
        except relink.NoRoomError as error:
            full = full or f"{error.file} has no room for a path longer than {meta['prefix']}"
    if full:
        job.progress.notice(f"{package.name} {package.version} is compiled again for {job.prefix}: {full}")
    return None


def _relinked(
    job: Job, package: PipPackage, key: str, file: Path, meta: Mapping[str, Any], work: Path
) -> CompiledWheel:
    """Make the wheel for this prefix, and keep it. Raises NoRoomError if that is impossible."""
    result = work / "relinked" / file.name
    result.parent.mkdir(parents=True)
    before, target = relink.Target.of(Path(meta["prefix"]), job), relink.Target.of(job.prefix, job)
    changed = relink.for_prefix(file, before, target, result)
    result = result if changed else file
    bound = job.prefix if relink.names(result, target.spellings) else None
    return _store(job, package, key, result, meta, bound)


def _bound_wheels(job: Job, package: PipPackage, key: str) -> Iterator[tuple[Mapping[str, Any], Path]]:
    """The cached wheels with this key that are valid for one prefix only, each with its metadata."""
    for yard in searched(job.yard):
        for directory in sorted(yard.wheels.glob(f"{key[:2]}/{key}-*")):
            meta = _meta(directory)
            if meta and meta["prefix"] and _is_complete(job, package, meta):
                yield meta, directory / meta["wheel"]


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
    return meta["prefix"] in ("", os.fspath(job.prefix)) and _is_complete(job, package, meta)


def _is_complete(job: Job, package: PipPackage, meta: Mapping[str, Any]) -> bool:
    """Whether a cached wheel has all extensions that this stack requires."""
    how = package_build(job.variant.build, package.name)
    return not (how and not how.incomplete and meta.get("notes", meta["wheel"].endswith("-none-any.whl")))


def keep(
    job: Job, package: PipPackage, key: str, built: Path, about: Mapping[str, Any], placeholder: Path
) -> CompiledWheel:
    """Move a compiled wheel into the cache, and make that for this prefix if it names the placeholder.

    Args:
        built: the wheel, in the work directory.
        about: what its metadata has besides the file.
        placeholder: the path by which the prefix was named while it was compiled.
    """
    own = relink.names(built, relink.Target.of(job.prefix, job).spellings)
    if not relink.names(built, [os.fspath(placeholder)]):
        return _store(job, package, key, built, about, job.prefix if own else None)
    meta = {**about, "prefix": str(placeholder)}
    if not own:  # a program that resolved links named the prefix itself, which may be too short for another one
        _store(job, package, key, built, about, placeholder)
    return _relinked(job, package, key, built, meta, placeholder.parent)


def _store(
    job: Job, package: PipPackage, key: str, file: Path, about: Mapping[str, Any], prefix: Path | None
) -> CompiledWheel:
    """Move a wheel into the cache atomically.

    Args:
        prefix: the only prefix for which it is valid; None if it is valid for all.
    """
    digest = sha256_file(file)
    directory = job.yard.wheel(key, _bound(prefix) if prefix else "")
    temporary = atomic.temporary(directory)
    shutil.rmtree(temporary, ignore_errors=True)
    temporary.mkdir(parents=True)
    shutil.copyfile(file, temporary / file.name)
    fault_point("cache")
    meta = {**about, "wheel": file.name, "sha256": digest, "prefix": str(prefix) if prefix else ""}
    write_json(temporary / "meta.json", meta, checked=True)
    present = None if job.rebuild else _meta(directory)
    if present is not None and _is_complete(job, package, present):  # of a build that was faster
        shutil.rmtree(temporary)
        wheel = _wheel(directory / present["wheel"], package, present["sha256"])
        return CompiledWheel(package, wheel, key, tuple(present.get("notes", ())))
    disk.remove_tree(directory)
    atomic.rename_directory(temporary, directory)
    wheel = _wheel(directory / file.name, package, digest)
    return CompiledWheel(package, wheel, key, tuple(about.get("notes", ())))


def _bound(prefix: Path) -> str:
    """The marker of a wheel that is valid for this prefix only."""
    return sha256_text(os.fspath(prefix))[:12]


def _meta(directory: Path) -> dict[str, Any] | None:
    """The metadata of a cached wheel; None if there is none or if its hash does not match."""
    try:
        meta: dict[str, Any] = formats.content(checksum.read(directory / "meta.json"))
        return meta if sha256_file(directory / at.component(meta["wheel"])) == meta["sha256"] else None
    except (OSError, ValueError, KeyError, StackyardError):
        return None


def _wheel(path: Path, package: PipPackage, sha256: str) -> pip.Wheel:
    return pip.Wheel(package.name, path.name.split("-")[1], path.as_uri(), sha256)


@contextmanager
def work_directory(job: Job, key: str) -> Iterator[Path]:
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
