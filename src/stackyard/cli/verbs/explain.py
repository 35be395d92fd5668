"""``stackyard explain``: one job as every launcher would start it, and why each flag is used."""

from __future__ import annotations

import os
import re
import shutil
import sys
import textwrap
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from stackyard.cli.context import Context
from stackyard.cli.findings import show_finding
from stackyard.cli.intents import BATCH, LAUNCHERS, PROGRAM, SHAPE, intent_options, make_intent
from stackyard.cli.output import show_json

if TYPE_CHECKING:
    from collections.abc import Sequence

    from stackyard.cli.explaining import Explained
    from stackyard.findings import Finding
    from stackyard.launch.layout.model import Layout

COLUMN = 30
"""The widest that the words of a command line may be beside what they buy."""


@click.command(
    short_help="one job on every launcher, flag by flag", context_settings={"allow_interspersed_args": False}
)
@intent_options(SHAPE, PROGRAM, BATCH)
@click.option("--as", "only", metavar="LAUNCHERS", help="Only these, with commas, e.g. jsrun,srun.")
@click.option("--picture", is_flag=True, help="Draw a node: sockets, cores, ranks, GPUs.")
@click.option("--json", "as_json", is_flag=True, help="Print everything as JSON.")
@click.pass_obj
def command(context: Context, /, program: tuple[str, ...], only: str | None, **options: Any) -> None:
    """Show how the job that `launch` or `submit` would start looks as srun, jsrun, mpirun, mpiexec, flux, and why."""
    from stackyard.cli import explaining
    from stackyard.cli.jobs import stack_in_use
    from stackyard.launch.layout import nodes, placing
    from stackyard.launch.plan.make import surroundings
    from stackyard.launch.records.record import next_run

    site = context.site()
    intent = make_intent(options, program or (() if options["job_file"] else ("train.py",)))
    layout = placing.plan_layout(intent, nodes.pick_kind(site, intent))
    names = [name.strip() for name in only.split(",")] if only else LAUNCHERS
    stack = stack_in_use(context, site, intent.stack)
    plan_context = surroundings(site, os.environ, stack)
    run = next_run(Path.cwd() / site.launch.runs)
    told = explaining.explain(intent, site, plan_context, names, str(run.root))
    if options["as_json"]:
        show_json({"layout": _layout_json(layout), "own": told.own, "launchers": told.lines, **_more_json(told)})
        return
    width = min(120, shutil.get_terminal_size((100, 24)).columns)
    _show_layout(layout, options["picture"], width)
    for name, line in told.lines.items():
        _show_line(name, line, told.own, width)
    _show_hosts(told, layout, width)
    _show_rank(told, width)
    _show_head(told, width)


