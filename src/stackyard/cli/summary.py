"""What a deploy says when it is done: what is there now, what did not pass, how to look inside, what to type next."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from stackyard.cli.output import human_bytes
from stackyard.publish.deploy import Outcome, Result
from stackyard.yard.layout import RevisionPaths, Yard

MARKS = {
    "published": click.style("✔", fg="green"),
    "unverified": click.style("!", fg="yellow"),
    "unchanged": click.style("=", fg="cyan"),
    "inherited": click.style("=", fg="cyan"),
    "failed": click.style("✘", fg="red"),
    "held": click.style("!", fg="yellow"),
    "broken": click.style("✘", fg="red"),
}
WORDS = {
    "published": "published",
    "unverified": "published, unverified",
    "unchanged": "published already, nothing to do",
    "inherited": "published by the site already, nothing to do",
    "failed": "built, not published: a check did not pass",
    "held": "built, not published: a required check was skipped",
    "broken": "not built",
}


def deploy_json(result: Result) -> dict[str, Any]:
    """The result of a deploy as JSON values."""
    return {
        "generation": result.generation,
        "locks": [str(path) for path in result.locks],
        "revisions": [_outcome_json(outcome) for outcome in result.outcomes],
    }


def _outcome_json(outcome: Outcome) -> dict[str, Any]:
    value: dict[str, Any] = {"module": outcome.module, "status": outcome.status, "path": outcome.folder}
    if outcome.report is not None:
        value["report"] = outcome.report.to_json()
    if outcome.error is not None:
        value["error"] = {"message": str(outcome.error), "hint": outcome.error.hint, "detail": outcome.error.detail}
    if outcome.record is not None:
        value["timings_s"] = dict(outcome.record.timings_s)
    return value


def show_deploy(result: Result, yard: Yard) -> None:
    """The result of a deploy for a person."""
    for path in result.locks:
        click.echo(f"lock written: {path}")
    for outcome in result.outcomes:
        click.echo(f"{MARKS[outcome.status]} {click.style(outcome.module, bold=True)}  {WORDS[outcome.status]}")
        _show_built(outcome)
        if outcome.status in ("failed", "held"):
            _show_failures(outcome)
    usable = [o for o in result.outcomes if o.status in ("published", "unverified", "unchanged")]
    if usable:
        _show_next(usable[-1].module, yard)


def _show_built(outcome: Outcome) -> None:
    record = outcome.record
    if record is None or outcome.status in ("unchanged", "inherited"):
        return
    disk = record.disk
    own = f"{human_bytes(disk.bytes_new)} in {disk.inodes_new:,} files of its own"
    shared = f"{human_bytes(disk.bytes_shared)} in {disk.inodes_shared:,} files shared with the cache"
    click.echo(f"    {len(record.packages)} packages; {own}, {shared} ({disk.link_mode})")
    if outcome.report is not None:
        click.echo(f"    {outcome.report.summary()}")
    for notice in record.notices:
        click.echo(f"    {click.style('note:', fg='yellow')} {notice}")


def _show_failures(outcome: Outcome) -> None:
    for check in outcome.report.problems() if outcome.report else ():
        word = click.style(check.status, fg="red" if check.status == "failed" else "yellow")
        cause = check.detail.strip().splitlines()[-1:] or [""]
        click.echo(f"    {word} {check.kind} {check.name}: {cause[0]}")
        if check.remedy:
            click.echo(f"        {check.remedy}")
    click.echo(f"    look inside:  stackyard run {outcome.module} -- bash")
    click.echo(f"    all results:  {RevisionPaths.of(outcome.folder).report}")
    if outcome.status == "held":
        click.echo("    publish it all the same:  deploy again with --allow-unverified")


def _show_next(module: str, yard: Yard) -> None:
    name = module.partition("/")[0]
    click.echo()
    click.echo("Load it:")
    click.echo(f"    module use {yard.modules} && module load {name}")
    click.echo("Or without any module system:")
    click.echo(f"    stackyard --yard {_short(yard.root)} run {name} -- python")


def _short(path: Path) -> str:
    try:
        return str(path.relative_to(Path.cwd()))
    except ValueError:
        return str(path)
