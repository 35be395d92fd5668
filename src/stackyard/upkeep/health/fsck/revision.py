"""The check of one revision: record, files, image, base, files beside the prefix, and write permissions."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from stackyard.core.errors import StackyardError
from stackyard.core.findings import counted, some
from stackyard.expose.published import MODULE
from stackyard.images.squashfs.launcher.compare import is_recorded
from stackyard.inputs.workspace import Workspace
from stackyard.make.seal import PARTS
from stackyard.upkeep.extensions.drift import drifted
from stackyard.upkeep.health.fsck import image
from stackyard.upkeep.health.fsck.fault import Fault, Report
from stackyard.upkeep.health.fsck.owners import Owners
from stackyard.upkeep.health.fsck.reading import Reader
from stackyard.upkeep.health.fsck.trees import Rights, differences, known, once
from stackyard.upkeep.health.originals import Originals
from stackyard.verify.checks.adopted import check_adopted
from stackyard.verify.checks.content import always_read, noted_contents, own_files, seen, seen_of
from stackyard.verify.checks.yardfiles import unreadable
from stackyard.verify.report import read_report
from stackyard.yard import disk, formats
from stackyard.yard.revision import contents, revisions, signatures
from stackyard.yard.revision.contents import Contents
from stackyard.yard.revision.directories import RevisionPaths
from stackyard.yard.revision.record import BuildRecord, read_record

_SHOWN = 4
_LINK = "put the directory itself in its place"


@dataclass(frozen=True)
class Task(Workspace):
    """The settings of a revision check: which files to read, and facts about the yard.

    Attributes:
        most_bytes: the most bytes to read of one revision without `deep`; `seed` selects the sample.
        doubtful: files that were damaged and may be repaired by now: always read.
    """

    reader: Reader
    rights: Rights
    report: Report
    deep: bool
    most_bytes: int
    seed: int
    doubtful: frozenset[Path] = frozenset()

    def chosen(self, record: BuildRecord, noted: Contents) -> list[str]:
        """The files to read."""
        if self.is_deep(record):
            read = noted.hashed
        else:
            read = contents.sample(noted, self.most_bytes, self.seed, always_read(record))
            read += [name for name in noted.hashed if Path(record.path, name) in self.doubtful and name not in read]
        self.report.files += len(noted.hashed)
        self.report.sampled += len(read)
        return read

    def is_deep(self, record: BuildRecord) -> bool:
        """Whether every byte of a revision is read; always for one that a repair left damaged."""
        return self.deep or disk.is_there(RevisionPaths.of(record.path).damaged)


def faults_of(module: str, paths: RevisionPaths, task: Task) -> Iterator[Fault]:
    """All faults of one revision, with its module."""
    faults = list(_faults(paths, task))
    if not faults and disk.is_there(paths.damaged):
        faults = [Fault(paths.damaged, "changed", "says that files were not restored: they are by now")]
    yield from (replace(fault, revision=module, directory=str(paths.root)) for fault in faults)


def _faults(paths: RevisionPaths, task: Task) -> Iterator[Fault]:
    yield from _readable(paths.record, read_record)
    if disk.is_there(paths.spare):
        yield from _readable(paths.spare, read_record)
    record = _record(paths)
    if record is None:
        return
    if disk.is_there(paths.report):
        yield from _readable(paths.report, read_report, "run its checks again: `stackyard verify`")
    if disk.is_there(paths.module):
        yield from _readable(paths.module, lambda path: formats.load(path, MODULE))
        yield from _beside(record, paths)
    yield from _signatures(record, paths)
    yield from _base(record)
    yield from _adopted(record)
    if record.payload.image:
        silent = image.unanswered(record)
        if silent:
            yield silent
            return
        task.report.files += record.payload.facts()["entries"]
        yield from image.image_faults(record, task.reader, deep=task.is_deep(record))
        yield from _launcher(record, paths, task)
    yield from _tree(record, paths, task)
    _drift(record, task)


def _launcher(record: BuildRecord, paths: RevisionPaths, task: Task) -> Iterator[Fault]:
    """The faults of the launcher compared with the record; a record without its hash is noted."""
    if not is_recorded(record):
        task.report.unrecorded[str(paths.root)] = record.module
        task.report.notes.append(
            f"{record.module}: launcher not recorded: an earlier version made it; `stackyard fsck --repair` makes it "
            "again, and records its hash"
        )
    fault = image.launcher_fault(record)
    yield from [fault] if fault else []


def _record(paths: RevisionPaths) -> BuildRecord | None:
    """The record, or its copy if the record is missing or damaged."""
    for path in (paths.record, paths.spare):
        try:
            return read_record(path)
        except StackyardError:
            continue
    return None


def _readable(path: Path, read: Callable[[Path], object], remedy: str = "") -> Iterator[Fault]:
    """The fault of an unreadable file of a known format."""
    if not disk.is_there(path):
        yield Fault(path, "missing", "is missing", remedy=remedy)
        return
    for problem in unreadable(read, path):
        text = problem.removeprefix(f"cannot read {path}: ").removeprefix(f"{path}: ").removeprefix(f"{path} ")
        yield Fault(path, "changed", f"cannot be read: {text}", remedy=remedy)


def _beside(record: BuildRecord, paths: RevisionPaths) -> Iterator[Fault]:
    for result in own_files(record):
        for line in result.detail.splitlines():
            path, _, text = line.partition(": ")
            if text:
                lost = text == os.strerror(errno.ENOENT)
                yield Fault(Path(path), "missing" if lost else "changed", "is missing" if lost else text)


def _signatures(record: BuildRecord, paths: RevisionPaths) -> Iterator[Fault]:
    """Signatures that do not match the present revision; `verify` checks the signers."""
    try:
        pairs = list(signatures.broken(paths))
    except StackyardError as error:
        yield Fault(paths.signatures, "unreadable", f"cannot be checked: {error.message}", remedy=error.hint or "")
        return
    remedy = f"find out why, restore it from a backup, or sign what it is now: `stackyard sign {record.module}`"
    for file, text in pairs:
        yield Fault(file, "changed", text, remedy=remedy)


def _base(record: BuildRecord) -> Iterator[Fault]:
    """The faults of an extension's base: missing, or not the one that it was built on."""
    if record.base is None:
        return
    remedy = f"put it on another base: `stackyard rebase {record.stack} --on REV`"
    base = record.base.paths
    try:
        lowest = revisions.readable(base)
    except StackyardError as error:
        yield Fault(base.record, "unreadable", error.message, remedy=remedy)
        return
    if lowest is None:
        yield Fault(base.root, "missing", f"is missing: the base of {record.module}", remedy=remedy)
    elif lowest.input_hash != record.base.hash:
        yield Fault(base.root, "changed", f"is another build than the base of {record.module}", remedy=remedy)


