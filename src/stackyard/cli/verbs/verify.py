"""``stackyard verify``: the checks of a revision, here and now."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import click

from stackyard.cli.context import Context
from stackyard.cli.output import show_json
from stackyard.errors import InputError
from stackyard.yard import catalogue, generations
from stackyard.yard.layout import RevisionPaths, Yard
from stackyard.yard.record import Entry, read_record


@click.command(short_help="run the checks of a revision again")
@click.argument("rev", required=False, metavar="[REV]")
@click.option("--json", "as_json", is_flag=True, help="Print the reports as JSON.")
@click.pass_obj
def command(context: Context, rev: str | None, as_json: bool) -> None:
    """Run the checks of REV, or of every published revision, on this machine.

    A revision that was published unverified becomes verified when all its checks pass here. Exit code 3: some did not.
    """
    from stackyard.cli.display import display
    from stackyard.publish.deploy import write_report
    from stackyard.verify import verify

    yard, site = context.yard(), context.site()
    manifest = generations.current(yard)
    entries = (
        [catalogue.resolve(yard, rev)]
        if rev
        else [e for e in manifest.entries if e.state != "withdrawn"]
        if manifest
        else []
    )
    if not entries:
        raise InputError(f"nothing is published in {yard.root}")
    reports = {}
    for entry in entries:
        paths = RevisionPaths.of(entry.folder)
        with display() as progress:
            progress.phase(entry.module, "verify")
            report = verify.verify(read_record(paths.record), _modules(yard, entry), site, progress=progress)
            progress.phase(entry.module, report.state)
        reports[entry.module] = report
        if os.access(paths.root, os.W_OK):
            write_report(paths, report)
    _promote(yard, context, [e for e in entries if e.state == "unverified" and reports[e.module].state == "passed"])
    if as_json:
        show_json({module: report.to_json() for module, report in reports.items()})
    else:
        for module, report in reports.items():
            click.echo(f"{click.style(module, bold=True)}: {report.summary()}")
            for check in report.problems():
                click.echo(f"    {check.line()}")
                if check.remedy:
                    click.echo(f"        {check.remedy}")
    if any(report.state != "passed" for report in reports.values()):
        raise click.exceptions.Exit(3)


def _modules(yard: Yard, entry: Entry) -> Path:
    """The modules tree of the yard that publishes this revision."""
    for each in yard.lineage():
        manifest = generations.current(each)
        if manifest and entry.module in {e.module for e in manifest.entries}:
            return each.modules
    raise InputError(
        f"{entry.module} is built but not published, so there is no modulefile to load it through",
        hint="deploy its file again: what is built already is verified and published, not built again",
    )


def _promote(yard: Yard, context: Context, entries: list[Entry]) -> None:
    """Publish a generation in which these revisions count as verified."""
    manifest = generations.current(yard)
    mine = {e.module for e in entries} & {e.module for e in manifest.entries} if manifest else set()
    if not mine or manifest is None:
        return
    from stackyard.publish.rollback import publish_entries
    from stackyard.yard.lease import lease

    with lease(yard):
        changed = [replace(e, state="published") if e.module in mine else e for e in manifest.entries]
        publish_entries(yard, context.site(), changed, f"verified {', '.join(sorted(mine))}", 0)
