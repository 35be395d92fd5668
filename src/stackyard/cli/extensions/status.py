"""``stackyard status``: your extensions, and how they differ from their records."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

import click

from stackyard.cli.context import Context
from stackyard.cli.help import verb
from stackyard.cli.output import echo, show_json, show_text
from stackyard.core.errors import StackyardError
from stackyard.core.findings import some
from stackyard.yard.api import Yard, listing, loaded_revisions


@verb(
    ("all your extensions, the loaded ones marked", "stackyard status"),
    ("one of them, for a program", "stackyard status mine --json"),
    ("of a run", "stackyard status last"),
)
@click.argument("name", required=False, metavar="[NAME | RUN]")
@click.option("--json", "as_json", is_flag=True, help="Print a list of objects.")
@click.pass_context
def command(ctx: click.Context, context: Context, name: str | None, as_json: bool) -> None:
    """Show your extensions: base, packages of their own, and what was installed since they were recorded.

    Without extensions: the stacks of your yard, and the runs of this directory. Of a RUN: as `stackyard runs show`.
    """
    from stackyard.cli.jobs import runs
    from stackyard.upkeep.api import chosen_extension, extension_names

    yard = context.yard()
    if name is not None and name not in extension_names(yard) and runs.is_run(context, name):
        ctx.invoke(runs.show, run=name, as_json=as_json)
        return
    names = [chosen_extension(yard, name)] if name is not None else extension_names(yard)
    loaded = {entry.module for entry in loaded_revisions(yard, os.environ)}
    rows = [_row(yard, module, loaded) for module in names]
    if as_json:
        show_json(rows)
        return
    if not rows:
        echo(f"no extensions in {yard.root}; create one: stackyard extend --name NAME --pip REQUIREMENT")
        _others(ctx, yard)
    for row in rows:
        show_text("\n".join(_lines(row)))


def _others(ctx: click.Context, yard: Yard) -> None:
    """What one may look for instead: the yard's own stacks, and the runs of this directory."""
    from stackyard.cli.jobs import runs

    stacks = sorted({row["module"] for row in listing(Yard(yard.root))})
    if stacks:
        echo(f"stacks of this yard (stackyard list): {some(stacks, 10)}")
    ctx.invoke(runs.command, everywhere=False, as_json=False)


def _row(yard: Yard, name: str, loaded: set[str]) -> dict[str, Any]:
    """The status of one extension."""
    from stackyard.upkeep.api import base_standing, drifted, used_extension

    try:
        record = used_extension(yard, name)
    except StackyardError as error:
        return {"name": name, "problem": error.message, "module": "", "base": "", "newer": "", "drift": [], "own": []}
    status = base_standing(record.base, yard) if record.base else None
    return {
        "name": name,
        "module": record.module,
        "loaded": record.module in loaded,
        "base": record.base_id,
        "newer": status.newer.module if status and status.newer else "",
        "problem": status.problem if status else "",
        "own": [f"{p.name} {p.version}" for p in record.own_packages] if record.base else [],
        "drift": [{**asdict(distribution), "shown": distribution.shown} for distribution in drifted(record)],
        "file": str(yard.extension(name) / "stack.yaml"),
    }


def _lines(row: dict[str, Any]) -> Iterator[str]:
    title = click.style(row["module"] or row["name"], bold=True)
    yield f"{title}{'  (loaded)' if row.get('loaded') else ''}" + (f"  on {row['base']}" if row["base"] else "")
    if row["problem"]:
        yield f"    {click.style('problem:', fg='red')} {row['problem']}"
    if row["newer"] and row["problem"]:
        yield f"    `stackyard rebase {row['name']}` puts it on {row['newer']}"
    elif row["newer"]:
        yield f"    behind: {row['newer']} is published; `stackyard rebase {row['name']}` moves it there"
    if row["own"]:
        yield f"    packages of its own: {', '.join(row['own'])}"
    if row["drift"]:
        yield "    installed since, and not recorded:"
        yield from (f"        {item['shown']}" for item in row["drift"])
        yield f"    record it: stackyard update {row['name']}; remove it: stackyard update --reset {row['name']}"
    elif row["module"]:
        yield "    as recorded"
