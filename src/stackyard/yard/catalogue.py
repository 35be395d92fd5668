"""Listing revisions and resolving names. Standard library only: the read commands start quickly."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from stackyard.errors import InputError, MissingError, StackyardError
from stackyard.yard import disk, formats, generations, revisions
from stackyard.yard.layout import RevisionPaths, Yard
from stackyard.yard.record import BuildRecord, Entry, State, read_record


def listing(yard: Yard, *, everything: bool = False) -> list[dict[str, Any]]:
    """The revisions of a yard and of its parents as plain objects.

    Args:
        everything: also those that are withdrawn, are missing since an earlier generation, or were never published.
    """
    rows: list[dict[str, Any]] = []
    for each in yard.lineage():
        entries = generations.entries(each)
        rows += [row(entry, each) for entry in entries if everything or entry.is_visible]
        if everything:
            shown = {entry.module for entry in entries}
            unlisted = (_unlisted(paths) for paths in revisions.folders(each) if disk.is_there(paths.record))
            rows += [row(entry, each, published=False) for entry in unlisted if entry.module not in shown]
    return rows


def resolve(yard: Yard, name: str) -> Entry:
    """The revision of a name: ``pytorch``, ``pytorch/2.13`` or a full module name, which may be built and unpublished.

    Raises:
        InputError: no such revision; the hint shows similar names.
    """
    names: set[str] = set()
    for each in yard.lineage():
        for entry in generations.entries(each):
            mine = {entry.module, *(f"{entry.stack}/{alias}" for alias in entry.aliases)}
            if entry.default:
                mine.add(entry.stack)
            if name in mine:
                return entry
            names |= mine
    record = revisions.find(yard, name)
    if record is not None:
        return entry_of(record)
    import difflib  # late: only an error needs it

    near = difflib.get_close_matches(name, names, n=3, cutoff=0.4)
    hint = f"did you mean {' or '.join(near)}?" if near else "list the published revisions with `stackyard list`"
    raise InputError(f"no such revision in {yard.root}: {name}", hint=hint)


def record_of(yard: Yard, name: str) -> BuildRecord:
    """The record of the revision of a name.

    Raises:
        InputError: no such revision.
        MissingError: its directory was removed.
        StackyardError: the record cannot be read.
    """
    entry = resolve(yard, name)
    if not disk.is_there(Path(entry.folder)):
        hint = "restore it from a copy, or deploy its file again"
        raise MissingError(f"{entry.folder} not found: {entry.module} was removed", hint=hint)
    return read_record(RevisionPaths.of(entry.folder).record)


def size(record: BuildRecord) -> dict[str, Any]:
    """What a revision takes on disk, as its record has it: bytes and files (inodes) and how many entries are inside.

    An image is one file, whatever is in it; the stubs beside it are not counted. Of a prefix, what is shared with the
    cache is counted too.
    """
    form, use = record.form, record.disk
    if form.kind != "prefix":
        return {"form": form.kind, "bytes": form.bytes, "files": 1, "entries": form.entries}
    files = use.inodes_new + use.inodes_shared
    return {"form": form.kind, "bytes": use.bytes_new + use.bytes_shared, "files": files, "entries": files}


def size_of(row: Mapping[str, Any]) -> dict[str, Any]:
    """The size of a row of `listing`; empty where its record cannot be read."""
    try:
        found = revisions.readable(RevisionPaths.of(row["path"]))
    except StackyardError:
        return {}
    return size(found) if found else {}


def _unlisted(paths: RevisionPaths) -> Entry:
    """The entry of a directory with a record; of one that cannot be read only what its path tells."""
    try:
        return entry_of(read_record(paths.record))
    except StackyardError:
        stack = paths.root.parent.name
        return Entry(stack, "", "", 0, f"{stack}/{paths.root.name}", str(paths.root), "", state="built")


def entry_of(record: BuildRecord) -> Entry:
    """A built, unpublished revision as an entry: its state is what its verification found, built without one."""
    found = _verdict(RevisionPaths.of(record.path))
    states: dict[str, State] = {"failed": "failed", "unverified": "held"}
    return Entry(
        record.stack,
        record.version,
        record.variant,
        record.revision,
        record.module,
        record.path,
        record.created,
        state=states.get(found, "built"),
    )


def is_listed(yard: Yard, entry: Entry) -> bool:
    """Whether the current generation of this yard lists a revision."""
    return entry.module in {each.module for each in generations.entries(yard)}


def row(entry: Entry, yard: Yard, *, published: bool = True) -> dict[str, Any]:
    """A revision as `list` and `show` print it.

    Args:
        published: whether the current generation lists it.
    """
    paths = RevisionPaths.of(entry.folder)
    return {
        "module": entry.module,
        "stack": entry.stack,
        "version": entry.version,
        "variant": entry.variant,
        "revision": entry.revision,
        "default": entry.default,
        "state": _condition(paths) or entry.state,
        "published": published and entry.is_visible,
        "path": entry.folder,
        "created": entry.created,
        "aliases": [f"{entry.stack}/{alias}" for alias in entry.aliases],
        "deprecated": entry.deprecated,
        "superseded": entry.superseded,
        "report_file": str(paths.report) if entry.state in ("failed", "held") else "",
        "yard": str(yard.root),
    }


def _condition(paths: RevisionPaths) -> str:
    """What is wrong with the record, as far as this account can see."""
    try:
        return revisions.condition(paths)
    except OSError:
        return ""


def _verdict(paths: RevisionPaths) -> str:
    """The state of the last report; empty where there is none that can be read."""
    try:
        return str(formats.content(paths.report.read_bytes())["state"])
    except (OSError, ValueError, KeyError, TypeError):
        return ""
