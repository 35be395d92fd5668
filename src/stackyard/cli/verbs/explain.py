"""``stackyard explain``: one job as every launcher would start it, and what each flag buys."""

from __future__ import annotations

import shutil
import sys
from typing import TYPE_CHECKING, Any

import click

from stackyard.cli.context import Context
from stackyard.cli.intents import BATCH, LAUNCHERS, PROGRAM, SHAPE, intent_options, make_intent
from stackyard.cli.output import show_json
from stackyard.errors import InputError

if TYPE_CHECKING:
    from stackyard.launch.layout import Layout


@click.command(
    short_help="one job on every launcher, flag by flag", context_settings={"allow_interspersed_args": False}
)
@intent_options(SHAPE, PROGRAM, BATCH)
@click.option("--as", "only", metavar="LAUNCHERS", help="Only these, with commas, e.g. jsrun,srun.")
@click.option("--picture", is_flag=True, help="Draw a node: sockets, cores, ranks, GPUs.")
@click.option("--json", "as_json", is_flag=True, help="Print everything as JSON.")
@click.pass_obj
def command(context: Context, /, program: tuple[str, ...], only: str | None, **options: Any) -> None:
    """Show how the job that `launch` would start looks as srun, jsrun, mpirun, mpiexec, flux: every flag and why."""
    from stackyard.launch import nodes, placing

    site = context.site()
    intent = make_intent(options, program or ("train.py",))
    hosts = tuple(
        f"node{i + 1}" for i in range(intent.nodes)
    )  # mpirun and its like are told names; these stand for them
    layout = placing.plan_layout(intent, nodes.pick_kind(site, intent), hosts)
    names = [n.strip() for n in only.split(",")] if only else LAUNCHERS
    lines = {name: _line(name, layout, site, intent) for name in names}
    if options["as_json"]:
        show_json({"layout": _layout_json(layout), "launchers": lines})
        return
    _show_layout(layout, options["picture"])
    for name, line in lines.items():
        _show_line(name, line)


def _line(name: str, layout: Layout, site: Any, intent: Any) -> dict[str, Any]:
    """One launcher's command and reasons, or why it cannot express the layout."""
    from dataclasses import asdict

    from stackyard.launch import backends, launchers
    from stackyard.launch.plan import LaunchRequest
    from stackyard.launch.script import shown_words

    launcher = launchers.get(name)
    try:
        chosen, _ = backends.choose(intent)
        made = backends.get(chosen).program(intent, layout, backends.BackendContext(launcher=name))
        request = LaunchRequest(
            made.layout, site.scheduler, mpi=made.mpi, gpu_aware_mpi=made.mpi and layout.node.gpus > 0
        )
        line = launcher.line(request)
    except InputError as error:
        return {"cannot": error.message, "hint": error.hint or ""}
    return {
        "command": shown_words((*(word.replace("{step}/", "") for word in line.words), *made.argv)),
        "reasons": [{"words": [w.replace("{step}/", "") for w in r.words], "buys": r.buys} for r in line.reasons],
        "files": dict(line.files),
        "findings": [asdict(finding) for finding in line.findings],
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
        "findings": [asdict(finding) for finding in layout.findings],
    }


def _show_layout(layout: Layout, picture: bool) -> None:
    from stackyard.launch.picture import draw

    node = layout.node
    title = f"{layout.ranks} ranks on {layout.nodes} node{'s' * (layout.nodes != 1)} of kind {node.kind}"
    click.echo(click.style(title, bold=True))
    for sentence in (*layout.reasons, *node.assumed):
        click.echo(f"  {sentence}")
    for finding in layout.findings:
        color = {"refused": "red", "warning": "yellow", "note": "cyan"}[finding.severity]
        because = f" ({finding.reason})" if finding.reason else ""
        click.echo(f"  {click.style(finding.severity + ':', fg=color)} {finding.message}{because}")
        if finding.better:
            click.echo(f"    {click.style('better:', fg='cyan')} {finding.better}")
    if picture:
        width = min(120, shutil.get_terminal_size((100, 24)).columns)
        click.echo("\n" + draw(layout, width=width, color=sys.stdout.isatty()))


def _show_line(name: str, line: dict[str, Any]) -> None:
    click.echo(f"\n{click.style(name, bold=True)}")
    if "cannot" in line:
        click.echo(f"  {click.style('cannot say this:', fg='yellow')} {line['cannot']}")
        if line["hint"]:
            click.echo(f"  {click.style('do this:', fg='cyan')} {line['hint']}")
        return
    click.echo(f"  {click.style('$', dim=True)} {line['command']}")
    rows = [(" ".join(reason["words"]), reason["buys"]) for reason in line["reasons"]]
    width = min(34, max((len(words) for words, _ in rows), default=0))
    for words, buys in rows:
        gap = "\n" + " " * (6 + width) if len(words) > width else ""
        click.echo(f"    {click.style(words.ljust(width), fg='cyan')}{gap}  {buys}")
    for file, text in line["files"].items():
        shown = text.splitlines()
        more = [f"... {len(shown) - 6} lines more"] if len(shown) > 6 else []
        click.echo(f"    {click.style(file, fg='cyan')} holds")
        for each in (*shown[:6], *more):
            click.echo(f"      | {each}")