def _more_json(told: Explained) -> dict[str, Any]:
    from dataclasses import asdict

    return {
        "rank": {"program": told.rank[0], "reasons": [asdict(reason) for reason in told.rank[1]]},
        "head": [{"line": " ".join((told.head[0], *r.words)), "reason": r.reason} for r in told.head[1]],
        "findings": [finding.to_json() for finding in told.findings],
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


def _show_layout(layout: Layout, picture: bool, width: int) -> None:
    from stackyard.launch.layout.picture import draw

    node = layout.node
    title = f"{_counted(layout.ranks, 'rank')} on {_counted(layout.nodes, 'node')} of kind {node.kind}"
    click.echo(click.style(title, bold=True))
    for sentence in layout.reasons:
        _wrapped(sentence, "  ", width)
    for sentence in node.assumed:
        _wrapped(sentence, "  ", width, label=("assumed:", "cyan"))
    _show_findings(layout.findings, width)
    if picture:
        click.echo("\n" + draw(replace(layout, hosts=()), width=width, color=sys.stdout.isatty()).rstrip())


def _show_findings(findings: Sequence[Finding], width: int) -> None:
    for finding in findings:
        show_finding(finding, indent="  ", width=width)


def _show_line(name: str, line: dict[str, Any], own: str, width: int) -> None:
    from stackyard.findings import Finding
    from stackyard.launch.plan.script import shown_words

    click.echo(f"\n{click.style(name, bold=True)}{', which starts the ranks here' if name == own else ''}")
    if "cannot" in line:
        _wrapped(line["cannot"], "  ", width, label=("cannot say this:", "yellow"))
        return
    options = [shown_words(reason["words"]) for reason in line["reasons"]]
    begun = " ".join(options)
    whole = line["command"].startswith(begun)
    _show_command([*options, *_options(line["command"][len(begun) + 1 :])] if whole else [line["command"]], width)
    _show_reasons([(" ".join(reason["words"]), reason["reason"]) for reason in line["reasons"]], width, cut=True)
    for file, text in line["files"].items():
        shown = text.splitlines()
        more = [f"... {len(shown) - 6} lines more"] if len(shown) > 6 else []
        click.echo(f"    {click.style(file, fg='cyan')} holds")
        for each in (*shown[:6], *more):
            click.echo(f"      | {_cut(each, width - 8)}")
    _show_findings([Finding.from_json(finding) for finding in line["findings"]], width)


def _show_command(parts: Sequence[str], width: int) -> None:
    """A command line that can be copied: continued with backslashes, an option and its value on one line."""
    lines: list[str] = []
    for part in parts:
        if lines and len(lines[-1]) + len(part) < width - 8:
            lines[-1] += f" {part}"
        else:
            lines.append(part)
    prompt = click.style("$", dim=True)
    click.echo(f"  {prompt} " + " \\\n      ".join(lines))


def _options(program: str) -> list[str]:
    """A program's words, each option with what follows it."""
    return re.split(r' (?="?-|\[)', program)


def _show_reasons(rows: Sequence[tuple[str, str]], width: int, *, cut: bool = False) -> None:
    """Words, and beside them what they buy. With `cut` long words end in dots: they are whole in the command."""
    column = min(COLUMN, max((len(words) for words, _ in rows), default=0))
    for words, reason in rows:
        shown = click.style((_cut(words, width - 4) if cut else words).ljust(column), fg="cyan")
        lines = textwrap.wrap(reason, width - column - 6)
        start = "    " if len(words) <= column else f"    {shown}\n    {' ' * column}"
        first = shown if len(words) <= column else ""
        click.echo(start + first + "  " + f"\n{' ' * (column + 6)}".join(lines))


def _show_hosts(told: Explained, layout: Layout, width: int) -> None:
    from stackyard.cli.explaining import stand_for

    names = stand_for(layout.nodes)
    if any("node1" in text for line in told.lines.values() for text in line.get("files", {}).values()):
        few = " and ".join(names) if layout.nodes < 3 else f"{names[0]} to {names[-1]}"
        click.echo()
        _wrapped(f"{few} stand{'s' * (layout.nodes == 1)} for the hosts that the job gets.", "", width)


def _show_rank(told: Explained, width: int) -> None:
    program, reasons = told.rank
    click.echo(f"\n{click.style('each rank' if 'RANK' in told.tells else 'each node', bold=True)}")
    text = (
        f"is started through rank.sh, which waits for all nodes, sets {', '.join(told.tells)} and what is listed here"
    )
    _wrapped(f"{text}, and runs", "  ", width)
    _show_command(_options(program), width)
    _show_reasons([(" ".join(reason.words), reason.reason) for reason in reasons], width)


def _show_head(told: Explained, width: int) -> None:
    prefix, reasons = told.head
    if not reasons:
        return
    click.echo(f"\n{click.style('the batch script', bold=True)} that `submit` writes begins with")
    _show_reasons([(" ".join((prefix, *reason.words)), reason.reason) for reason in reasons], width)
    _show_findings(told.findings, width)


def _wrapped(text: str, indent: str, width: int, *, label: tuple[str, str] = ("", "")) -> None:
    word, color = label
    filled = textwrap.fill(f"{word} {text}".strip(), width, initial_indent=indent, subsequent_indent=indent + "  ")
    click.echo(filled.replace(word, click.style(word, fg=color), 1) if word else filled)


def _cut(text: str, width: int) -> str:
    return text if len(text) <= width else text[: width - 3] + "..."


def _counted(number: int, thing: str) -> str:
    return f"{number} {thing}{'s' * (number != 1)}"
