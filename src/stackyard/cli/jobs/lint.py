"""``stackyard lint``: errors and wasted resources in batch scripts."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from stackyard.cli.context import Context
from stackyard.cli.findings import WORDS, show_finding
from stackyard.cli.help import verb
from stackyard.cli.output import echo, show_json
from stackyard.core.errors import ManyErrors, StackyardError, Where
from stackyard.core.findings import counted

if TYPE_CHECKING:
    from stackyard.core.findings import Finding

_WIDEST = 110


@verb(
    ("errors and wasted resources, each with a better line", "stackyard lint job.lsf"),
    ("an equivalent job file, for `stackyard submit --job`", "stackyard lint --fix job.lsf"),
)
@click.argument("files", nargs=-1, required=True, metavar="SCRIPT...", type=click.Path(path_type=Path))
@click.option("--fix", is_flag=True, help="Write SCRIPT.job.yaml, an equivalent Stackyard job file.")
@click.option("--notes/--no-notes", default=True, help="Also show low-confidence notes.")
@click.option("--json", "as_json", is_flag=True, help="Print the findings as JSON.")
def command(context: Context, files: tuple[Path, ...], fix: bool, notes: bool, as_json: bool) -> None:
    """Check batch scripts (#SBATCH, #BSUB, #PBS, #flux) and report what they request, what is wrong and how to fix it.

    Exit status 0: clean, or only notes; 3: at least one finding; 2: --fix made no job file, with the reason.
    """
    from stackyard.lint.api import lint_file

    site = context.site() if context.site_file() else None
    reports = [lint_file(path, site=site) for path in files]
    if as_json:
        show_json({str(path): report.to_json() for path, report in zip(files, reports, strict=True)})
    else:
        for path, report in zip(files, reports, strict=True):
            _show(path, report, notes)
        if len(files) > 1:
            _show_total(reports)
    refused = (
        [problem for path, report in zip(files, reports, strict=True) for problem in _fix(path, report)] if fix else []
    )
    if refused:
        raise refused[0] if len(refused) == 1 else ManyErrors(refused)
    worst = max(report.exit_code for report in reports)
    if worst:
        raise click.exceptions.Exit(worst)


def _show(path: Path, report: Any, notes: bool) -> None:
    """Print one script: its request, its findings, its notes, and the number of each."""
    place = _short(path)
    rows = report.script.text.splitlines()
    echo(click.style(place, bold=True) + (f": {report.summary}" if report.summary else ""))
    said: set[str] = set()
    for group in _groups(report.findings, notes):
        _show_group(place, group, rows, said)
    echo(f"  {_counted(report.findings)}")


def _groups(findings: Iterable[Finding], notes: bool) -> list[list[Finding]]:
    """Findings grouped by message, notes last."""
    groups: dict[tuple[str, str, str], list[Finding]] = {}
    for finding in findings:
        if notes or finding.severity != "note":
            groups.setdefault((finding.rule, finding.severity, finding.message), []).append(finding)
    return sorted(groups.values(), key=lambda group: group[0].severity == "note")


def _show_group(place: str, group: Sequence[Finding], rows: Sequence[str], said: set[str]) -> None:
    first = group[0]
    places = [Where(place, finding.where.line if finding.where else 0) for finding in group]
    row = rows[places[0].line - 1].strip() if 0 < places[0].line <= len(rows) else ""
    context = [f"| {_cut(row)}"] if row else []
    context += [f"also {' '.join(map(str, places[1:]))}"] if len(places) > 1 else []
    reason = "" if first.reason in said else first.reason
    said.add(first.reason)
    show_finding(replace(first, where=places[0], reason=reason), context=context)


def _counted(findings: Iterable[Finding]) -> str:
    """``1 error, 2 warnings, 3 notes``; ``clean`` without findings."""
    count: Counter[str] = Counter(finding.severity for finding in findings)
    said = [counted(count[kind], word) for kind, (word, _) in WORDS.items() if count[kind]]
    return ", ".join(said) or click.style("clean", fg="green")


def _show_total(reports: Sequence[Any]) -> None:
    clean = sum(not report.findings for report in reports)
    echo(f"{len(reports)} scripts, {clean} clean: {_counted(f for report in reports for f in report.findings)}")


def _short(path: Path) -> str:
    """The shortest path: relative if it is in the working directory."""
    relative = os.path.relpath(path)
    return str(path) if relative.startswith("..") else relative


def _cut(text: str) -> str:
    return text if len(text) <= _WIDEST else text[: _WIDEST - 3] + "..."


def _fix(path: Path, report: Any) -> Sequence[StackyardError]:
    """Write the job file of one script; the reasons why none can be made."""
    from stackyard.launch.api.jobs import job_text
    from stackyard.lint.api import to_intent
    from stackyard.yard.api import write_text

    try:
        intent, notes = to_intent(report.script)
    except ManyErrors as error:
        return error.problems
    target = path.with_name(path.name + ".job.yaml")
    write_text(target, job_text(intent, [f"generated from {path.name} by stackyard lint --fix", *notes]))
    echo(f"wrote {_short(target)}" + ("" if intent.unanswered else f": stackyard submit --job {_short(target)}"))
    for note in notes:
        said = (
            click.style("to be answered:", fg="red")
            if note in intent.unanswered
            else click.style("not carried over:", fg="yellow")
        )
        echo(f"    {said} {note}")
    if intent.unanswered:
        echo("  submit refuses it until the lines of `unanswered` in it are removed")
    return ()
