"""``stackyard rollback``: what users saw before, again."""

from __future__ import annotations

import click

from stackyard.cli.context import Context
from stackyard.cli.output import show_json, show_notice
from stackyard.yard import catalogue, generations
from stackyard.yard.record import Manifest


@click.command(short_help="go back to what users saw before")
@click.argument("to", required=False, metavar="[GENERATION|REV]")
@click.option("--dry-run", is_flag=True, help="Say what users would see; change nothing.")
@click.option("--json", "as_json", is_flag=True, help="Print the new generation as JSON.")
@click.pass_obj
def command(context: Context, to: str | None, dry_run: bool, as_json: bool) -> None:
    """Go back to the generation before the present one, to GENERATION, or to REV as its stack's newest revision.

    Nothing is deleted: revisions published since are withdrawn, that is hidden, and still load by their full names.
    """
    from stackyard.publish.rollback import rollback, target, withdraw_newer
    from stackyard.publish.writing import writing

    yard, site = context.yard(), context.site()
    entry = catalogue.resolve(yard, to) if to is not None and not to.isdigit() else None
    manifest = target(yard, int(to) if to is not None and to.isdigit() else None) if entry is None else None
    if dry_run:
        what = f"what users saw in generation {manifest.number}" if manifest else f"{entry.module if entry else ''}"
        click.echo(f"would go back to {what}")
        return
    with writing(yard, site, lambda who: show_notice(f"waiting for another writer: {who}")):
        if entry is not None:
            now = withdraw_newer(yard, site, entry)
        else:
            assert manifest is not None
            now = rollback(yard, site, manifest)
    _report(now, generations.history(yard)[-2], as_json)


def _report(now: Manifest, before: Manifest, as_json: bool) -> None:
    if as_json:
        show_json(now.to_json())
        return
    visible = {e.module for e in now.entries if e.state != "withdrawn"}
    gone = [e.module for e in before.entries if e.state != "withdrawn" and e.module not in visible]
    click.echo(f"generation {now.number}: {now.reason}")
    for name in gone:
        click.echo(f"    withdrawn: {name} (hidden; loads by its full name)")
    defaults = [e.module for e in now.entries if e.default]
    click.echo(f"    the bare names mean: {', '.join(defaults) or 'nothing'}")
