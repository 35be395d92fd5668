"""``stackyard default``: sets the revision that the bare name of a stack loads."""

from __future__ import annotations

import click

from stackyard.cli.catalogued import catalogued
from stackyard.cli.context import Context
from stackyard.cli.help import verb
from stackyard.cli.yard.steps import publish_step
from stackyard.yard.api import find_revision


@verb(
    ("`module load pytorch` loads 2.12 until you say otherwise", "stackyard default pytorch/2.12"),
    ("it loads the highest version again", "stackyard default pytorch --undo"),
)
@click.argument("rev", metavar="REV")
@click.option("--undo", is_flag=True, help="The stack's name loads its highest version again.")
@click.option("--dry-run", is_flag=True, help="Print what would be published; change nothing.")
@click.option("--json", "as_json", is_flag=True, help="Print the new generation as JSON.")
@catalogued
def command(context: Context, rev: str, undo: bool, dry_run: bool, as_json: bool) -> None:
    """Make REV what the name of its stack loads, whichever version is the highest; deploys leave it so.

    A withdrawn revision comes back with it. Other short names, such as pytorch/2.13, stay as they are;
    `stackyard rollback REV` moves those.
    """
    from stackyard.deploy.api import make_default

    yard = context.yard()
    entry = find_revision(yard, rev)
    nothing = f"{entry.module} is the default already" if not undo else f"no default of {entry.stack} is set"
    back = "" if undo else f"default {entry.stack} --undo"
    publish_step(context, make_default(yard, entry.module, undo=undo), nothing, back, dry_run=dry_run, as_json=as_json)
