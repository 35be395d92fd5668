"""Lists revisions and resolves names. Standard library only: the read commands start quickly."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stackyard.core.errors import InputError, MissingError, StackyardError
from stackyard.host.files import at
from stackyard.yard import disk, formats
from stackyard.yard.generation import generations
from stackyard.yard.layout import Yard, place_of
from stackyard.yard.others import moved
from stackyard.yard.revision import revisions
from stackyard.yard.revision.directories import RevisionPaths
from stackyard.yard.revision.manifest import Entry, State

if TYPE_CHECKING:
    from stackyard.yard.revision.record import BuildRecord


def listing(yard: Yard, *, everything: bool = False) -> list[dict[str, Any]]:
    """The revisions of a yard and of its parents as plain objects.

    Args:
        everything: include withdrawn and unpublished revisions, and those missing since an earlier generation.
    """
    rows: list[dict[str, Any]] = []
    for ancestor in yard.lineage():
        entries = generations.entries(ancestor)
        gone = _deleted(ancestor, entries) if everything else ()
        shown = (replace(e, state="missing") if e.module in gone else e for e in entries if everything or e.is_visible)
        rows += [row(entry, ancestor) for entry in shown]
        if everything:
            listed = {entry.module for entry in entries}
            unlisted = (_unlisted(paths) for paths in revisions.directories(ancestor) if disk.is_there(paths.record))
            rows += [row(entry, ancestor, published=False) for entry in unlisted if entry.module not in listed]
    return rows


def _deleted(yard: Yard, entries: Iterable[Entry]) -> set[str]:
    """The removed revisions whose files are neither in the trash nor in their place: they cannot be restored."""
    from stackyard.yard.write import trash

    removed = [entry for entry in entries if entry.state == "removed"]
    there = trash.removed(yard) if removed else {}
    return {e.module for e in removed if place_of(e.folder) not in there and not disk.is_there(Path(e.folder))}


def resolve(yard: Yard, name: str) -> Entry:
    """The revision of a name: ``pytorch``, ``pytorch/2.13`` or a full module name, which may be built and unpublished.

    ``pytorch@py312-gpu`` and ``pytorch/2.13@py312-gpu`` name the newest revision of a variant.

    Raises:
        InputError: no such revision; the hint shows similar names, or the existing variants.
    """
    if "@" in name:
        return _of_variant(yard, name)
    names: set[str] = set()
    for ancestor in yard.lineage():
        for entry in generations.entries(ancestor):
            mine = {entry.module, *(f"{entry.stack}/{alias}" for alias in entry.aliases)}
            if entry.default:
                mine.add(entry.stack)
            if name in mine:
                return entry
            names |= mine
    record = revisions.find(yard, name)
    if record is not None:
        return entry_of(record)
    from stackyard.core.hints import did_you_mean  # late: only an error needs them
    from stackyard.core.quoting import cut

    gone = [entry for ancestor in yard.lineage() for entry in generations.entries(ancestor)
            if entry.state == "removed" and name in (entry.stack, f"{entry.stack}/{entry.version}")]  # fmt: skip
    if gone:
        hint = f"bring it back: `stackyard remove {gone[-1].module} --undo`"
        raise InputError(f"{cut(name)} was removed from {yard.root}", hint=hint)

    hint = did_you_mean(name, names, "list the published revisions with `stackyard list`", count=3, cutoff=0.4)
    raise InputError(f"no such revision in {yard.root}: {cut(name)}", hint=hint)


def _of_variant(yard: Yard, name: str) -> Entry:
    """The newest visible revision of ``stack@variant`` or ``stack/version@variant``, in this yard, else in a parent."""
    stack, _, variant = name.partition("@")
    stack, _, version = stack.partition("/")
    there: dict[str, None] = {}
    for ancestor in yard.lineage():
        entries = [e for e in generations.entries(ancestor) if e.stack == stack and version in ("", e.version)]
        there |= dict.fromkeys(e.variant for e in entries if e.is_visible and e.variant)
        matches = [e for e in entries if e.is_visible and e.variant == variant]
        if matches:  # their order is that of the versions
            return max(enumerate(matches), key=lambda pair: (not pair[1].superseded, pair[0]))[1]
    hint = f"{stack} has {', '.join(there)}" if there else "list the published revisions with `stackyard list`"
    raise InputError(f"no such variant in {yard.root}: {name}", hint=hint)


def record_of(yard: Yard, name: str) -> BuildRecord:
    """The record of a revision, by any of its names.

    Raises:
        InputError: no such revision.
        MissingError: its directory was removed.
        StackyardError: the record cannot be read.
    """
    entry = resolve(yard, name)
    if not disk.is_there(Path(entry.folder)):
        back = f"bring it back: `stackyard remove {entry.module} --undo`"
        hint = back if entry.state == "removed" else "restore it from a copy, or deploy its file again"
        raise MissingError(f"{entry.folder} not found: {entry.module} was removed", hint=hint)
    return moved.located(revisions.read(RevisionPaths.of(entry.folder).record), entry)


def loaded(yard: Yard, environ: Mapping[str, str]) -> list[Entry]:
    """The revisions of this yard and its parents whose modules are loaded in a shell, the last one first.

    The modulefiles are read from the module system's variables, so this works for every revision ever published.
    """
    names = [name for name in environ.get("LOADEDMODULES", "").split(":") if name]
    files = [file for file in environ.get("_LMFILES_", "").split(":") if file]
    if not names:
        return []
    known = [entry for ancestor in yard.lineage() for entry in generations.entries(ancestor)]
    entries: list[Entry] = []
    for name, file in zip(names, files, strict=False):
        entries += [entry for entry in known if entry.module == name and _is_of(entry, file)]
    return entries[::-1]


def _is_of(entry: Entry, file: str) -> bool:
    """Whether a modulefile is in the yard of a revision."""
    root = Path(entry.folder).parents[2]
    return Path(os.path.realpath(file)).is_relative_to(os.path.realpath(root / "generations"))


def size(record: BuildRecord) -> dict[str, Any]:
    """The size of a revision on disk, from its record: bytes, files (inodes), and the number of entries inside."""
    return record.payload.size(record.disk)


def size_of(row: Mapping[str, Any]) -> dict[str, Any]:
    """The size of a row of `listing`; empty if its record cannot be read."""
    try:
        record = revisions.readable(RevisionPaths.of(row["path"]))
    except StackyardError:
        return {}
    return size(record) if record else {}


def _unlisted(paths: RevisionPaths) -> Entry:
    """The entry for a directory with a record; if that cannot be read, only what the path tells."""
    try:
        return entry_of(revisions.read(paths.record))
    except StackyardError:
        stack = paths.root.parent.name
        return Entry(stack, "", "", 0, f"{stack}/{paths.root.name}", str(paths.root), "", state="built")


def entry_of(record: BuildRecord) -> Entry:
    """The entry of a built, unpublished revision: its state is from its verification, else built."""
    verdict = _verdict(RevisionPaths.of(record.path))
    states: dict[str, State] = {"failed": "failed", "unverified": "held"}
    return Entry(
        record.stack,
        record.version,
        record.variant,
        record.revision,
        record.module,
        record.path,
        record.created,
        state=states.get(verdict, "built"),
    )


def is_listed(yard: Yard, entry: Entry) -> bool:
    """Whether the current generation of this yard lists a revision."""
    return entry.module in {mine.module for mine in generations.entries(yard)}


def row(entry: Entry, yard: Yard, *, published: bool = True) -> dict[str, Any]:
    """A revision as an object for `list` and `show`.

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
        "state": "removed" if entry.state == "removed" else _condition(paths) or entry.state,
        "published": published and entry.is_visible,
        "path": entry.folder,
        "created": entry.created,
        "aliases": [f"{entry.stack}/{alias}" for alias in entry.aliases],
        "deprecated": entry.deprecated,
        "superseded": entry.superseded,
        "retired": entry.retired,
        "successor": entry.successor,
        "report_file": str(paths.report) if entry.state in ("failed", "held") else "",
        "adopted": _adopted(paths),
        "yard": str(yard.root),
    }


def _adopted(paths: RevisionPaths) -> str:
    """The prefix of an adopted revision; empty for one that was built, or whose record cannot be read."""
    try:
        record = revisions.readable(paths) if disk.is_there(paths.adopted) else None
    except (OSError, StackyardError):
        return ""
    return record.origin.adopted_from if record else ""


def _condition(paths: RevisionPaths) -> str:
    """The problem of the record, as far as this account can see."""
    try:
        return revisions.condition(paths)
    except OSError:
        return ""


def _verdict(paths: RevisionPaths) -> str:
    """The state of the last report; empty without a readable one."""
    try:
        return str(formats.content(at.read_regular(paths.report))["state"])
    except (OSError, ValueError, KeyError, TypeError):
        return ""
