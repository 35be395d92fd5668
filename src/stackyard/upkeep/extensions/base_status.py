"""The state of an extension's base: current, replaced by a newer revision of its site, or removed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from stackyard.core.errors import StackyardError
from stackyard.yard import disk
from stackyard.yard.generation import generations
from stackyard.yard.kinds.extension import BaseRevision
from stackyard.yard.layout import Yard
from stackyard.yard.others.same import is_same
from stackyard.yard.revision import revisions
from stackyard.yard.revision.directories import RevisionPaths
from stackyard.yard.revision.manifest import Entry


@dataclass(frozen=True)
class BaseStatus:
    """The state of an extension's base: the newer revision to rebase on, or why that cannot be determined."""

    newer: Entry | None = None
    problem: str = ""


def of_extension(paths: RevisionPaths, yard: Yard) -> BaseStatus | None:
    """The state of the base of a revision; None if it has no base, or its record cannot be read."""
    try:
        record = revisions.readable(paths)
    except StackyardError:
        return None
    return standing(record.base, yard) if record and record.base else None


def standing(base: BaseRevision, yard: Yard) -> BaseStatus:
    """Whether the base of an extension is older than the revision that its site publishes now, or removed.

    Args:
        yard: the extension's yard. If the site's yard was moved, the base is looked for in the present parent yard.
    """
    try:
        entries = generations.entries(Yard(Path(base.yard)))
        there = disk.is_there(base.paths.record)
    except (OSError, StackyardError) as error:
        return BaseStatus(problem=f"its base {base.id} cannot be read: {error}")
    newer = _newer(base, entries)
    moved = _moved(base, yard)
    if moved or there:
        return moved or BaseStatus(newer)
    return BaseStatus(newer, f"its base {base.id} was removed")


def _moved(base: BaseRevision, yard: Yard) -> BaseStatus | None:
    """The counterpart, in a present parent yard, of a base whose own yard is not a parent any more (it was moved)."""
    if any(_leads_to(ancestor, base.yard) for ancestor in yard.lineage()):
        return None
    for ancestor in yard.above():
        with suppress(OSError, StackyardError):
            entries = generations.entries(ancestor)
            same = next((e for e in entries if e.module == base.id and e.is_visible), None)
            entry = same or _newer(base, entries)
            if entry and disk.is_there(RevisionPaths.of(entry.folder).record):
                return BaseStatus(entry, f"its base {base.id} is in {ancestor.root} now, not in {base.yard}")
    return None


def _leads_to(yard: Yard, root: str) -> bool:
    try:
        return is_same(yard.root, Path(root))
    except OSError:
        return False


def _newer(base: BaseRevision, entries: tuple[Entry, ...]) -> Entry | None:
    """The entry that replaced a base: the default of its stack; for another variant, the one with the same version."""
    stack = base.id.partition("/")[0]
    own = next((e for e in entries if e.module == base.id), None)
    default = next((e for e in entries if e.stack == stack and e.default and e.is_visible), None)
    if default is None or default.module == base.id:
        return None
    fitting = next(_like(own, default, entries), default) if own else default
    later = own is None or not own.is_visible or _is_later(fitting, own)
    return fitting if fitting.module != base.id and later else None


def _is_later(one: Entry, other: Entry) -> bool:
    """Whether an entry of the same version and variant has a higher number: clocks of build hosts may differ."""
    if (one.version, one.variant) == (other.version, other.variant):
        return one.revision > other.revision
    return one.created > other.created


def _like(own: Entry, default: Entry, entries: tuple[Entry, ...]) -> Iterator[Entry]:
    """The newest revision of the base's variant in the default's version."""
    same = (e for e in entries if (e.stack, e.version, e.variant) == (default.stack, default.version, own.variant))
    yield from sorted((e for e in same if e.is_visible and not e.superseded), key=lambda e: -e.revision)
