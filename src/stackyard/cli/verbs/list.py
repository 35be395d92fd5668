"""``stackyard list``: the published revisions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import click

from stackyard.cli.context import Context
from stackyard.cli.help import Verb
from stackyard.cli.output import human_bytes, show_json, show_table
from stackyard.yard.catalogue import listing, size_of

COLUMNS = ("module", "", "created", "short names", "state")
SIZES = ("size", "files")
BAD = ("withdrawn", "failed", "missing", "damaged")
COLOURS = {**dict.fromkeys(("unverified", "built", "held"), "yellow"), **dict.fromkeys(BAD, "red")}
WHY = {
    "failed": "failed its last verification:",
    "held": "was not published because a required check was skipped:",
    "missing": "is missing:",
    "damaged": "has a damaged record:",
}
"""What leads to the place where the reason for a state is, by state."""

EXAMPLES = (
    ("the revisions that users can load", "stackyard list"),
    ("how many bytes and files each takes on disk", "stackyard list --size"),
    ("all revisions with their paths, for a program", "stackyard list --all --json"),
)


@click.command(cls=Verb, short_help="published revisions", examples=EXAMPLES)
@click.option("--all", "everything", is_flag=True, help="Include withdrawn, missing and never published revisions.")
@click.option("--size", is_flag=True, help="Add bytes and files on disk, which reads every record.")
@click.option("--json", "as_json", is_flag=True, help="Print a list of objects.")
@click.pass_obj
def command(context: Context, everything: bool, size: bool, as_json: bool) -> None:
    """List the published revisions of this yard and of the site's yard."""
    yard = context.yard()
    rows = listing(yard, everything=everything)
    if size:
        rows = [{**row, "size": size_of(row)} for row in rows]
    if as_json:
        show_json(rows)
        return
    if not rows:
        click.echo(f"no published revisions in {yard.root}; publish one: stackyard deploy FILE")
        return
    yards = list(dict.fromkeys(row["yard"] for row in rows))
    for number, root in enumerate(yards):
        if len(yards) > 1:
            click.echo(("\n" if number else "") + f"in {root}:")
        show_table([_cells(row) for row in rows if row["yard"] == root], COLUMNS + SIZES * size)
    if any(row["default"] for row in rows):
        click.echo("(D): default")
    for row in rows:
        if row["state"] in WHY:
            click.echo(f"{row['module']} {WHY[row['state']]} {row['report_file'] or row['path']}")


def _cells(row: Mapping[str, Any]) -> dict[str, str]:
    unpublished = ", not published" if row["state"] == "failed" and not row["published"] else ""
    state = click.style(row["state"] + unpublished, fg=COLOURS.get(row["state"]))
    return {
        "module": row["module"],
        "": "(D)" if row["default"] else "",
        "state": state + (f", deprecated {row['deprecated']}" if row["deprecated"] else ""),
        "created": row["created"][:16].replace("T", " "),
        "short names": " ".join(alias.partition("/")[2] for alias in row["aliases"]),
        **_size(row.get("size") or {}),
    }


def _size(size: Mapping[str, Any]) -> dict[str, str]:
    if not size:
        return dict.fromkeys(SIZES, "")
    inside = f" ({size['entries']:,} inside)" if size["form"] != "prefix" else ""
    return {"size": human_bytes(size["bytes"]), "files": f"{size['files']:,}{inside}"}
