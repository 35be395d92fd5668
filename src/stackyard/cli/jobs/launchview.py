"""The display of a starting and running job: phases on standard error, the ranks' output on standard output."""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import click

from stackyard.cli.findings import show_finding
from stackyard.cli.output import echo, only_shown, show_error, show_message, show_notice, show_text
from stackyard.core.errors import StackyardError
from stackyard.core.findings import counted
from stackyard.core.progress import Listener
from stackyard.core.quoting import harmless

if TYPE_CHECKING:
    from pathlib import Path

    from stackyard.launch.api.explaining import Layout
    from stackyard.launch.api.jobs import Plan
    from stackyard.launch.api.runs import StepResult


_SENTENCES = {
    "first output": "waiting for the first output",
    "stacks": "collecting stack traces:",
    "ending": "ending all ranks:",
}
"""What a phase is called here; the names are those of the events."""


class LaunchView(Listener):
    """A `Listener` for a terminal or a log. A phase is one line; on a terminal, the count of nodes is redrawn.

    Events and the stack traces of a hang are not shown: they are kept in the run directory.

    Args:
        hidden: the rank that has the terminal itself, whose output is not shown again.
    """

    def __init__(self, *, quiet: bool = False, hidden: int | None = None) -> None:
        self._quiet, self._hidden = quiet, hidden
        self._started = time.monotonic()
        self._live = sys.stderr.isatty()
        self._open = False
        self._many = False
        self._middle: set[int] = set()
        self._names: Mapping[int, str] = {}

    def phase(self, name: str, detail: str = "") -> None:
        """Print one line with the seconds since the start; not for running if a rank has the terminal."""
        if self._quiet or (name == "nodes" and not self._live) or (name == "running" and self._hidden is not None):
            return
        self._close()
        self._open = name == "nodes"
        click.echo(
            f"{self._stamp()} {click.style(_SENTENCES.get(name, name), fg='cyan')} {harmless(detail)}".rstrip(),
            err=True,
            nl=not self._open,
        )

    def nodes(self, there: int, expected: int) -> None:
        """Redraw a line on a terminal; in a log print one line once all nodes have reported."""
        if self._quiet or (not self._live and there < expected):
            return
        back = "\r" if self._live else ""
        click.echo(f"{back}{self._stamp()} {click.style('nodes', fg='cyan')} {there} of {expected}", err=True, nl=False)
        self._open = True
        if there >= expected:
            self._close()

    def output(self, task: int, text: str) -> None:
        """Print the output of a rank, unchanged; with the rank before each line if several ranks are shown."""
        if self._quiet or task == self._hidden:  # standard output is for JSON only
            return
        self._close()
        if not self._many:
            click.echo(text, nl=False)
            return
        start = task not in self._middle
        label = click.style(f"[{self._names.get(task, task)}] ", dim=True)
        lines = text.splitlines(keepends=True)
        click.echo("".join((label if i or start else "") + line for i, line in enumerate(lines)), nl=False)
        (self._middle.discard if text.endswith("\n") else self._middle.add)(task)

    def _stamp(self) -> str:
        return click.style(f"[{time.monotonic() - self._started:6.1f} s]", dim=True)

    def show_numbers(self) -> None:
        """Print the rank before every line from now on."""
        self._many = True

    def show_names(self, names: Mapping[int, str]) -> None:
        """Print these names of ranks before their lines, if there are any."""
        self._names = names
        self._many = self._many or bool(names)

    def notice(self, text: str) -> None:
        """Print one sentence."""
        self._close()
        if not self._quiet:
            show_notice(text)

    def flush(self) -> None:
        """Show every line at once; after an error no further attempt is made."""
        with only_shown():
            pass

    def _close(self) -> None:
        if self._open:
            click.echo("", err=True)
            self._open = False


