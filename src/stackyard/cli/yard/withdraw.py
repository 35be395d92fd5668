"""``stackyard withdraw``: hide a revision from users."""

from __future__ import annotations

import click

from stackyard.cli.catalogued import catalogued
from stackyard.cli.context import Context
from stackyard.cli.help import verb
from stackyard.cli.yard.steps import publish_step
from stackyard.yard.api import find_revision


@verb(
    ("hide a revision; its short names load the next best one", "stackyard withdraw pytorch/2.13-py311-2"),
    ("show it again", "stackyard withdraw pytorch/2.13-py311-2 --undo"),
)
@click.argument("rev", metavar="REV")
@click.option("--undo", is_flag=True, help="Show it again, with the short names that it then gets.")
@click.option("--dry-run", is_flag=True, help="Print what would be published; change nothing.")
@click.option("--json", "as_json", is_flag=True, help="Print the new generation as JSON.")
@catalogued
def command(context: Context, rev: str, undo: bool, dry_run: bool, as_json: bool) -> None:
    """Hide REV: no alias and no default load it. It still loads by its full name, and its files stay.

    It comes back with --undo, with `stackyard default REV`, or when its file is deployed again. `stackyard remove REV`
    removes the files.
    """
    from stackyard.deploy.api import withdraw

    yard = context.yard()
    module = find_revision(yard, rev).module
    nothing = f"{module} is {'not ' if undo else 'already '}withdrawn"
    back = "" if undo else f"withdraw {module} --undo"
    publish_step(context, withdraw(yard, module, undo=undo), nothing, back, dry_run=dry_run, as_json=as_json)
