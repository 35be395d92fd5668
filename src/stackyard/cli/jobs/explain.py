"""``stackyard explain``: one job as every launcher would start it, and why each flag is used."""

from __future__ import annotations

import re
import shutil
import sys
import textwrap
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import click

from stackyard.cli.context import Context
from stackyard.cli.findings import show_finding
from stackyard.cli.help import verb
from stackyard.cli.jobs.intents import LAUNCHERS, intent_options, output, requested
from stackyard.cli.output import echo, show_json, show_text
from stackyard.core.findings import counted

if TYPE_CHECKING:
    from collections.abc import Sequence

    from stackyard.core.findings import Finding
    from stackyard.launch.api.explaining import JobExplanation, Layout

COLUMN = 30
"""The widest column for the words of a command line, beside their reasons."""


@verb(
    ("a job on this site's launcher", "stackyard explain -N 2 -r 4 train.py"),
    ("and on all others", "stackyard explain -N 2 -r 4 --as all train.py"),
    ("two launchers side by side, with a picture of a node", "stackyard explain --as jsrun,srun --picture -r 6"),
    context_settings={"allow_interspersed_args": False},
)
@intent_options()
@output(
    "--as",
    "only",
    metavar="LAUNCHERS",
    help="These launchers, separated by commas, e.g. jsrun,srun; all. Default: the one used here.",
)
@output("--picture", is_flag=True, help="Draw a node: sockets, cores, ranks, GPUs.")
@output("--json", "as_json", is_flag=True, help="Print everything as JSON.")
def command(context: Context, /, program: tuple[str, ...], only: str | None, **options: Any) -> None:
    """Show how this site's launcher would start a job, and why each flag is used; with --as others, with --json all."""
    from stackyard.launch.api.explaining import explain

    workspace = context.job_workspace()
    words = program or (() if options["job_file"] or options["module"] else ("train.py",))
    intent, _ = requested(workspace, options, words, lambda: None)
    names = LAUNCHERS if only in (None, "all") else [name.strip() for name in only.split(",")]
    explanation = explain(workspace, intent, names)
    if options["as_json"]:
        lines = {"own": explanation.own, "launchers": explanation.lines}
        show_json({"layout": _layout_json(explanation.layout), **lines, **_more_json(explanation)})
        return
    own = explanation.lines.get(explanation.own, {})
    if only is None and "command" in own:  # otherwise what is planned runs elsewhere
        explanation = replace(explanation, lines={explanation.own: own})
    _show(explanation, options["picture"], min(120, shutil.get_terminal_size((100, 24)).columns))


def _show(explanation: JobExplanation, picture: bool, width: int) -> None:
    _show_layout(explanation, picture, width)
    for name, line in explanation.lines.items():
        _show_line(name, line, explanation.own, width)
    _show_hosts(explanation, width)
    _show_rank(explanation, width)
    _show_head(explanation, width)


def _more_json(explanation: JobExplanation) -> dict[str, Any]:
    from dataclasses import asdict

    return {
        "rank": {"program": explanation.rank[0], "reasons": [asdict(reason) for reason in explanation.rank[1]]},
        "head": [{"line": " ".join((explanation.head[0], *r.words)), "reason": r.reason} for r in explanation.head[1]],
        "findings": [finding.to_json() for finding in explanation.findings],
    }


def _layout_json(layout: Layout) -> dict[str, Any]:
    from dataclasses import asdict

    return {
        "node": asdict(layout.node),
        "nodes": layout.nodes,
        "ranks": layout.ranks,
        "slots": [asdict(slot) for slot in layout.slots],
        "threads": layout.threads,
        "gpu_visibility": layout.gpu_visibility,
        "reasons": list(layout.reasons),
        "findings": [finding.to_json() for finding in layout.findings],
    }


def _alike(kind: str) -> str:
    from stackyard.launch.api.explaining import THIS

    return f"like {THIS}" if kind == THIS else f"of kind {kind}"


def _show_layout(explanation: JobExplanation, picture: bool, width: int) -> None:
    from stackyard.launch.api.explaining import draw

    layout, node = explanation.layout, explanation.layout.node
    title = f"{counted(layout.ranks, 'rank')} on {counted(layout.nodes, 'node')} {_alike(node.kind)}"
    echo(click.style(title, bold=True))
    for sentence in layout.reasons:
        _wrapped(sentence, "  ", width)
    for sentence in node.assumed:
        _wrapped(sentence, "  ", width, label=("assumed:", "cyan"))
    _show_findings(layout.findings, width)
    for heading, part in explanation.drawings if picture else ():
        show_text("\n" + draw(part, width=width, color=sys.stdout.isatty(), heading=heading).rstrip())
    if picture and not explanation.drawings:
        show_text("\n" + draw(replace(layout, hosts=()), width=width, color=sys.stdout.isatty()).rstrip())


