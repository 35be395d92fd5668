"""The file check of selected revisions, or of a whole yard."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from stackyard.core.errors import StackyardError
from stackyard.core.progress import Progress
from stackyard.inputs.sites.siteyard import policy
from stackyard.inputs.workspace import Workspace
from stackyard.upkeep.health.fsck import caching, yardwide
from stackyard.upkeep.health.fsck.fault import Fault, Report
from stackyard.upkeep.health.fsck.reading import Reader
from stackyard.upkeep.health.fsck.revision import Task
from stackyard.upkeep.health.fsck.revision import faults_of as faults_of_revision
from stackyard.upkeep.health.fsck.sharing import holders
from stackyard.upkeep.health.fsck.trees import Rights
from stackyard.yard import disk
from stackyard.yard.cache.caches import parts
from stackyard.yard.generation import generations
from stackyard.yard.layout import Yard, place_of
from stackyard.yard.revision import revisions
from stackyard.yard.revision.directories import RevisionPaths
from stackyard.yard.revision.manifest import Entry
from stackyard.yard.write import trash

_SAMPLE_BYTES, _MOST_BYTES, _LEAST_BYTES = 512 << 20, 32 << 20, 2 << 20
"""What is read of all revisions without `deep`, of one at most, and of one at least."""


def check(
    workspace: Workspace, entries: Sequence[Entry], progress: Progress, *, deep: bool, whole: bool,
    again: Report | None = None,
) -> Report:  # fmt: skip
    """Compare files with their recorded hashes. Writes nothing.

    Args:
        entries: the revisions to check besides those of a whole yard.
        whole: all revisions of the yard, its own files and its caches.
        again: an earlier check whose faults were repaired: files that it found intact are not read again.
    """
    yard = workspace.yard
    started, report, reader = time.perf_counter(), Report(yard, deep), Reader()
    allowed = rights(workspace)
    chosen = _all(yard) if whole else {entry.module: RevisionPaths.of(entry.folder) for entry in entries}
    if again is not None:
        chosen = {name: p for name, p in chosen.items() if name in again.damaged or str(p.root) in again.unrecorded}
    # without --deep a sample of each revision's bytes: a fixed total, shared among the revisions
    most = max(_LEAST_BYTES, min(_MOST_BYTES, _SAMPLE_BYTES // max(1, len(chosen))))
    doubtful = frozenset(fault.path for fault in again.faults) if again else frozenset()
    task = Task(
        workspace.site, yard, reader, allowed, report, deep, most, int.from_bytes(os.urandom(4), "big"), doubtful
    )
    for number, (module, paths) in enumerate(sorted(chosen.items()), 1):
        progress.phase("files", "reading", f"{module}, {number} of {len(chosen)}")
        report.revisions.append(module)
        report.faults += _revision(module, paths, task)
    # what belongs to no revision
    if whole:
        progress.phase("files", "reading", "generations, locks, bases")
        report.faults += yardwide.faults_of(yard, reader, allowed, deep=deep)
        progress.phase("files", "reading", "the caches")
        caches = _entries_of(again)
        report.faults += caching.faults_of(yard, reader, allowed, deep=deep and again is None, doubtful=caches)
        report.notes += yardwide.notes_of(workspace)
    report.faults = list(_with_holders(yard, report.faults))
    report.read, report.read_bytes = reader.files, reader.bytes
    report.seconds = time.perf_counter() - started
    return report


def _entries_of(report: Report | None) -> frozenset[Path]:
    """The cache entries in which a check found faults."""
    return frozenset(fault.entry.path for fault in report.faults if fault.entry) if report else frozenset()


def rights(workspace: Workspace) -> Rights:
    """The accounts that may own and write files: root, and those of this yard and of its sources of packages."""
    yard = workspace.yard
    umask, left = policy(workspace).umask, yard.root.stat().st_uid != 0
    if not umask & 0o020:
        return Rights(umask, left=left)
    directories = [ancestor.root for ancestor in yard.lineage()] + [yard.stacks, *(part.cache for part in parts(yard))]
    known = {directory.stat().st_uid for directory in directories if disk.is_there(directory)}
    return Rights(umask, frozenset({0, *known}), left)


def _all(yard: Yard) -> dict[str, RevisionPaths]:
    """Every revision that is built or was published, including those without a record."""
    built = (
        paths for paths in revisions.directories(yard) if disk.is_there(paths.record) or disk.is_there(paths.spare)
    )
    by_name = {f"{p.root.parent.name}/{p.root.name}": p for p in built if not p.root.name.startswith(".")}
    try:
        entries = generations.entries(yard)
    except StackyardError:  # reported with the generations
        return by_name
    known = {str(paths.root) for paths in by_name.values()}
    listed = {e.module: RevisionPaths.of(e.folder) for e in entries if e.state not in ("removed", "missing")}
    return {**by_name, **{module: paths for module, paths in listed.items() if str(paths.root) not in known}}


def _revision(module: str, paths: RevisionPaths, task: Task) -> list[Fault]:
    """The faults of one revision; none if it was removed meanwhile."""
    try:
        faults = list(faults_of_revision(module, paths, task))
    except OSError as error:
        text, place = f"cannot be read: {error.strerror}", str(paths.root)
        faults = [Fault(Path(error.filename or place), "unreadable", text, module, place)]
    if faults and place_of(paths.root) in trash.removed(task.yard):
        task.report.notes.append(f"{module}: removed meanwhile")
        return []
    return faults


def _with_holders(yard: Yard, faults: Sequence[Fault]) -> Iterator[Fault]:
    """The faults; those of changed hard links also name every revision and cache entry with the file."""
    known = holders(yard, {fault.inode for fault in faults if fault.inode})
    for fault in faults:
        own = fault.revision or (fault.entry.path.relative_to(yard.root).as_posix() if fault.entry else "")
        others = sorted(set(known.get(fault.inode, ())) - {own}) if fault.inode else ()
        yield replace(fault, also=tuple(others))
