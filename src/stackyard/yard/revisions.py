"""Which revisions are on disk. A folder counts as built when its record is there; everything else is a leftover."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from stackyard.yard.layout import RevisionPaths, Yard
from stackyard.yard.record import BuildRecord, read_record


def folders(yard: Yard, stack: str | None = None) -> Iterator[RevisionPaths]:
    """The folders of all revisions of a stack, or of every stack, built or not, in the order of their names."""
    roots = [yard.stack(stack)] if stack else sorted(yard.stacks.glob("*"))
    for root in roots:
        if root.is_dir():
            yield from (RevisionPaths(child) for child in sorted(root.iterdir()) if child.is_dir())


def built(yard: Yard, stack: str | None = None) -> list[BuildRecord]:
    """The records of everything that was built completely."""
    return [read_record(paths.record) for paths in folders(yard, stack) if paths.record.exists()]


def find(yard: Yard, module: str) -> BuildRecord | None:
    """The record of a revision by its full module name, in this yard or in its parents."""
    stack, _, version = module.partition("/")
    for each in yard.lineage():
        record = each.revision(stack, version).record if version else Path()
        if version and record.exists():
            return read_record(record)
    return None
