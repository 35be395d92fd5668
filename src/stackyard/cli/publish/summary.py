"""The summary of a deploy: published revisions, failed checks, how to investigate, and the next commands."""

from __future__ import annotations

import json
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from stackyard.cli.findings import show_checks, show_finding
from stackyard.cli.output import echo, show_text
from stackyard.core.findings import counted, human_bytes
from stackyard.deploy.api import USABLE, Outcome, Result
from stackyard.expose.api import example_command, module_notes
from stackyard.yard.api import RevisionPaths, collision_sentences

if TYPE_CHECKING:
    from stackyard.inputs.api import Stack
    from stackyard.verify.api import Report
    from stackyard.yard.api import Manifest

MARKS = {
    "published": click.style("✔", fg="green"),
    "unverified": click.style("!", fg="yellow"),
    "unchanged": click.style("=", fg="cyan"),
    "updated": click.style("✔", fg="green"),
    "reinstated": click.style("✔", fg="green"),
    "inherited": click.style("=", fg="cyan"),
    "failed": click.style("✘", fg="red"),
    "held": click.style("!", fg="yellow"),
    "broken": click.style("✘", fg="red"),
}
WORDS = {
    "published": "published",
    "unverified": "published, unverified",
    "unchanged": "already published, nothing to do",
    "updated": "already published; labels updated",
    "reinstated": "already published; the newest again, as its file describes it",
    "inherited": "already published by the site, nothing to do",
    "failed": "not published: a check failed",
    "held": "not published: a required check was skipped",
    "broken": "not built",
}

STILL = {
    "failed": "published before, now listed as failed: a check failed",
    "held": "published as before: a required check was skipped",
}
"""The words for a published revision that was verified again."""


def deploy_json(result: Result) -> dict[str, Any]:
    """The result of a deploy as JSON values."""
    return {
        "generation": result.generation,
        "locks": [str(path) for path in result.locks],
        "revisions": [_outcome_json(outcome) for outcome in result.outcomes],
    }


def _outcome_json(outcome: Outcome) -> dict[str, Any]:
    value: dict[str, Any] = {"module": outcome.module, "status": outcome.status, "path": outcome.directory}
    if outcome.report is not None:
        value["report"] = outcome.report.to_json()
    if outcome.error is not None:
        value["error"] = {"message": str(outcome.error), "hint": outcome.error.hint, "detail": outcome.error.detail}
    if outcome.record is not None:
        value["timings_s"] = dict(outcome.record.timings_s)
    return value


def show_deploy(result: Result, modules: Sequence[Path], program: str, said: Sequence[str] = ()) -> None:
    """Print the result of a deploy.

    Args:
        modules: the directories for MODULEPATH: of this yard, then of the yards above it.
        program: this program with its global options: ``stackyard --yard DIR``.
        said: notices that were already shown; they are not repeated.
    """
    for path in result.locks:
        echo(f"lock written: {path}")
    for outcome in result.outcomes:
        words = STILL.get(outcome.status) if outcome.is_visible else None
        said_of = words or WORDS[outcome.status]
        echo(f"{MARKS[outcome.status]} {click.style(outcome.module, bold=True)}  {said_of}")
        _show_built(outcome, said)
        if outcome.status in ("failed", "held"):
            _show_failures(outcome, program)
    usable = [o for o in result.outcomes if o.status in USABLE]
    if usable:
        _show_next(_recommended(usable, result.manifest), modules, program)


def _show_built(outcome: Outcome, said: Sequence[str]) -> None:
    record = outcome.record
    if record is None or outcome.status in ("unchanged", "updated", "reinstated", "inherited"):
        return
    disk = record.disk
    own = f"{human_bytes(disk.bytes_new)} in {disk.inodes_new:,} files of its own"
    shared = f"{human_bytes(disk.bytes_shared)} in {disk.inodes_shared:,} files shared with the cache"
    size = f"{own}, {shared} ({disk.link_mode})"
    if not record.origin.owns_files:
        size = f"{human_bytes(disk.bytes_shared)} in {disk.inodes_shared:,} files, all of them where they were"
    echo(f"    {counted(len(record.packages), 'package')}; {size}")
    if outcome.report is not None:
        echo(f"    {outcome.report.summary()}")
        for check in outcome.report.tolerated() if outcome.status in USABLE else ():
            show_finding(check.finding, word=check.status, indent="    ")
    for notice in (*record.notices, *collision_sentences(record.collisions), *module_notes(record)):
        if not any(text.endswith(notice) for text in said):
            echo(f"    {click.style('note:', fg='yellow')} {notice}")


def _show_failures(outcome: Outcome, program: str) -> None:
    if outcome.report is not None:
        show_checks(outcome.report, program)
        text = exceptions_text(outcome.report, outcome.stack)
        if text:
            show_text(f"    if this is intended, {text}")
    echo(f"    investigate:  {program} run {outcome.module} -- bash")
    echo(f"    all results:  {RevisionPaths.of(outcome.directory).report}")
    if outcome.status == "held":
        echo("    publish anyway:  deploy again with --allow-unverified")


def exceptions_text(report: Report, stack: Stack | None) -> str:
    """The exceptions that would let the failed checks pass; for an environment.yml a whole stack.yaml."""
    exceptions = report.exceptions()
    if not exceptions or stack is None:
        return ""
    if stack.kind == "adopted":
        options = (f"--except {shlex.quote(f'{key}={name}')}" for key, names in exceptions.items() for name in names)
        return f"adopt it with {' '.join(options)}"
    lines = ["exceptions:", *(f"  {key}: {json.dumps(names)}" for key, names in exceptions.items())]
    file = Path(stack.file)
    if stack.kind == "stack":
        head = f"add to {file.name}:"
    else:
        head = f"write a stack.yaml next to {file.name}, and deploy that:"
        version = [] if stack.dated else [f"version: {json.dumps(stack.variants[-1].version)}"]
        lines = [f"name: {stack.name}", *version, f"environment: {file.name}", *lines]
    return "\n".join([head, *(f"        {line}" for line in lines)])


def _recommended(usable: Sequence[Outcome], manifest: Manifest | None) -> Outcome:
    """The last outcome that users are not warned of or shown only if they ask; the bare name loads its default."""
    entries = manifest.entries if manifest else ()
    left_out = {entry.module for entry in entries if entry.deprecated or entry.retired or entry.hidden}
    return ([outcome for outcome in usable if outcome.module not in left_out] or usable)[-1]


def _show_next(outcome: Outcome, modules: Sequence[Path], program: str) -> None:
    name = outcome.module.partition("/")[0]
    echo()
    echo("Load it:")
    uses = [
        f"module use {shlex.quote(str(path))}" for path in reversed(modules)
    ]  # the last one comes first on the path
    echo(f"    {' && '.join([*uses, f'module load {name}'])}")
    echo("Or without a module system:")
    command = example_command(outcome.record) if outcome.record else "bash"
    echo(f"    {program} run {name} -- {command}")
