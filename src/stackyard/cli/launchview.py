"""What a person sees while a job starts and runs: phases on standard error, the ranks' output on standard output."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import click

from stackyard.cli.findings import show_finding
from stackyard.cli.output import show_error, show_notice
from stackyard.errors import StackyardError

if TYPE_CHECKING:
    from pathlib import Path

    from stackyard.launch.plan.model import Plan
    from stackyard.launch.records.outcome import StepResult


class LaunchView:
    """A `Listener` for a terminal or a log. A phase is one line; a count of nodes is redrawn where that is possible."""

    def __init__(self, *, quiet: bool = False) -> None:
        self._quiet = quiet
        self._started = time.monotonic()
        self._live = sys.stderr.isatty()
        self._open = False
        self._many = False
        self._middle: set[int] = set()

    def phase(self, name: str, detail: str = "") -> None:
        """One line with the seconds since the start."""
        if self._quiet or (name == "nodes" and not self._live):
            return
        self._close()
        self._open = name == "nodes"
        click.echo(f"{self._stamp()} {click.style(name, fg='cyan')} {detail}".rstrip(), err=True, nl=not self._open)

    def nodes(self, there: int, expected: int) -> None:
        """The same line again and again on a terminal; in a log only when all are there."""
        if self._quiet or (not self._live and there < expected):
            return
        back = "\r" if self._live else ""
        click.echo(f"{back}{self._stamp()} {click.style('nodes', fg='cyan')} {there} of {expected}", err=True, nl=False)
        self._open = True
        if there >= expected:
            self._close()

    def output(self, task: int, text: str) -> None:
        """The output of a rank as it is; with its number before each line where several ranks are shown."""
        if self._quiet:  # standard output is for JSON alone
            return
        self._close()
        if not self._many:
            click.echo(text, nl=False)
            return
        start = task not in self._middle
        label = click.style(f"[{task}] ", dim=True)
        lines = text.splitlines(keepends=True)
        click.echo("".join((label if i or start else "") + line for i, line in enumerate(lines)), nl=False)
        (self._middle.discard if text.endswith("\n") else self._middle.add)(task)

    def _stamp(self) -> str:
        return click.style(f"[{time.monotonic() - self._started:6.1f} s]", dim=True)

    def show_numbers(self) -> None:
        """Put the rank's number before every line from now on."""
        self._many = True

    def event(self, kind: str, data: dict[str, Any]) -> None:
        """Events are kept in the run's folder; the few that a person waits for come as phases and notices."""

    def notice(self, text: str) -> None:
        """One sentence."""
        self._close()
        if not self._quiet:
            show_notice(text)

    def _close(self) -> None:
        if self._open:
            click.echo("", err=True)
            self._open = False


def show_plan(plan: Plan, step: str, *, err: bool = True) -> None:
    """The exact command, what each rank runs, and what should be known about it."""
    from stackyard.launch.plan.script import launch_command, program_text

    layout = plan.layout
    gpus = f", {layout.gpus_per_rank} GPU{'s' * (layout.gpus_per_rank != 1)}" if layout.gpus_per_rank else ""
    cores = f"{layout.cores_per_rank} core{'s' * (layout.cores_per_rank != 1)}"
    nodes = f"{layout.nodes} node{'s' * (layout.nodes != 1)}"
    click.echo(f"{layout.ranks} rank{'s' * (layout.ranks != 1)} on {nodes}: {cores}{gpus} each", err=err)
    click.echo(click.style("$ ", dim=True) + launch_command(plan, step), err=err)
    click.echo(click.style("  each: ", dim=True) + program_text(plan), err=err)
    show_findings(plan, err=err)


def show_findings(plan: Plan, *, err: bool = True) -> None:
    """What was assumed about the nodes, and the warnings of a plan, each with its reason and the better way."""
    for sentence in plan.layout.node.assumed:
        click.echo(f"{click.style('note:', fg='yellow')} {sentence}", err=err)
    seen = set()
    for finding in plan.findings:
        if finding.severity == "warning" and finding.message not in seen:
            seen.add(finding.message)
            show_finding(finding, err=err)


def show_result(result: StepResult, folder: Path) -> None:
    """How it ended: one line when all is well, otherwise the first failure with its cause and remedy."""
    if result.state == "done":
        total = result.seconds.get("total", 0)
        click.echo(f"{click.style('done', fg='green')} in {total:.1f} s; everything about it is in {folder}", err=True)
        return
    first = {} if result.first is None else result.first.__dict__
    cause = result.first.cause.__dict__ if result.first and result.first.cause else None
    show_failure(result.state, {**first, "cause": cause}, result.failed_tasks, result.launcher_output, folder)


def show_failure(state: str, first: Mapping[str, Any], failed: int, launcher: str, folder: Path) -> None:
    """A failed, hung or cancelled run: which rank was first, its last lines, the cause and what to do."""
    message = first.get("message") or {"cancelled": "cancelled: all ranks were ended"}.get(state, f"the run {state}")
    others = f" ({failed} ranks failed; this one was the first)" if failed > 1 else ""
    said = "" if state == "cancelled" else launcher.strip()
    cause = first.get("cause")
    show_error(StackyardError(message + others, detail="\n".join(first.get("tail") or ()) or said or None))
    if cause:
        click.echo(f"  {click.style('cause:', fg='yellow')} {cause['cause']}", err=True)
        click.echo(f"  {click.style('do this:', fg='cyan')} {cause['remedy']}", err=True)
    logs = next((folder / name for name in ("logs", "array") if (folder / name).exists()), folder)
    click.echo(f"  {click.style('logs:', dim=True)} {logs}", err=True)