def _show_findings(findings: Sequence[Finding], width: int) -> None:
    for finding in findings:
        show_finding(finding, indent="  ", width=width)


def _show_line(name: str, line: dict[str, Any], own: str, width: int) -> None:
    from stackyard.core.findings import Finding
    from stackyard.launch.api.explaining import shown_words

    show_text(f"\n{click.style(name, bold=True)}{', the launcher used here' if name == own else ''}")
    if "cannot" in line:
        _wrapped(line["cannot"], "  ", width, label=("not supported:", "yellow"))
        return
    options = [shown_words(reason["words"]) for reason in line["reasons"]]
    begun = " ".join(options)
    whole = line["command"].startswith(begun)
    _show_command([*options, *_options(line["command"][len(begun) + 1 :])] if whole else [line["command"]], width)
    _show_reasons([(" ".join(reason["words"]), reason["reason"]) for reason in line["reasons"]], width, cut=True)
    for file, text in line["files"].items():
        shown = text.splitlines()
        more = [f"... {len(shown) - 6} more lines"] if len(shown) > 6 else []
        echo(f"    {click.style(file, fg='cyan')} contains")
        for command_line in (*shown[:6], *more):
            echo(f"      | {_cut(command_line, width - 8)}")
    _show_findings([Finding.from_json(finding) for finding in line["findings"]], width)


def _show_command(parts: Sequence[str], width: int) -> None:
    """Print a command line for copying: continued with backslashes, an option and its value on one line."""
    lines: list[str] = []
    for part in parts:
        if lines and len(lines[-1]) + len(part) < width - 8:
            lines[-1] += f" {part}"
        else:
            lines.append(part)
    prompt = click.style("$", dim=True)
    show_text(f"  {prompt} " + " \\\n      ".join(lines))


def _options(program: str) -> list[str]:
    """A program's words, each option with its value."""
    return re.split(r' (?="?-|\[)', program)


def _show_reasons(rows: Sequence[tuple[str, str]], width: int, *, cut: bool = False) -> None:
    """Print words with their reasons beside them. With `cut`, long words are truncated with dots."""
    column = min(COLUMN, max((len(words) for words, _ in rows), default=0))
    for words, reason in rows:
        shown = click.style((_cut(words, width - 4) if cut else words).ljust(column), fg="cyan")
        lines = textwrap.wrap(reason, width - column - 6)
        start = "    " if len(words) <= column else f"    {shown}\n    {' ' * column}"
        first = shown if len(words) <= column else ""
        show_text(start + first + "  " + f"\n{' ' * (column + 6)}".join(lines))


def _show_hosts(explanation: JobExplanation, width: int) -> None:
    from stackyard.launch.api.explaining import stand_for

    names = stand_for(explanation.layout.nodes)
    if any("node1" in text for line in explanation.lines.values() for text in line.get("files", {}).values()):
        few = " and ".join(names) if len(names) < 3 else f"{names[0]} to {names[-1]}"
        echo()
        _wrapped(f"{few} stand{'s' * (len(names) == 1)} for the hosts of the allocation.", "", width)


def _show_rank(explanation: JobExplanation, width: int) -> None:
    program, reasons = explanation.rank
    show_text(f"\n{click.style('each rank' if 'RANK' in explanation.identity else 'each node', bold=True)}")
    variables = ", ".join(explanation.identity)
    inside = "inside.sh" in explanation.lines[explanation.own].get("command", "")
    script = "inside.sh, in the image," if inside else "rank.sh"
    _wrapped(f"{script} waits for all nodes, sets {variables} and the variables below, and runs", "  ", width)
    _show_command(_options(program), width)
    _show_reasons([(" ".join(reason.words), reason.reason) for reason in reasons], width)


def _show_head(explanation: JobExplanation, width: int) -> None:
    prefix, reasons = explanation.head
    if reasons:
        show_text(f"\n{click.style('batch script', bold=True)}: the directives that `submit` writes")
        _show_reasons([(" ".join((prefix, *reason.words)), reason.reason) for reason in reasons], width)
    _show_findings(explanation.findings, width)


def _wrapped(text: str, indent: str, width: int, *, label: tuple[str, str] = ("", "")) -> None:
    word, color = label
    filled = textwrap.fill(f"{word} {text}".strip(), width, initial_indent=indent, subsequent_indent=indent + "  ")
    show_text(filled.replace(word, click.style(word, fg=color), 1) if word else filled)


def _cut(text: str, width: int) -> str:
    return text if len(text) <= width else text[: width - 3] + "..."
