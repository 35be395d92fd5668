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
from stackyard.yard.api import Yard, loaded_revisions


@verb(
    ("all your extensions, the loaded ones marked", "stackyard status"),
    ("one of them, for a program", "stackyard status mine --json"),
)
@click.argument("name", required=False, metavar="[NAME]")
@click.option("--json", "as_json", is_flag=True, help="Print a list of objects.")
def command(context: Context, name: str | None, as_json: bool) -> None:
    """Show your extensions: base, packages of their own, and what was installed since they were recorded."""
    from stackyard.upkeep.api import chosen_extension, extension_names

    yard = context.yard()
    names = [chosen_extension(yard, name)] if name is not None else extension_names(yard)
    loaded = {entry.module for entry in loaded_revisions(yard, os.environ)}
    rows = [_row(yard, module, loaded) for module in names]
    if as_json:
        show_json(rows)
        return
    if not rows:
        echo(f"no extensions in {yard.root}; create one: stackyard extend --name NAME --pip REQUIREMENT")
    for row in rows:
        show_text("\n".join(_lines(row)))


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
