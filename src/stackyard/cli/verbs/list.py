"""``stackyard list``: what is published."""

from __future__ import annotations

import click

from stackyard.cli.context import Context
from stackyard.cli.output import show_json, show_table
from stackyard.yard.catalogue import listing

COLUMNS = ("module", "", "state", "created", "short names")


@click.command(short_help="what is published")
@click.option("--all", "everything", is_flag=True, help="Also withdrawn revisions and those that were never published.")
@click.option("--json", "as_json", is_flag=True, help="Print a list of objects.")
@click.pass_obj
def command(context: Context, everything: bool, as_json: bool) -> None:
    """List the published revisions of the yard and of the site's."""
    yard = context.yard()
    rows = listing(yard, everything=everything)
    if as_json:
        show_json(rows)
        return
    if not rows:
        click.echo(f"nothing is published in {yard.root}; `stackyard deploy FILE` publishes")
        return
    show_table(
        [
            {
                "module": row["module"],
                "": "(D)" if row["default"] else "",
                "state": row["state"],
                "created": row["created"][:16].replace("T", " "),
                "short names": " ".join(row["aliases"]),
            }
            for row in rows
        ],
        COLUMNS,
    )
    if any(row["default"] for row in rows):
        click.echo("(D): what the bare name loads")