def show_plan(plan: Plan, step: str, *, err: bool = True) -> None:
    """Print the exact command, each rank's program, and the warnings."""
    from stackyard.launch.api.jobs import launch_command, program_text

    for role in plan.roles:
        echo(f"{click.style(role.name, bold=True)}: {_ranks(role.plan.layout)}", err=err)
    if not plan.roles:
        echo(_ranks(plan.layout), err=err)
    show_text(click.style("$ ", dim=True) + launch_command(plan, step), err=err)
    for role in plan.roles:
        show_text(click.style(f"  {role.name}: ", dim=True) + program_text(role.plan), err=err)
    if not plan.roles:
        show_text(click.style("  each: ", dim=True) + program_text(plan), err=err)
    where = plan.stage.base or "the disk of each node"
    for _, path in plan.stage.items:
        echo(click.style("  stage: ", dim=True) + f"{path} to {where}", err=err)
    show_findings(plan, err=err)


def _ranks(layout: Layout) -> str:
    gpus = f", {counted(layout.gpus_per_rank, 'GPU')}" if layout.gpus_per_rank else ""
    where = f"{counted(layout.ranks, 'rank')} on {counted(layout.nodes, 'node')}"
    return f"{where}: {counted(layout.cores_per_rank, 'core')}{gpus} each"


def show_findings(plan: Plan, *, err: bool = True) -> None:
    """Print the assumptions about the nodes, sizes of traces, pulled images, and warnings with reason and remedy."""
    for sentence in plan.layout.node.assumed:
        echo(f"{click.style('note:', fg='yellow')} {sentence}", err=err)
    seen = set()
    for finding in plan.findings:
        if finding.rule in ("profile-size", "image-pulled") and finding.severity == "note":
            echo(f"{click.style('note:', fg='yellow')} {finding.message}", err=err)
        if finding.severity == "warning" and finding.message not in seen:
            seen.add(finding.message)
            show_finding(finding, err=err)


def show_result(result: StepResult, directory: Path) -> None:
    """Print the end of a run: one line for success, otherwise the first failure with its cause and remedy."""
    if result.state == "done":
        show_done(directory, f" in {result.seconds.get('total', 0):.1f} s")
        return
    first = {} if result.first is None else result.first.__dict__
    cause = result.first.cause.__dict__ if result.first and result.first.cause else None
    show_failure(result.state, {**first, "cause": cause}, result.failed_tasks, result.launcher_output, directory)


_OF_THE_ENDED = re.compile(
    r"^(?:(?:\S*rank\.sh: line \d+: +\d+ )?(?:Terminated|Killed)\b.*"
    r"|srun: (?:launch/slurm: \w+: )?Terminating StepId=.*"
    r"|slurmstepd-\S+: error: \*\*\* STEP \S+ ON \S+ CANCELLED AT [\dT:-]+ \*\*\*"
    r"|srun: error: \S+: tasks? \S+: (?:Exited with exit code (?:137|143)|Terminated|Killed))\s*$\n?",
    re.MULTILINE,
)
"""What a shell and srun print of ranks that were ended because another one had failed."""


def show_done(directory: Path, took: str = "") -> None:
    """Print one line for a successful run."""
    echo(f"{click.style('done', fg='green')}{took}; run directory: {directory}", err=True)


def show_failure(state: str, first: Mapping[str, Any], failed: int, launcher: str, directory: Path) -> None:
    """Print a failed, hung or cancelled run: the first failure, its last lines, the cause and a hint."""
    message = first.get("message") or {"cancelled": "cancelled: all ranks terminated"}.get(state, f"run {state}")
    others = f" ({failed} ranks failed; this was the first)" if failed > 1 else ""
    said = "" if state == "cancelled" else _OF_THE_ENDED.sub("", launcher).strip()
    cause = first.get("cause")
    show_error(StackyardError(message + others, detail="\n".join(first.get("tail") or ()) or said or None))
    if cause:
        show_message(f"  {click.style('cause:', fg='yellow')} {cause['cause']}", "  cause: ")
        from stackyard.cli.jobs.having import stacks_having

        having = stacks_having(cause)
        show_message(f"  {click.style('hint:', fg='cyan')} {having or cause['remedy']}", "  hint: ")
    logs = next((directory / name for name in ("logs", "array") if (directory / name).exists()), directory)
    echo(f"  {click.style('logs:', dim=True)} {logs}", err=True)
