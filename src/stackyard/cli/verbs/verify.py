"""``stackyard verify``: run the checks of a revision again."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from stackyard.cli.context import Context
from stackyard.cli.findings import show_checks
from stackyard.cli.help import Verb
from stackyard.cli.output import show_json, show_notice
from stackyard.errors import InputError
from stackyard.yard import catalogue, generations
from stackyard.yard.layout import RevisionPaths, Yard
from stackyard.yard.record import Entry, read_record

if TYPE_CHECKING:
    from stackyard.spec.sitemodels import Site
    from stackyard.verify.report import Report

EXAMPLES = (
    ("every published revision", "stackyard verify"),
    ("one revision, with the report as JSON", "stackyard verify pytorch/2.13 --json"),
)


@click.command(cls=Verb, short_help="run the checks of a revision again", examples=EXAMPLES)
@click.argument("rev", required=False, metavar="[REV]")
@click.option("--json", "as_json", is_flag=True, help="Print the reports as JSON.")
@click.pass_obj
def command(context: Context, rev: str | None, as_json: bool) -> None:
    """Run the checks of REV, or of every published revision, on this machine.

    A revision that was published unverified becomes verified if all its checks pass here. Exit status 3: a check failed
    or was skipped.
    """
    from stackyard.cli.display import display
    from stackyard.verify import verify

    yard, site = context.yard(), context.site()
    entries = _entries(yard, rev)
    trees = {entry.module: _modules(yard, entry) for entry in entries}
    reports: dict[str, Report] = {}
    with display() as progress:
        for entry in entries:
            record = read_record(RevisionPaths.of(entry.folder).record)
            report = verify.verify(record, trees[entry.module], site, progress=progress)
            progress.phase(entry.module, report.state, f"{len(report.checks)} checks")
            reports[entry.module] = report
    verified = _keep(yard, site, entries, reports)
    if as_json:
        show_json({module: report.to_json() for module, report in reports.items()})
    else:
        _show(reports, verified)
    if any(report.state != "passed" for report in reports.values()):
        raise click.exceptions.Exit(3)


def _entries(yard: Yard, rev: str | None) -> list[Entry]:
    if rev:
        return [catalogue.resolve(yard, rev)]
    manifest = generations.current(yard)
    entries = [e for e in manifest.entries if e.state != "withdrawn"] if manifest else []
    if not entries:
        raise InputError(
            f"nothing is published in {yard.root}", hint="publish a revision first: `stackyard deploy FILE`"
        )
    return entries


def _modules(yard: Yard, entry: Entry) -> Path:
    """The modulefile tree of the yard that publishes this revision."""
    for each in yard.lineage():
        manifest = generations.current(each)
        if manifest and entry.module in {e.module for e in manifest.entries}:
            return each.modules
    raise InputError(
        f"cannot verify {entry.module}: it is built but not published, so it has no modulefile",
        hint="deploy its file again: the built revision is verified and published, not rebuilt",
    )


def _keep(yard: Yard, site: Site, entries: Sequence[Entry], reports: Mapping[str, Report]) -> list[str]:
    """Write the reports of this yard's own revisions and mark passed ones as verified; returns these.

    Nothing is written if the yard is not writable.
    """
    from stackyard.publish.deploy import write_report
    from stackyard.publish.rollback import mark_verified
    from stackyard.publish.writing import writing

    own = [e for e in entries if Path(e.folder).is_relative_to(yard.root)]
    if not own or not os.access(yard.root, os.W_OK):
        return []
    with writing(yard, site, lambda who: show_notice(f"waiting for another writer: {who}")):
        for entry in own:
            write_report(RevisionPaths.of(entry.folder), reports[entry.module])
        return mark_verified(yard, site, [e.module for e in own if reports[e.module].state == "passed"])


def _show(reports: Mapping[str, Report], verified: Sequence[str]) -> None:
    for module, report in reports.items():
        click.echo(f"{click.style(module, bold=True)}: {report.summary()}")
        show_checks(report)
    for module in verified:
        click.echo(f"{module} is now verified")
