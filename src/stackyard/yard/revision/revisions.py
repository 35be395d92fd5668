"""Revisions on disk. A directory that has a record counts as built; any other is the rest of an interrupted build."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from stackyard.core.errors import StackyardError
from stackyard.host.files import at
from stackyard.yard import disk
from stackyard.yard.layout import Yard
from stackyard.yard.others.same import is_same
from stackyard.yard.revision.directories import RevisionPaths
from stackyard.yard.write import atomic

if TYPE_CHECKING:
    from stackyard.yard.revision.record import BuildRecord

Condition = Literal["", "missing", "damaged"]
"""What is wrong with the record of a revision; empty: nothing."""


def read(path: Path, top: Path | None = None) -> BuildRecord:
    """Read the record in a file. Arguments and errors as for `read_record`, which listings do without."""
    from stackyard.yard.revision.record import read_record

    return read_record(path, top)


def directories(yard: Yard, stack: str | None = None) -> Iterator[RevisionPaths]:
    """The directories of all revisions of a stack, or of every stack, built or not, sorted by name."""
    roots = [yard.stack(name) for name in ([stack] if stack else sorted(disk.names(yard.stacks)))]
    for root in roots:
        if disk.is_directory(root):
            yield from (RevisionPaths(child) for child in sorted(disk.entries(root)) if disk.is_directory(child))


def built(
    yard: Yard, stack: str | None = None, on_damage: Callable[[RevisionPaths, StackyardError], None] | None = None
) -> list[BuildRecord]:
    """The records of all revisions that are built.

    Args:
        on_damage: called with each revision whose record is damaged, and the reason; None: raise. File system errors
            are always raised.
    """
    records = []
    for paths in directories(yard, stack):
        try:
            records += [read(paths.record)] if disk.is_there(paths.record) else []
        except StackyardError as error:
            if on_damage is None or isinstance(error.__cause__, OSError):
                raise
            on_damage(paths, error)
    return records


def readable(paths: RevisionPaths) -> BuildRecord | None:
    """The record of a built revision, or its copy if damaged; None if both are, or it is not built.

    Raises:
        StackyardError: the file system failed, which says nothing about the record.
    """
    for path in (paths.record, paths.spare):
        try:
            return read(path, paths.top())
        except StackyardError as error:
            if isinstance(error.__cause__, disk.ABSENT):
                return None
            if isinstance(error.__cause__, OSError):
                raise
    return None


def is_in(yard: Yard, directory: str) -> bool:
    """Whether the directory of a revision is in this yard, with links in both paths resolved."""
    root = RevisionPaths.of(directory).yard
    return root == yard.root or (disk.is_directory(root) and is_same(root, yard.root))


def condition(paths: RevisionPaths) -> Condition:
    """Whether the record exists and is complete, judged by its beginning and end: quick enough for a list.

    Raises:
        OSError: that is unknown, e.g. the file system does not answer; it never counts as missing.
    """
    try:
        first, last = at.ends(paths.record, 2)
    except disk.ABSENT:
        return "missing"
    return "" if first.startswith(b"{") and last.rstrip().endswith(b"}") else "damaged"


def can_stay(paths: RevisionPaths) -> bool:
    """Whether the revision has no unrepairable file: otherwise the next deploy replaces it."""
    return not disk.is_there(paths.damaged)


def mark(record: BuildRecord, signed: str = "") -> None:
    """Write the record of a complete revision, as its last file: from now on it counts as built.

    A copy precedes it: the record is the only file of a revision that nothing else could restore.

    Args:
        signed: the exact bytes of the signed record: another version may format it differently.
    """
    paths = RevisionPaths.of(record.path)
    text = signed or atomic.json_text(record.to_json(), checked=True)
    atomic.write_text(paths.spare, text, top=paths.yard)
    atomic.fault_point("marker-before")
    atomic.write_text(paths.record, text, top=paths.yard)
    atomic.fault_point("marker-after")
    with suppress(OSError):
        disk.delete_tree(paths.building, paths.yard)


def find(yard: Yard, module: str) -> BuildRecord | None:
    """The record of a revision by its full module name, in this yard or in its parents."""
    stack, _, version = module.partition("/")
    records = (ancestor.revision(stack, version).record for ancestor in yard.lineage() if version)
    path = next((record for record in records if disk.is_there(record)), None)
    return read(path) if path else None


def latest(records: Collection[BuildRecord]) -> BuildRecord:
    """The revision built last: among those of one version and variant by number, since hosts' clocks differ."""
    last = max(records, key=lambda record: record.created)
    line = (record for record in records if (record.version, record.variant) == (last.version, last.variant))
    return max(line, key=lambda record: record.revision)
