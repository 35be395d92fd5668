"""``stackyard rollback``: back to what was published before."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict

import click

from stackyard.cli.context import Context
from stackyard.cli.help import Verb
from stackyard.cli.output import show_json, show_notice
from stackyard.yard import catalogue, generations
from stackyard.yard.record import Entry

EXAMPLES = (
    ("undo the last deploy", "stackyard rollback"),
    ("make an older revision the newest of its stack", "stackyard rollback pytorch/2.12-1"),
)


@click.command(cls=Verb, short_help="go back to the previous generation", examples=EXAMPLES)
@click.argument("to", required=False, metavar="[GENERATION|REV]")
@click.option("--dry-run", is_flag=True, help="Print what would be published; change nothing.")
@click.option("--json", "as_json", is_flag=True, help="Print the new generation as JSON.")
@click.pass_obj
def command(context: Context, to: str | None, dry_run: bool, as_json: bool) -> None:
    """Go back to the previous generation, to GENERATION, or to REV as the newest revision of its stack.

    Nothing is deleted. Revisions published since are withdrawn: hidden from users, but still loadable by full name.
    """
    from stackyard.publish import rollback
    from stackyard.publish.writing import writing

    yard = context.yard()
    entry = catalogue.resolve(yard, to) if to is not None and not to.isdigit() else None
    number = int(to) if to is not None and to.isdigit() else None

    def step() -> rollback.Step:
        if entry is not None:
            return rollback.back_to_revision(yard, entry)
        return rollback.back_to(yard, rollback.target(yard, number))

    present = generations.current(yard)
    before = present.entries if present else ()
    if dry_run:
        planned = step()
        if as_json:
            show_json({"dry_run": True, "reason": planned.reason, "entries": [asdict(e) for e in planned.entries]})
        else:
            _show(f"would publish: {planned.reason}", planned.entries, before)
        return
    step()  # errors come before anything is written
    site = context.site()
    with writing(yard, site, lambda who: show_notice(f"waiting for another writer: {who}")):
        now = rollback.publish(yard, site, step())
    if as_json:
        show_json(now.to_json())
    else:
        _show(f"generation {now.number}: {now.reason}", now.entries, before)


def _show(title: str, now: Sequence[Entry], before: Sequence[Entry]) -> None:
    visible = {e.module for e in now if e.state != "withdrawn"}
    click.echo(title)
    for entry in before:
        if entry.state != "withdrawn" and entry.module not in visible:
            click.echo(f"    withdrawn: {entry.module} (hidden; loads by its full name)")
    defaults = [e.module for e in now if e.default]
    click.echo(f"    default: {', '.join(defaults) or 'none'}")
