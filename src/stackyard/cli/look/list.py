"""``stackyard list``: the published revisions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from stackyard.cli.context import Context
from stackyard.cli.help import Verb
from stackyard.cli.output import echo, show_json, show_notice, show_table, show_text
from stackyard.core.findings import human_bytes
from stackyard.yard.api import RevisionPaths, Yard, listing, size_of_row

if TYPE_CHECKING:
    from stackyard.yard.api import Usage

COLUMNS = ("module", "", "created", "short names", "state")
SIZES = ("size", "files")
USES = ("uses", "last used")
SIGNED = ("signed by",)
BAD = ("withdrawn", "failed", "removed", "missing", "damaged")
COLOURS = {**dict.fromkeys(("unverified", "built", "held"), "yellow"), **dict.fromkeys(BAD, "red")}
WHY = {
    "failed": "failed its last verification:",
    "held": "was not published because a required check was skipped:",
    "removed": "was removed; it can be brought back:",
    "missing": "is missing:",
    "damaged": "has a damaged record:",
}
"""What leads to the place where the reason for a state is, by state."""

EXAMPLES = (
    ("the revisions that users can load", "stackyard list"),
    ("how many bytes and files each takes on disk", "stackyard list --size"),
    ("all revisions with their paths, for a program", "stackyard list --all --json"),
)


@click.command(cls=Verb, examples=EXAMPLES)
@click.option("--all", "everything", is_flag=True, help="Include withdrawn, removed, missing, unpublished ones.")
@click.option("--size", is_flag=True, help="Add bytes and files on disk, which reads every record.")
@click.option("--usage", "with_usage", is_flag=True, help="Add how often each was used, and when last.")
@click.option("--signed", is_flag=True, help="Add who signed each, which asks ssh-keygen about every one.")
@click.option("--json", "as_json", is_flag=True, help="Print a list of objects.")
@click.pass_obj
def command(context: Context, everything: bool, size: bool, with_usage: bool, signed: bool, as_json: bool) -> None:
    """List the published revisions of this yard and of the site's yard."""
    yard = context.yard(reading=True)
    rows = listing(yard, everything=everything)
    if with_usage:
        uses = {str(ancestor.root): _counts(ancestor) for ancestor in yard.lineage()}
        rows = [{**row, **_used(uses[row["yard"]], row["module"])} for row in rows]
    if size:
        rows = [{**row, "size": size_of_row(row)} for row in rows]
    if signed:
        rows = [{**row, "signatures": _signatures(row)} for row in rows]
    if as_json:
        show_json(rows)
        return
    if not rows:
        echo(f"no published revisions in {yard.root}; publish one: stackyard deploy FILE")
        return
    yards = list(dict.fromkeys(row["yard"] for row in rows))
    for number, root in enumerate(yards):
        if len(yards) > 1:
            show_text(("\n" if number else "") + f"in {root}:")
        columns = COLUMNS + SIZES * size + USES * with_usage + SIGNED * signed
        show_table([_cells(row) for row in rows if row["yard"] == root], columns)
    _show_behind(yard, rows)
    if any(row["default"] for row in rows):
        echo("(D): default")
    for row in rows:
        if row["state"] in WHY:
            echo(f"{row['module']} {WHY[row['state']]} {row['report_file'] or row['path']}")


def _show_behind(yard: Yard, rows: Sequence[Mapping[str, Any]]) -> None:
    """Print a line for each extension of this yard whose base was replaced or removed."""
    if not yard.above():
        return
    from stackyard.upkeep.api import extension_standing

    for row in (r for r in rows if r["yard"] == str(yard.root) and r["published"] and r["default"]):
        status = extension_standing(RevisionPaths.of(row["path"]), yard)
        if status and status.newer:
            reason = status.problem or f"is behind its base: {status.newer.module}"
            echo(f"{row['module']}{':' if status.problem else ''} {reason}; `stackyard rebase {row['stack']}`")
        elif status and status.problem:
            echo(f"{row['module']}: {status.problem}")


def _cells(row: Mapping[str, Any]) -> dict[str, str]:
    unpublished = ", not published" if row["state"] == "failed" and not row["published"] else ""
    state = click.style(row["state"] + unpublished, fg=COLOURS.get(row["state"]))
    return {
        "module": row["module"],
        "": "(D)" if row["default"] else "",
        "state": state
        + (f", deprecated {row['deprecated']}" if row["deprecated"] else "")
        + _retired(row)
        + _adopted(row),
        "created": row["created"][:16].replace("T", " "),
        "short names": " ".join(alias.partition("/")[2] for alias in row["aliases"]),
        **_size(row.get("size") or {}),
        "uses": f"{row['usage']['uses']:,}" if "usage" in row else "",
        "last used": row["usage"]["last"] or "never" if "usage" in row else "",
        "signed by": "; ".join(row.get("signatures", ())) or "unsigned",
    }


def _counts(yard: Yard) -> dict[str, Usage] | None:
    """The uses of a yard's revisions; None, with a notice, if only its owner may see them."""
    from stackyard.yard.api import read_usage  # late: few lists show them

    try:
        return read_usage(yard)
    except PermissionError:
        show_notice(f"permission denied: {yard.usage}; its owner sees how often the revisions are used")
        return None


def _used(counts: Mapping[str, Usage] | None, module: str) -> dict[str, Any]:
    if counts is None:
        return {}
    usage = counts.get(module)
    return {"usage": {"uses": usage.total if usage else 0, "last": usage.last if usage else ""}}


def _signatures(row: Mapping[str, Any]) -> list[str]:
    from stackyard.yard.api import signature_demand, signatures_of

    demand = signature_demand(Yard(Path(row["yard"])))
    return [str(signature) for signature in signatures_of(RevisionPaths.of(row["path"]), demand)]


def _retired(row: Mapping[str, Any]) -> str:
    use = f": use {row['successor']}" if row["successor"] else ""
    return f", retired {row['retired']}{use}" if row["retired"] else ""


def _adopted(row: Mapping[str, Any]) -> str:
    return f", adopted: {row['adopted']}" if row["adopted"] else ""


def _size(size: Mapping[str, Any]) -> dict[str, str]:
    if not size:
        return dict.fromkeys(SIZES, "")
    inside = f" ({size['entries']:,} inside)" if size["form"] != "prefix" else ""
    return {"size": human_bytes(size["bytes"]), "files": f"{size['files']:,}{inside}"}
