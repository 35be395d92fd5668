"""``stackyard verify``: run the checks of a revision again."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from stackyard.cli.agreeing import unaccepted
from stackyard.cli.context import Context
from stackyard.cli.findings import show_checks
from stackyard.cli.help import Verb
from stackyard.cli.output import echo, show_json
from stackyard.cli.yard.repairs import repair
from stackyard.core.errors import InputError, StackyardError
from stackyard.core.progress import Progress
from stackyard.yard.api import Entry, RevisionPaths, State, Yard, current_entries, find_revision, read_record

if TYPE_CHECKING:
    from stackyard.inputs.api import Site
    from stackyard.verify.api import Report

EXAMPLES = (
    ("every published revision", "stackyard verify"),
    ("every byte, of the caches too", "stackyard verify --deep"),
    ("restore damaged files of a revision", "stackyard verify --repair pytorch/2.13"),
    ("one revision, with the report as JSON", "stackyard verify pytorch/2.13 --json"),
)


@click.command(cls=Verb, examples=EXAMPLES)
@click.argument("rev", required=False, metavar="[REV]")
@click.option("--deep", is_flag=True, help="Read every byte of every file; without REV of the caches too.")
@click.option("--repair", "mend", is_flag=True, help="First restore what is damaged from what is locked; then --deep.")
@click.option("--json", "as_json", is_flag=True, help="Print the reports as JSON.")
@click.pass_obj
def command(context: Context, rev: str | None, deep: bool, mend: bool, as_json: bool) -> None:
    """Run the checks of REV, or of every published revision and of the yard's own files, on this machine.

    The sizes and times of all files are compared with what was built, and the bytes of a sample; --deep reads them all.
    A revision that was published unverified becomes verified if all its checks pass here; one that fails is listed as
    failed until it passes. --repair replaces damaged files by the same bytes, and discards damaged entries of the
    caches. Where you have not accepted a licence, nothing of the revision is run: what needs that is skipped. Exit
    status 3: a check failed or was skipped, or the files of a revision are missing.
    """
    from stackyard.cli.display import display
    from stackyard.verify.api import site_checks

    yard, site, deep = context.yard(), context.site(), deep or mend
    site_checks(site)  # a mistake in them is reported once, and not as a check of each revision
    entries = _entries(yard, rev)
    trees = _modules(yard, entries)
    reports: dict[str, Report] = {}
    verified: dict[str, bool] = {}
    with display() as progress:
        if mend:
            repair(yard, site, entries, progress, (lambda: _rest(context, yard, site)) if rev is None else tuple)
        for entry in entries:
            report, verified[entry.module] = _verified(entry, trees[entry.module], yard, site, progress, deep)
            progress.phase(entry.module, report.state, report.tally())
            reports[entry.module] = report
    if rev is None:
        reports[str(yard.root)] = _of_yard(yard, deep)
    if as_json:
        show_json({module: report.to_json() for module, report in reports.items()})
    else:
        _show(reports)
    changed = _keep(context, yard, site, [e for e in entries if verified[e.module]], reports)
    if not as_json:
        _show_changed(reports, changed)
    if any(report.state != "passed" for report in reports.values()):
        raise click.exceptions.Exit(3)


def _verified(
    entry: Entry, modules: Path, yard: Yard, site: Site, progress: Progress, deep: bool
) -> tuple[Report, bool]:
    """The report of one revision, and whether it was verified; if not, the others are nevertheless."""
    from stackyard.deploy.api import licence_variables
    from stackyard.verify.api import (
        RUNS_NOTHING,
        report_lacking_licences,
        report_without_record,
        stopped_report,
        verify_revision,
    )

    try:
        record = read_record(RevisionPaths.of(entry.folder).record)
    except StackyardError as error:
        return report_without_record(entry, error), False
    try:
        lacking = unaccepted(yard, site, record)
        agreed = licence_variables(yard, site, record, os.environ)
        yards = yard.lineage()
        done = verify_revision(record, modules, site, variables=agreed, progress=progress, deep=deep, yards=yards,
                             only=RUNS_NOTHING if lacking else None)  # fmt: skip
        if lacking is None:
            return done, True
        done = report_lacking_licences(done, lacking)
        return done, done.state == "failed"
    except (StackyardError, OSError) as error:
        return stopped_report(entry, error), False


def _rest(context: Context, yard: Yard, site: Site) -> list[str]:
    """Repair the modulefiles and the caches of the yard."""
    from stackyard.upkeep.api import repair_yard
    from stackyard.yard.api import origin

    return repair_yard(yard, site, origin(context.command))


def _of_yard(yard: Yard, deep: bool) -> Report:
    from stackyard.verify.api import check_yard

    return check_yard(yard, deep=deep)


def _entries(yard: Yard, rev: str | None) -> list[Entry]:
    if rev:
        return [find_revision(yard, rev)]
    entries = [entry for entry in current_entries(yard) if entry.is_visible]
    if not entries:
        raise InputError(
            f"nothing is published in {yard.root}", hint="publish a revision first: `stackyard deploy FILE`"
        )
    return entries


def _modules(yard: Yard, entries: Sequence[Entry]) -> dict[str, Path]:
    """By revision, the modulefile tree of the yard that publishes it."""
    published: dict[str, Path] = {}
    for each in yard.lineage():
        if any(entry.module not in published for entry in entries):
            published = {e.module: each.modules for e in current_entries(each)} | published
    for entry in entries:
        if entry.module not in published:
            raise InputError(
                f"cannot verify {entry.module}: it is built but not published, so it has no modulefile",
                hint="deploy its file again: the built revision is verified and published, not rebuilt",
            )
    return published


def _keep(
    context: Context, yard: Yard, site: Site, entries: Sequence[Entry], reports: Mapping[str, Report]
) -> list[str]:
    """Write the reports of this yard's own revisions and publish the results; returns the modules whose state changed.

    Nothing is written if the yard is not writable.

    Args:
        entries: those that were verified.
    """
    from stackyard.deploy.api import mark_states, write_report, writing
    from stackyard.yard.api import origin

    own = [e for e in entries if Path(e.folder).is_relative_to(yard.root)]
    if not own or not os.access(yard.root, os.W_OK):
        return []
    states: dict[str, State] = {}
    with writing(yard, site):
        for entry in own:
            write_report(RevisionPaths.of(entry.folder), reports[entry.module])
            states |= _state(entry.module, reports[entry.module])
        return mark_states(yard, site, states, origin(context.command))


def _state(module: str, report: Report) -> dict[str, State]:
    """What a verification says about a revision: that of one with skipped checks says nothing."""
    if report.state == "passed":
        return {module: "published"}
    return {module: "failed"} if report.state == "failed" else {}


def _show(reports: Mapping[str, Report]) -> None:
    for module, report in reports.items():
        echo(f"{click.style(module, bold=True)}: {report.summary()}")
        show_checks(report)


def _show_changed(reports: Mapping[str, Report], changed: Sequence[str]) -> None:
    for module in changed:
        passed = reports[module].state == "passed"
        echo(f"{module} is now {'verified' if passed else 'listed as failed'}")
