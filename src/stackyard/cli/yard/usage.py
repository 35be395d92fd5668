"""``stackyard usage``: shows how often revisions are used, by whom and when."""

from __future__ import annotations

from typing import Any

import click

from stackyard.cli.context import Context
from stackyard.cli.help import verb
from stackyard.cli.output import echo, emit, show_json, show_notice, show_table
from stackyard.inputs.api import Workspace
from stackyard.yard.api import Usage, current_entries, find_revision, read_usage


@verb(
    ("all revisions, the most used first", "stackyard usage"),
    ("one revision by month and user", "stackyard usage pytorch/2.13"),
    ("the lines that make Lmod count loads", "stackyard usage --hook lmod > SitePackage.lua"),
)
@click.argument("rev", required=False, metavar="[REV]")
@click.option("--hook", type=click.Choice(["lmod", "modules"]), help="Print what makes this module system count loads.")
@click.option("--json", "as_json", is_flag=True, help="Print a list of objects.")
def command(context: Context, rev: str | None, hook: str | None, as_json: bool) -> None:
    """List how often each revision of this yard was used, and when last; of REV by month and by user.

    `run`, `shell` and `launch` are counted where `usage: {count: true}` of the site's file asks for it, and loads of
    modules with a hook: --hook lmod for Lmod's SitePackage.lua, --hook modules for Environment Modules' siteconfig.tcl.
    """
    yard = context.yard(reading=True)
    if hook is not None:
        from stackyard.expose.api import usage_hook

        emit(usage_hook("lmod" if hook == "lmod" else "modules", Workspace(context.site(), yard)))
        return
    unread: dict[str, str] = {}
    site, usages = context.site(), read_usage(yard, unread)
    for problem in unread.values():
        show_notice(problem)
    if rev is not None:
        module = find_revision(yard, rev).module
        rows = [_row(module, usages.get(module, Usage()), anonymous=site.usage.anonymous)]
    else:
        names = {e.module for e in current_entries(yard) if e.is_visible} | usages.keys()
        rows = [_row(name, usages.get(name, Usage()), anonymous=site.usage.anonymous) for name in sorted(names)]
        rows.sort(key=lambda row: -row["uses"])
    if as_json:
        show_json(rows)
    elif rev is not None:
        _show_one(rows[0])
    else:
        _show(rows, counted=site.usage.count or bool(usages))


def _row(module: str, usage: Usage, *, anonymous: bool) -> dict[str, Any]:
    months: dict[str, int] = {}
    for day, number in sorted(usage.days.items()):
        months[day[:7]] = months.get(day[:7], 0) + number
    return {
        "module": module, "uses": usage.total, "users": len(usage.users), "last": usage.last, "months": months,
        "by": {} if anonymous else dict(usage.users.most_common()), "kinds": dict(usage.kinds),
    }  # fmt: skip


def _show(rows: list[dict[str, Any]], *, counted: bool) -> None:
    if not counted:
        echo("uses are not counted; `usage: {count: true}` in site.yaml counts them")
        return
    cells = [
        {**row, "uses": f"{row['uses']:,}", "users": str(row["users"]), "last": row["last"] or "never"} for row in rows
    ]
    show_table(cells, ("module", "uses", "users", "last"))


def _show_one(row: dict[str, Any]) -> None:
    kinds = ", ".join(f"{number:,} by {kind}" for kind, number in sorted(row["kinds"].items()))
    echo(f"{row['module']}  {row['uses']:,} uses" + (f" ({kinds})" if kinds else ""))
    for name, table in (("month", row["months"]), ("user", row["by"])):
        if table:
            show_table([{name: key, "uses": f"{number:,}"} for key, number in table.items()], (name, "uses"))
