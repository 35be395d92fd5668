"""``stackyard doctor``: what went wrong in a log or a run; without one, what is wrong here."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from stackyard.cli.context import Context
from stackyard.cli.doctor import surroundings
from stackyard.cli.findings import show_finding
from stackyard.cli.help import verb
from stackyard.cli.output import echo, show_json, show_notice
from stackyard.core.errors import Where
from stackyard.core.findings import Finding, counted, some

if TYPE_CHECKING:
    from stackyard.doctor.api import Diagnosis

FOUND = 3
"""The exit status where something failed."""


@verb(
    ("the first cause of the failure of a job", "stackyard doctor slurm-4711.out"),
    ("of the last run of this directory", "stackyard doctor last"),
    ("of what a program prints", "stackyard doctor - < job.log"),
    ("what is wrong with this shell, machine and yard", "stackyard doctor"),
)
@click.argument("logs", nargs=-1, metavar="[RUN|LOG]...")
@click.option("--json", "as_json", is_flag=True, help="Print what was found as JSON.")
def command(context: Context, logs: tuple[str, ...], as_json: bool) -> None:
    """Find the first cause of a failure in logs, of Stackyard or of any program: what failed, why, and what to do.

    LOG is a file (also compressed by gzip), a directory of logs, or - for standard input; RUN as for `stackyard runs`.
    The rank that failed first counts, not what the others report afterwards. Nothing is written or sent.

    Without an argument: look at this shell, this machine and the yard, within seconds, for what breaks programs.

    Exit status 0: no failure found, or nothing but notes; 3: a failure, with its cause or without, or a warning.
    """
    if not logs:
        raise click.exceptions.Exit(FOUND if surroundings.show(context, as_json=as_json) else 0)
    found = _diagnosis(context, logs)
    if as_json:
        show_json(asdict(found))
    else:
        _show(found)
    if found.failed:
        raise click.exceptions.Exit(FOUND)


def _diagnosis(context: Context, words: tuple[str, ...]) -> Diagnosis:
    from stackyard.doctor.api import diagnose_logs, diagnose_run, log_sources
    from stackyard.launch.api.runs import find_run

    file = context.site_file()
    site = context.site() if file else None
    causes = site.causes if site else ()
    path = Path(words[0])
    is_run = (path / "record.json").exists() or not (words[0] == "-" or path.exists() or "." in path.name[-5:-1])
    if len(words) == 1 and is_run:
        return diagnose_run(find_run(words[0], Path.cwd() / (site.launch.runs if site else "runs")), causes)
    return diagnose_logs(log_sources(words), causes=causes)


def _show(found: Diagnosis) -> None:
    for note in found.notes:
        show_notice(note)
    if not found.failed:
        echo(f"no failure found in {counted(found.logs, 'log')}")
        return
    what = found.cause or "a failure that no log explains"
    first = found.rank if found.rank.startswith("pid ") else f"rank {found.rank}"
    others = [f"{rule} ({counted(number, 'time')})" for rule, number in found.others.items() if rule != found.rule]
    parts = [f"{first} failed first" if found.rank else "", f"after it: {some(others, 6)}" if others else ""]
    reason = "; ".join(filter(None, parts))
    where = Where(found.log, found.line) if found.log else None
    finding = Finding(found.rule or "unknown", "refused", what, reason, found.hint, where)
    show_finding(finding, context=[f"| {found.text}"] if found.text else [])
    if found.source:
        echo(f"    {click.style('source:', dim=True)} {found.source}")
