"""``stackyard rollback``: publishes the content of an earlier generation again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict

import click

from stackyard.cli.catalogued import catalogued
from stackyard.cli.context import Context
from stackyard.cli.help import verb
from stackyard.cli.output import echo, show_json, show_notice
from stackyard.cli.yard.changes import show_changes
from stackyard.cli.yard.steps import publish, show_undo
from stackyard.yard.api import Entry, StepBase, compare_generations, current_manifest, find_revision


@verb(
    ("undo the last deploy", "stackyard rollback"),
    ("make an older revision the newest of its stack", "stackyard rollback pytorch/2.12-1"),
)
@click.argument("to", required=False, metavar="[GENERATION|REV]")
@click.option("--without-missing", is_flag=True, help="Publish the rest where the files of a revision are missing.")
@click.option("--dry-run", is_flag=True, help="Print what would be published; change nothing.")
@click.option("--json", "as_json", is_flag=True, help="Print the new generation as JSON.")
@catalogued
def command(context: Context, to: str | None, without_missing: bool, dry_run: bool, as_json: bool) -> None:
    """Go back to the previous generation, to GENERATION, or to REV as the newest revision of its stack.

    Nothing is deleted. Revisions published since are withdrawn: hidden from users, but still loadable by full name.
    What was verified since stays verified. `stackyard history` lists the generations.
    """
    from stackyard.deploy.api import only_from, rollback_target, step_to
    from stackyard.upkeep.api import despite_full

    yard = context.yard()
    entry = find_revision(yard, to) if to is not None and not to.isdecimal() else None
    number = int(to) if to is not None and to.isdecimal() else None
    present = current_manifest(yard)
    before = present.entries if present else ()
    step = step_to(yard, entry or rollback_target(yard, number), whole=not without_missing)
    planned = step(StepBase(present, 0))  # errors come before anything is written
    if dry_run:
        if as_json:
            show_json({"dry_run": True, "reason": planned.reason, "entries": [asdict(e) for e in planned.entries]})
        else:
            _show(f"would publish: {planned.reason}", planned.entries, before)
        return
    condition = only_from(present.number if present else 0, step)
    now = despite_full(yard, lambda: publish(context, yard, condition), show_notice)
    if as_json:
        show_json(now.to_json())
    else:
        _show(f"generation {now.number}: {now.reason}", now.entries, before)
        show_undo(context, f"rollback {present.number}" if present else "")


def _show(title: str, now: Sequence[Entry], before: Sequence[Entry]) -> None:
    echo(title)
    show_changes(compare_generations(before, now))
