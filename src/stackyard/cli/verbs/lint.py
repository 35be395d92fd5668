"""``stackyard lint``: what is wrong or wasteful in somebody's batch script."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from stackyard.cli.context import Context
from stackyard.cli.output import show_json

if TYPE_CHECKING:
    from stackyard.launch.findings import Finding


@click.command(short_help="what is wrong or wasteful in a batch script")
@click.argument("files", nargs=-1, required=True, metavar="SCRIPT...", type=click.Path(path_type=Path))
@click.option("--fix", is_flag=True, help="Write SCRIPT.job.yaml: a Stackyard job file that does the same.")
@click.option("--notes/--no-notes", default=True, help="Also show notes, which lack the evidence to be findings.")
@click.option("--json", "as_json", is_flag=True, help="Print the findings as JSON.")
@click.pass_obj
def command(context: Context, files: tuple[Path, ...], fix: bool, notes: bool, as_json: bool) -> None:
    """Read batch scripts (#SBATCH, #BSUB, #PBS, #flux) and say what they ask for and what is wrong, with better lines.

    Exit code 0: clean, or only notes; 3: something was found.
    """
    from stackyard.launch import lint

    site = context.site() if context.site_file() else None
    reports = [lint.lint_file(path, site=site) for path in files]
    if as_json:
        show_json({str(path): report.to_json() for path, report in zip(files, reports, strict=True)})
    else:
        for path, report in zip(files, reports, strict=True):
            _show(path, report, notes)
    if fix:
        for path, report in zip(files, reports, strict=True):
            _fix(path, report)
    worst = max(report.exit_code for report in reports)
    if worst:
        raise click.exceptions.Exit(worst)


def _show(path: Path, report: Any, notes: bool) -> None:
    shown = [f for f in report.findings if notes or f.severity != "note"]
    found = sum(f.severity != "note" for f in report.findings)
    click.echo(f"{click.style(str(path), bold=True)}: {report.summary}" if report.summary else str(path))
    for finding in shown:
        _show_finding(finding)
    said = f"{found} finding{'s' * (found != 1)}" if found else click.style("clean", fg="green")
    click.echo(f"  {said}\n" if shown else f"  {said}")


def _show_finding(finding: Finding) -> None:
    color = {"refused": "red", "warning": "yellow", "note": "cyan"}[finding.severity]
    word = {"refused": "error", "warning": "warning", "note": "note"}[finding.severity]
    place = f"{finding.where}: " if finding.where else ""
    rule = click.style(f"[{finding.rule}]", dim=True)
    click.echo(f"{place}{click.style(word, fg=color)}: {finding.message} {rule}")
    if finding.reason:
        click.echo(f"    {finding.reason}")
    for number, line in enumerate(finding.better.splitlines()):
        click.echo(f"    {click.style('better:' if number == 0 else '       ', fg='cyan')} {line}")


def _fix(path: Path, report: Any) -> None:
    from stackyard.launch import lint
    from stackyard.launch.jobfile import job_text
    from stackyard.yard import atomic

    intent, notes = lint.to_intent(report.script)
    target = path.with_name(path.name + ".job.yaml")
    atomic.write_text(target, job_text(intent, [f"made from {path.name} by stackyard lint --fix", *notes]))
    click.echo(f"wrote {target}: stackyard submit --job {target}")
    for note in notes:
        click.echo(f"    {click.style('not carried over:', fg='yellow')} {note}")
