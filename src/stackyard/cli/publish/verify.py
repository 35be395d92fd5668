"""``stackyard verify``: run the checks of a revision again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import click

from stackyard.cli.catalogued import catalogued
from stackyard.cli.context import Context
from stackyard.cli.findings import show_checks
from stackyard.cli.help import verb
from stackyard.cli.output import echo, show_json

if TYPE_CHECKING:
    from stackyard.inputs.api import Workspace
    from stackyard.verify.api import Report


@verb(
    ("every published revision", "stackyard verify"),
    ("every byte, of the caches too", "stackyard verify --deep"),
    ("restore damaged files of a revision", "stackyard verify --repair pytorch/2.13"),
    ("one revision, with the report as JSON", "stackyard verify pytorch/2.13 --json"),
)
@click.argument("rev", required=False, metavar="[REV]")
@click.option("--deep", is_flag=True, help="Read every byte of every file; without REV of the caches too.")
@click.option("--repair", "mend", is_flag=True, help="First restore what is damaged from what is locked; then --deep.")
@click.option("--json", "as_json", is_flag=True, help="Print the reports as JSON.")
@catalogued
def command(context: Context, rev: str | None, deep: bool, mend: bool, as_json: bool) -> None:
    """Run the checks of REV, or of every published revision and of the yard's own files, on this machine.

    The sizes and times of all files are compared with what was built, and the bytes of a sample; --deep reads them all.
    A revision that was published unverified becomes verified if all its checks pass here; one that fails is listed as
    failed until it passes. --repair replaces damaged files by the same bytes, and discards damaged entries of the
    caches. Where you have not accepted a licence, nothing of the revision is run: what needs that is skipped. Exit
    status 3: a check failed or was skipped, or the files of a revision are missing.
    """
    from stackyard.cli.display import display
    from stackyard.upkeep.api import (
        modules_to_verify,
        publish_results,
        restore_revisions,
        revisions_to_verify,
        verify_again,
    )
    from stackyard.verify.api import check_yard, site_checks

    workspace, deep = context.workspace(), deep or mend
    site_checks(workspace.site)  # a mistake in them is reported once, and not as a check of each revision
    entries = revisions_to_verify(workspace.yard, rev)
    trees = modules_to_verify(workspace.yard, entries)
    with display() as progress:
        if mend:
            rest = (lambda: _rest(context, workspace)) if rev is None else tuple
            restore_revisions(workspace, entries, progress, rest)
        verification = verify_again(workspace, trees, entries, progress, deep=deep)
    reports = dict(verification.reports)
    if rev is None:
        reports[str(workspace.yard.root)] = check_yard(workspace.yard, deep=deep)
    if as_json:
        show_json({module: report.to_json() for module, report in reports.items()})
    else:
        _show(reports, context.program)
    changed = publish_results(workspace, verification, context.command)
    if not as_json:
        _show_changed(reports, changed)
    if any(report.state != "passed" for report in reports.values()):
        raise click.exceptions.Exit(3)


def _rest(context: Context, workspace: Workspace) -> list[str]:
    """Repair the modulefiles and the caches of the yard."""
    from stackyard.upkeep.api import repair_yard
    from stackyard.yard.api import origin

    return repair_yard(workspace, origin(context.command))


def _show(reports: Mapping[str, Report], program: str) -> None:
    for module, report in reports.items():
        echo(f"{click.style(module, bold=True)}: {report.summary()}")
        show_checks(report, program)


def _show_changed(reports: Mapping[str, Report], changed: Sequence[str]) -> None:
    for module in changed:
        passed = reports[module].state == "passed"
        echo(f"{module} is now {'verified' if passed else 'listed as failed'}")
