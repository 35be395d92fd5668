"""Checks the yard's own files: modulefiles, manifests, records, reports and kept locks; in a deep check its caches."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from stackyard.core.errors import StackyardError
from stackyard.host.files.hashing import sha256_file
from stackyard.host.machine.probe import machine
from stackyard.lock.lockfile import text as lockfile
from stackyard.verify.checks.content import listed
from stackyard.verify.report import CheckResult, Report, read_report
from stackyard.yard import disk
from stackyard.yard.cache.audit import audit
from stackyard.yard.generation import generations
from stackyard.yard.layout import Yard
from stackyard.yard.revision import revisions
from stackyard.yard.revision.manifest import Manifest, read_manifest
from stackyard.yard.revision.record import now, read_record


def check_yard(yard: Yard, *, deep: bool) -> Report:
    """A report on the yard's own files, with its path in place of a module.

    Args:
        deep: read every byte of the caches too.
    """
    started = time.perf_counter()
    checks = [
        _result("modulefiles", modulefiles(yard), f"restore them: `stackyard --yard {yard.root} verify --repair`"),
        _result("manifests", _manifests(yard), "restore them from a backup; users see the present one all the same"),
        _result("records", _records(yard), f"restore them: `stackyard --yard {yard.root} verify --repair`"),
        _result("locks", _locks(yard), "remove them: what they lock is solved again when it is needed"),
    ]
    if deep:
        checks.append(_result("caches", audit(yard), f"discard them: `stackyard --yard {yard.root} verify --repair`"))
    seconds = round(time.perf_counter() - started, 3)
    return Report(str(yard.root), "", now(), machine().to_json(), checks=tuple(checks), seconds=seconds)


def modulefiles(yard: Yard) -> Iterator[str]:
    """Differences of the visible modules from the published ones; none for a generation of an earlier version."""
    try:
        manifest = generations.current(yard)
    except StackyardError:  # reported with the manifests
        return
    if manifest is None or not manifest.files:
        return
    yield from modules_of(yard, manifest)


def modules_of(yard: Yard, manifest: Manifest) -> Iterator[str]:
    """Differences of one generation's modules from its manifest."""
    directory = yard.generation(manifest.number).modules
    present = {path.relative_to(directory).as_posix() for path in directory.rglob("*") if path.is_file()}
    for name, expected in sorted(manifest.files.items()):
        if name not in present:
            yield f"{directory / name} is missing"
            continue
        try:
            if (directory / name).is_symlink():
                yield f"{directory / name} is a link to {(directory / name).readlink()}"
            elif sha256_file(directory / name) != expected:
                yield f"{directory / name} has changed"
        except StackyardError as error:
            yield error.message
    yield from (f"{directory / name} was added" for name in sorted(present - manifest.files.keys()))


def _manifests(yard: Yard) -> Iterator[str]:
    for number in sorted(generations.numbers(yard)):
        yield from unreadable(read_manifest, yard.generation(number).manifest)


def _records(yard: Yard) -> Iterator[str]:
    for paths in revisions.directories(yard):
        if disk.is_there(paths.record):
            yield from unreadable(read_record, paths.record)
            if disk.is_there(paths.spare):
                yield from unreadable(read_record, paths.spare)
            if disk.is_there(paths.report):
                yield from unreadable(read_report, paths.report)


def _locks(yard: Yard) -> Iterator[str]:
    for path in sorted(yard.locks.rglob("*.lock")):
        yield from unreadable(lockfile.read, path)


def unreadable(read: Callable[[Path], object], path: Path) -> Iterator[str]:
    """Why one of our files cannot be read, with its path; nothing if it can."""
    try:
        read(path)
    except StackyardError as error:
        yield f"{path}: {error.message}" if str(path) not in error.message else error.message


def _result(name: str, problems: Iterable[str], remedy: str) -> CheckResult:
    texts = list(problems)
    if not texts:
        return CheckResult("content", name, "passed")
    return CheckResult("content", name, "failed", listed(texts), remedy)
