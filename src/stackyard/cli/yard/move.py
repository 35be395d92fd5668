"""``stackyard move``: a yard at another place."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from stackyard.cli.context import Context
from stackyard.cli.help import verb
from stackyard.cli.output import echo, show_json, show_notice
from stackyard.core.errors import InputError
from stackyard.core.findings import counted, human_bytes

if TYPE_CHECKING:
    from stackyard.upkeep.api import MovePlan, MoveRequest, MoveResult


@verb(
    ("how much that would build", "stackyard move /scratch/sw --dry-run"),
    ("a yard that was renamed or copied: again where it lies", "stackyard move --here"),
)
@click.argument("newroot", metavar="[NEWROOT]", required=False, type=click.Path(path_type=Path))
@click.option("--here", is_flag=True, help="Where it lies now: it was renamed or copied.")
@click.option("--without", multiple=True, metavar="REV", help="Leave this revision out, by its full name.")
@click.option("--allow-unverified", is_flag=True, help="Publish also what had a check skipped.")
@click.option("--accept-licence", "accept", multiple=True, metavar="NAME", help="Accept a licence, as `deploy` does.")
@click.option("--dry-run", is_flag=True, help="Print what would be built, with bytes and files; write nothing.")
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
def command(
    context: Context, /, newroot: Path | None, here: bool, dry_run: bool, as_json: bool, **options: Any
) -> None:
    """Build all revisions of this yard again in NEWROOT, from their locks and the caches, and publish them there.

    Every module has the name that it has now. The old yard is only read: remove it when it is no longer used. What
    was killed continues with the same command. Nothing is published where a revision cannot be built, unless --without
    leaves it out. Exit status 3: a check does not pass there.
    """
    from stackyard.upkeep.api import MoveRequest, move_yard, plan_move

    if (newroot is None) != here:
        raise InputError("NEWROOT or --here is required, not both", hint="name a directory: stackyard move DIR")
    yard = context.yard_as_named()
    root = yard.root if newroot is None else Path(os.path.normpath(newroot.absolute()))
    request = MoveRequest(context.site(), yard, root, command=context.command, **options)
    if dry_run:
        _show_plan(plan_move(request), request, as_json)
        return
    from stackyard.cli.display import display

    with display() as progress:
        done = move_yard(request, progress, context.notice)
    _show(done, request, as_json)


def _show_plan(plan: MovePlan, request: MoveRequest, as_json: bool) -> None:
    rows = [_row(revision.entry.module, revision.record) for revision in plan.kept]
    left = [entry.module for entry in plan.rest if entry.module in request.without]
    if as_json:
        show_json({"dry_run": True, "from": str(plan.ways.source.root), "to": str(request.root), "revisions": rows,
                   "left_out": left, "notices": plan.notices})  # fmt: skip
        return
    for row in rows:
        echo(f"would {row['action']} {row['module']}  {_size(row)}")
    for module in left:
        echo(f"would leave out {module}")
    total = {key: sum(row[key] for row in rows) for key in ("bytes", "inodes", "shared_bytes", "shared_inodes")}
    echo(f"{counted(len(rows), 'revision')} to {request.root}: {_size(total)}")
    echo("shared: with a cache or other revisions; linked on the same file system, copied once on another")
    for text in plan.notices:
        show_notice(text)


def _row(module: str, record: Any) -> dict[str, Any]:
    use = record.disk
    owned = (use.bytes_new, use.inodes_new, use.bytes_shared, use.inodes_shared)
    mine = owned if record.origin.owns_files else (0, 0, 0, 0)
    return {"module": module, "action": record.origin.again, "form": record.payload.kind,
            **dict(zip(("bytes", "inodes", "shared_bytes", "shared_inodes"), mine, strict=True))}  # fmt: skip


def _size(row: dict[str, Any]) -> str:
    shared = f", {human_bytes(row['shared_bytes'])} in {row['shared_inodes']:,} shared" if row["shared_inodes"] else ""
    return f"{human_bytes(row['bytes'])} in {row['inodes']:,} files{shared}"


def _show(done: MoveResult, request: MoveRequest, as_json: bool) -> None:
    steps = _next(request)
    if as_json:
        show_json({"root": str(request.root), "generation": done.manifest.number, "reason": done.manifest.reason,
                   "revisions": done.rebuilt, "notices": done.notices, "next": steps})  # fmt: skip
        return
    echo(f"{request.root}: {counted(done.rebuilt, 'revision')}, generation {done.manifest.number}")
    for text in done.notices:
        show_notice(text)
    echo("next:")
    for step in steps:
        echo(f"  {step}")


def _next(request: MoveRequest) -> list[str]:
    """The remaining steps for the user after a move, which changes nothing outside of the yard."""
    from stackyard.inputs.api import site_root

    site, old, new = request.site, request.yard.root, request.root
    is_sites = site_root(site) is not None
    steps = [f"in {site.file}: `yard: {new}`, if it is the site's" if is_sites else f"export STACKYARD_HOME={new}"]
    if is_sites and site.modules.root:
        steps.append(f"ln -sfn {new}/modules {site.modules.root}")
    else:
        steps.append(f"users: module use {new}/modules")
    if not request.is_here:
        steps.append(f"once {old} is no longer used, remove it: chmod -R u+w {old} && rm -r {old}")
    return steps
