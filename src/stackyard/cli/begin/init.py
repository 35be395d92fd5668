"""``stackyard init``: a commented site.yaml of this machine and its scheduler."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import click

from stackyard.cli.context import Context
from stackyard.cli.help import verb
from stackyard.cli.output import echo, show_notice, show_table, show_text
from stackyard.core.findings import counted

if TYPE_CHECKING:
    from stackyard.init.api import Here, Renewal, Survey

STACK = Path("stack.yaml")


@verb(
    ("a site file of this machine", "stackyard init"),
    ("with a small job on a node of each kind", "stackyard init --probe"),
    ("what would change, months later", "stackyard init --dry-run"),
    ("a stack.yaml that begins with the environment.yml or pyproject.toml here", "stackyard init --stack"),
)
@click.option("-o", "--output", type=click.Path(path_type=Path), metavar="FILE",
              help="The file to write, or - to print it. Default: the site file in force, else your own.")  # fmt: skip
@click.option("--probe", is_flag=True, help="Submit one job of a minute to a node of each kind, and wait for it.")
@click.option("--wait", "wait_s", type=click.FloatRange(1), default=600, metavar="SECONDS", show_default=True,
              help="With --probe: how long each job may take until it has ended.")  # fmt: skip
@click.option("--stack", is_flag=True, help="Write a stack.yaml in place of a site.yaml: it begins with the "
              "environment.yml, requirements.txt or pyproject.toml of this directory.")  # fmt: skip
@click.option("--dry-run", is_flag=True, help="Show what would change; write nothing.")
@click.option("--node", is_flag=True, hidden=True)
def command(
    context: Context, output: Path | None, probe: bool, wait_s: float, stack: bool, dry_run: bool, node: bool
) -> None:
    """Look at this machine, its scheduler and its module system, and write a commented site.yaml.

    Behind every value is its origin: seen on a node, told by the scheduler, or assumed. What neither tells (which GPU
    is next to which cores, drivers, local disks) is a comment, unless --probe looks at nodes. A second time, what you
    edited stays, and what changed on the machine is shown. It asks no questions, and submits no job without --probe.
    """
    from stackyard.init.api import look, remembered, renewal, report, survey, write

    if stack:
        _begin_stack(output or STACK, dry_run=dry_run)
        return
    if node:
        show_text(report(look(os.environ)))
        return
    found = survey(os.environ)
    is_shown = str(output) == "-"
    file = context.named_site() if is_shown else output or _default(context)
    seen = {**(remembered(file) if file else {}), **(_probed(found, wait_s) if probe else {})}
    text = found.text(seen)
    if file is None or is_shown:
        show_text(text.rstrip("\n"))
        return
    made = renewal(file, text)
    if not dry_run:
        write(file, made, text, seen)
    _show(found, made, file, dry_run=dry_run)


def _begin_stack(file: Path, *, dry_run: bool) -> None:
    from stackyard.init.api import begun, keep

    text = begun(Path())
    if dry_run or str(file) == "-":
        show_text(text.rstrip("\n"))
        return
    keep(file, text)
    echo(f"wrote {file}")
    echo("next:")
    _advise(f"show --parsed {file}", "how it is read")
    _advise(f"deploy {file}", "build and publish it")


def _default(context: Context) -> Path:
    """The site file that is named; else the system's for root, and the account's own for all others."""
    from stackyard.inputs.api import SYSTEM_SITE, require_own_site

    return context.named_site() or (SYSTEM_SITE if os.geteuid() == 0 else require_own_site())


def _probed(found: Survey, wait_s: float) -> dict[str, Here]:
    from stackyard.init.api import ask_nodes

    if not found.cluster:
        show_notice("--probe: no scheduler answers here; what this machine has is in the file")
        return {}
    seen: dict[str, Here] = {}
    for kind, answer in ask_nodes(found.cluster, found.kinds, os.environ, wait_s, _tell):
        if isinstance(answer, str):
            show_notice(f"no node of {kind.name} was seen: {answer}")
        else:
            seen[kind.name] = answer
            echo(f"seen: {answer.host} of {kind.name}", err=True)
    return seen


def _tell(line: str) -> None:
    echo(f"$ {line}", err=True)


def _show(found: Survey, made: Renewal, file: Path, *, dry_run: bool) -> None:
    for sentence in found.unanswered:
        show_notice(sentence)
    what = "unchanged" if made.text == made.before else "would write" if dry_run else "wrote"
    echo(f"{what}: {file}" if what == "unchanged" else f"{what} {file}")
    if made.before is None:
        _summary(found)
    if made.changed:
        echo("what changed on the machine:")
        for line in made.changed:
            echo(f"  {line}")
    for mine, told in made.kept:
        echo(f"kept as you edited it: {' / '.join(line.strip() for line in mine) or 'lines that you removed'}")
        echo(f"  the machine says now: {' / '.join(line.strip() for line in told) or 'nothing'}")
    if made.before is None:
        _next(found, file, dry_run=dry_run)


def _summary(found: Survey) -> None:
    if not found.cluster:
        own = found.here.cores
        gpus = counted(len(found.here.machine.gpus), "GPU")
        echo(f"  no scheduler: this machine, {counted(own.cores, 'core')}, {gpus}")
        return
    nodes, queues = counted(len(found.cluster.nodes), "node"), counted(len(found.cluster.queues), "queue")
    echo(f"  {found.cluster.title}, {nodes}, {queues}")
    rows = [
        {"kind": kind.name, "nodes": str(len(kind.hosts)), "cores": str(kind.like.cores),
         "GPUs": f"{kind.like.gpus} {kind.like.gpu_model}".strip() if kind.like.gpus else "",
         "memory": f"{kind.like.memory_gib:.0f} GiB" if kind.like.memory_gib else "", "queue": kind.queue}
        for kind in found.kinds
    ]  # fmt: skip
    show_table(rows, ("kind", "nodes", "cores", "GPUs", "memory", "queue"))


def _next(found: Survey, file: Path, *, dry_run: bool) -> None:
    if dry_run:
        return
    echo("next:")
    if found.cluster and found.kinds:
        echo("  stackyard init --probe                 what no scheduler tells, by a job on a node of each kind")
    from stackyard.init.api import found as found_here

    start = STACK.name if STACK.is_file() else found_here(Path())
    if start and start != STACK.name:
        _advise("init --stack", f"a stack.yaml that begins with {start}")
    if start != "pyproject.toml":
        _advise(f"deploy {start or 'FILE'}", "build and publish a stack" + (f" from {start}" if start else ""))
    _advise("explain -N 2 train.py", "how a job would run here")


def _advise(words: str, what: str) -> None:
    echo(f"  stackyard {words}".ljust(41) + what)
