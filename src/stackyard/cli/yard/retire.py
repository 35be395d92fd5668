"""``stackyard retire``: warns users of a revision from a date on, before it is hidden and removed."""

from __future__ import annotations

from datetime import date

import click

from stackyard.cli.catalogued import catalogued
from stackyard.cli.context import Context
from stackyard.cli.help import verb
from stackyard.cli.yard.steps import publish_step
from stackyard.core.errors import InputError
from stackyard.yard.api import find_revision


class _Day(click.ParamType[date]):
    name = "DATE"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> date:
        """A date of the calendar."""
        try:
            return date.fromisoformat(str(value))
        except ValueError:
            self.fail(f"not a date: {value!r} (write 2027-03-01)", param, ctx)


@verb(
    ("warn from 1 March on, and say what to use", "stackyard retire pytorch/2.12 --on 2027-03-01 --use pytorch/2.13"),
    ("keep it after all", "stackyard retire pytorch/2.12 --undo"),
)
@click.argument("rev", metavar="REV")
@click.option("--on", "on", type=_Day(), metavar="DATE", help="The first day of the warning, e.g. 2027-03-01.")
@click.option("--use", "use", default="", metavar="NEW", help="The module to use instead, which the warning names.")
@click.option("--undo", is_flag=True, help="It is not retired after all.")
@click.option("--dry-run", is_flag=True, help="Print what would be published; change nothing.")
@click.option("--json", "as_json", is_flag=True, help="Print the new generation as JSON.")
@catalogued
def command(context: Context, rev: str, on: date | None, use: str, undo: bool, dry_run: bool, as_json: bool) -> None:
    """Announce the end of REV: loading it warns from DATE on. The modulefile itself compares the date; no program runs.

    Later `stackyard gc` hides it, and then removes its files if they are unused: after as many days as `removal:`
    of the site's file says.
    """
    from stackyard.deploy.api import retire

    if undo == (on is not None):
        raise InputError("when does it retire?", hint="add --on DATE, or --undo")
    yard = context.yard()
    module = find_revision(yard, rev).module
    successor = _successor(context, use, module)
    nothing = f"{module} is not retired" if undo else f"{module} is retired then already"
    back = "" if undo else f"retire {module} --undo"
    publish_step(context, retire(yard, module, on, successor), nothing, back, dry_run=dry_run, as_json=as_json)


def _successor(context: Context, use: str, module: str) -> str:
    """The name as typed, which must load another revision of this yard or its parents."""
    if use and find_revision(context.yard(), use).module == module:
        raise InputError(f"{use} loads {module} itself", hint="name another module with --use")
    return use
