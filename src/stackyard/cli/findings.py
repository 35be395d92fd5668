"""The text format of findings, for lint, launch, explain and verify.

job.sh:12: warning: what is wrong [rule]
    | the line
    why it matters
    hint: the correction
"""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import click

from stackyard.core.quoting import harmless

if TYPE_CHECKING:
    from stackyard.core.findings import Finding
    from stackyard.verify.api import Report

WORDS = {"refused": ("error", "red"), "warning": ("warning", "yellow"), "note": ("note", "cyan")}
"""The word and the color of each severity."""
_OUTPUT_LINES = 10
"""How much of a check's output is shown; the report has more."""


def show_finding(
    finding: Finding,
    *,
    word: str = "",
    context: Sequence[str] = (),
    indent: str = "",
    width: int = 0,
    err: bool = False,
) -> None:
    """Print one finding.

    Args:
        word: shown instead of the severity, for a check: its status.
        context: lines between what is wrong and why, e.g. the line of the script after a bar.
        width: columns at which to wrap; 0 leaves every sentence on one line.
        err: write to standard error.
    """
    usual, color = WORDS[finding.severity]
    place, word, rule = f"{finding.where}: " if finding.where else "", word or usual, f"[{finding.rule}]"
    head = _filled(f"{place}{word}: {finding.message} {rule}", indent, width)
    before, _, after = head.partition(f"{word}: ")
    styled = f"{before}{click.style(word, fg=color)}: {after.removesuffix(rule)}{click.style(rule, dim=True)}"
    inner = indent + "    "
    lines = [styled, *(click.style(inner + line, dim=True) for line in context)]
    if finding.reason:
        lines.append(_filled(finding.reason, inner, width))
    for number, line in enumerate(finding.remedy.splitlines()):
        label = click.style("hint:", fg="cyan") if number == 0 else "     "
        lines.append(_filled(f"hint: {line}", inner, width).replace("hint:", label, 1))
    click.echo(harmless("\n".join(lines)), err=err)


def show_checks(report: Report, program: str = "stackyard") -> None:
    """Print the checks of a report that did not pass, the stack's own that failed with the last lines of their output.

    Args:
        program: this program with its global options, for the commands in hints.
    """
    for check in report.problems():
        has_output = check.kind == "own" and check.status in ("failed", "warned")
        output = check.detail.strip().splitlines()[:-1] if has_output else []
        finding = check.finding
        remedy = finding.remedy.replace("stackyard run ", f"{program} run ")
        show_finding(
            replace(finding, remedy=remedy),
            word=check.status,
            context=[f"| {line}" for line in output[-_OUTPUT_LINES:]],
            indent="    ",
        )


def _filled(text: str, indent: str, width: int) -> str:
    if not width:
        return indent + text
    more = indent + "    "
    return textwrap.fill(text, width, initial_indent=indent, subsequent_indent=more, break_on_hyphens=False)