def _adopted(record: BuildRecord) -> Iterator[Fault]:
    for result in check_adopted(record):
        if result.status != "passed":
            text = result.detail.splitlines()[-1]
            yield Fault(Path(record.prefix), "changed", text, remedy=result.remedy)


def _drift(record: BuildRecord, task: Task) -> None:
    """Note the packages that a user installed in an extension, which are not a fault."""
    try:
        lines = [distribution.shown for distribution in drifted(record)]
    except OSError:
        return
    if lines:
        text = f"{counted(len(lines), 'package')} not in its record: {some(lines, _SHOWN)}"
        task.report.notes.append(f"{record.module}: {text}; `stackyard update` records them")


def _tree(record: BuildRecord, paths: RevisionPaths, task: Task) -> Iterator[Fault]:
    """The faults of a revision's files; for an image, of the files beside it."""
    if not record.origin.owns_files:
        return
    linked = [paths.root / part for part in PARTS if (paths.root / part).is_symlink()]
    if linked:
        yield from (Fault(path, "changed", f"is a link to {os.path.realpath(path)}", remedy=_LINK) for path in linked)
        return
    tree = contents.scan(paths.root, PARTS)
    if not record.files_sha256:
        yield from _with_packages(record, task.rights.faults(paths.root, tree, lambda _: False))
        task.report.notes.append(f"{record.module}: not compared: an earlier version built it, which noted no file")
        return
    try:
        noted = noted_contents(record)
    except StackyardError as error:
        yield Fault(paths.files, "changed", error.message.removeprefix(f"{paths.files} "))
        return
    known_tree = tree if record.payload.has_stubs else known(tree, noted)
    yield from _with_packages(record, task.rights.faults(paths.root, known_tree, _is_sealed))
    if record.payload.has_stubs:
        yield from image.stub_faults(record, noted, tree)
        noted, tree = seen_of(record, noted), seen(record)
    find = Originals(record, task.yard).find
    pairs = differences(paths.root, tree, noted, task.chosen(record, noted), task.reader.digest, find)
    yield from _with_packages(record, pairs)


def _is_sealed(name: str) -> bool:
    return name.startswith(PARTS[0]) or not name.endswith("/")


def _with_packages(record: BuildRecord, pairs: Iterator[tuple[str, Fault]]) -> Iterator[Fault]:
    owners = Owners(Path(record.prefix))
    return (replace(fault, package=owners.of(name)) for name, fault in once(pairs))
