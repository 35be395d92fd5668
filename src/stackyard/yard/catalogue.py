"""Listing revisions and resolving names. Standard library only: the read commands start quickly."""

from __future__ import annotations

import difflib
from typing import Any

from stackyard.errors import InputError
from stackyard.yard import generations, revisions
from stackyard.yard.layout import RevisionPaths, Yard
from stackyard.yard.record import BuildRecord, Entry, read_record


def listing(yard: Yard, *, everything: bool = False) -> list[dict[str, Any]]:
    """The revisions of a yard and of its parents as plain objects; `everything` adds withdrawn and unpublished."""
    rows: list[dict[str, Any]] = []
    for each in yard.lineage():
        manifest = generations.current(each)
        entries = manifest.entries if manifest else ()
        rows += [row(entry, each) for entry in entries if everything or entry.state != "withdrawn"]
        if everything:
            shown = {entry.module for entry in entries}
            rows += [_built_row(r, each) for r in revisions.built(each) if r.module not in shown]
    return rows


def resolve(yard: Yard, name: str) -> Entry:
    """The revision of a name: ``pytorch``, ``pytorch/2.13`` or a full module name, which may be built and unpublished.

    Raises:
        InputError: no such revision; the hint shows similar names.
    """
    names: set[str] = set()
    for each in yard.lineage():
        manifest = generations.current(each)
        for entry in manifest.entries if manifest else ():
            mine = {entry.module, *(f"{entry.stack}/{alias}" for alias in entry.aliases)}
            if entry.default:
                mine.add(entry.stack)
            if name in mine:
                return entry
            names |= mine
    record = revisions.find(yard, name)
    if record is not None:
        return entry_of(record)
    near = difflib.get_close_matches(name, names, n=3, cutoff=0.4)
    hint = f"did you mean {' or '.join(near)}?" if near else "list the published revisions with `stackyard list`"
    raise InputError(f"no such revision in {yard.root}: {name}", hint=hint)


def record_of(yard: Yard, name: str) -> BuildRecord:
    """The record of the revision of a name."""
    return read_record(RevisionPaths.of(resolve(yard, name).folder).record)


def entry_of(record: BuildRecord) -> Entry:
    """A built, unpublished revision as an entry of state ``built``."""
    return Entry(
        record.stack,
        record.version,
        record.variant,
        record.revision,
        record.module,
        record.path,
        record.created,
        state="built",
    )


def row(entry: Entry, yard: Yard) -> dict[str, Any]:
    """A revision as `list` and `show` print it."""
    return {
        "module": entry.module,
        "stack": entry.stack,
        "version": entry.version,
        "variant": entry.variant,
        "revision": entry.revision,
        "default": entry.default,
        "state": entry.state,
        "path": entry.folder,
        "created": entry.created,
        "aliases": [f"{entry.stack}/{alias}" for alias in entry.aliases],
        "deprecated": entry.deprecated,
        "yard": str(yard.root),
    }


def _built_row(record: BuildRecord, yard: Yard) -> dict[str, Any]:
    return row(entry_of(record), yard)
