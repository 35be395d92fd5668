"""``stackyard remove``: remove unused revisions."""

from __future__ import annotations

import shlex
from typing import Any

import click

from stackyard.cli.catalogued import catalogued
from stackyard.cli.context import Context
from stackyard.cli.help import verb
from stackyard.cli.output import echo, show_json, show_notice
from stackyard.cli.yard.steps import show_undo
from stackyard.core.errors import InputError
from stackyard.core.findings import human_bytes
from stackyard.yard.api import Entry, RevisionPaths, readable_record


@verb(
    ("what would go, and how much room that frees", "stackyard remove --dry-run pytorch/2.11-py310-1"),
    (
        "although the yard of anna cannot be looked into, as root",
        "stackyard remove tool/1.0-py311-1 --despite anna",
    ),
    ("bring it back, within the grace time", "stackyard remove pytorch/2.11-py310-1 --undo"),
)
@click.argument("revs", metavar="REV...", nargs=-1, required=True)
@click.option("--undo", is_flag=True, help="Bring back what was removed.")
@click.option(
    "--despite", multiple=True, metavar="ACCOUNT", help="Although this account's notes and yards may use it; root only."
)
@click.option("--dry-run", is_flag=True, help="Print what would be removed; change nothing.")
@click.option("--json", "as_json", is_flag=True, help="Print what was removed and what is kept as JSON.")
@catalogued
def command(
    context: Context, revs: tuple[str, ...], undo: bool, despite: tuple[str, ...], dry_run: bool, as_json: bool
) -> None:
    """Remove REV if it is unused: its files move to the trash, and loading its module says so.

    For some days (`removal: grace_days:` of the site) --undo brings it back; then `stackyard gc` deletes the files. A
    process or job that uses it, and an extension in another yard, keep it and are named; so does a yard that cannot be
    looked into, since it may have one. A shell that has loaded it unloads it cleanly for as long.
    """
    from stackyard.cli.yard import removing
    from stackyard.upkeep.api import kept_error, own_revision, remove_unused

    if undo and despite:
        raise InputError("--despite and --undo exclude each other", hint="bring it back with --undo alone")
    if undo:
        removing.undo(context, revs, dry_run=dry_run, as_json=as_json)
        return
    entries = [own_revision(context.yard(), rev) for rev in revs]
    if dry_run:
        _show_plan(context, entries, despite, as_json)
        return
    looker = removing.watch(context, tidy=True, despite=despite)
    outcome = remove_unused(looker, entries, show_notice, despite=despite, command=context.command)
    removed = [item.what.module for item in outcome.items if item.what.module]
    if as_json:
        show_json(removing.to_json(outcome))
    else:
        removing.show(outcome)
        show_undo(context, shlex.join(["remove", *removed, "--undo"]) if removed else "")
    if error := kept_error(outcome, revs):
        raise error


def _show_plan(context: Context, entries: list[Entry], despite: tuple[str, ...], as_json: bool) -> None:
    from stackyard.cli.yard import removing
    from stackyard.upkeep.api import removal_size

    seen = removing.watch(context, despite=despite).look()
    rows: list[dict[str, Any]] = []
    for entry in entries:
        size = removal_size(readable_record(RevisionPaths.of(entry.folder)))
        rows.append({"module": entry.module, "path": entry.folder, **dict(zip(removing.SIZES, size, strict=True)),
                     "used_by": list(seen.of(entry.folder))})  # fmt: skip
    if as_json:
        show_json({"dry_run": True, "revisions": rows, "unseen": seen.unseen})
        return
    for row in rows:
        used = f"  kept: used by {', '.join(row['used_by'])}" if row["used_by"] else ""
        echo(f"{row['module']}  {human_bytes(row['bytes'])} in {row['inodes']:,} files{used}")
        echo(f"    shared with the cache or other revisions: {human_bytes(row['shared_bytes'])}")
    for sentence in seen.unseen:
        show_notice(f"not looked at: {sentence}")
