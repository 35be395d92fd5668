"""``stackyard rebase``: an extension on the newest revision of its base."""

from __future__ import annotations

import click

from stackyard.cli.catalogued import catalogued
from stackyard.cli.context import Context
from stackyard.cli.help import verb
from stackyard.cli.output import echo, show_json
from stackyard.core.errors import StackyardError
from stackyard.yard.api import Yard, find_revision, record_of


@verb(
    ("what would change", "stackyard rebase mine --dry-run"),
    ("another base than the newest", "stackyard rebase mine --on pytorch/2.13-py312"),
)
@click.argument("name", required=False, metavar="[NAME]")
@click.option("--on", metavar="REV", help="The new base (default: what took the place of the present one).")
@click.option("--accept-licence", "accept", multiple=True, metavar="NAME", help="Accept a licence under your name.")
@click.option("--dry-run", is_flag=True, help="Solve and print what would change; write nothing.")
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
@catalogued
def command(
    context: Context, name: str | None, on: str | None, accept: tuple[str, ...], dry_run: bool, as_json: bool
) -> None:
    """Solve the layer of an extension on another base, verify it, and make it what its name loads.

    NAME is the loaded one by default. The former revision stays, and its full name loads it.
    """
    from stackyard.cli.extensions.common import DeployOptions, carry_out
    from stackyard.upkeep.api import chosen_extension, on_base

    yard = context.yard()
    name = chosen_extension(yard, name)
    target = find_revision(yard, on).module if on else _newer(yard, name)
    if not target:
        if as_json:
            show_json({"name": name, "revisions": []})
        else:
            echo(f"{name} is on the newest revision of its base")
        return
    carry_out(context, name, lambda files: on_base(files, target), DeployOptions(dry_run, as_json, accept))


def _newer(yard: Yard, name: str) -> str:
    """The replacement of an extension's base; empty: none.

    Raises:
        StackyardError: that cannot be determined; or it has no base, or its base was removed without a replacement.
    """
    from stackyard.upkeep.api import base_standing

    record = record_of(yard, name)
    if record.base is None:
        raise StackyardError(f"{record.module} has no base: it is complete in itself", hint="use `stackyard update`")
    status = base_standing(record.base, yard)
    if status.newer is not None:
        return status.newer.module
    if status.problem:
        raise StackyardError(status.problem, hint="name another base: stackyard rebase --on REV")
    return ""
