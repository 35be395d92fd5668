"""What `extend`, `update` and `rebase` have in common: change the file of an extension, and deploy it."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

from stackyard.cli.context import Context
from stackyard.cli.output import echo, show_json, show_notice
from stackyard.core.errors import StackyardError
from stackyard.core.late import dataclass
from stackyard.host.files.scratch import scratch
from stackyard.upkeep.api import ExtensionFiles, changed_extension
from stackyard.yard.api import BuildRecord, Yard, record_of

if TYPE_CHECKING:
    from stackyard.deploy.api import Request

Change = Callable[[ExtensionFiles], ExtensionFiles]


@dataclass(frozen=True)
class Wanted:
    """How the deploy of a changed extension is done and shown."""

    dry_run: bool = False
    as_json: bool = False
    accept: tuple[str, ...] = ()
    renew: bool = False


class _NotPublished(Exception):
    """The deploy reported what failed; the file goes back to what it was."""


def carry_out(context: Context, name: str, change: Change, wanted: Wanted) -> None:
    """Change the files of an extension and deploy it; they stay as they were where that fails.

    Raises:
        StackyardError: it cannot be solved or built.
        click.exceptions.Exit: it was built and not published; what failed has been shown.
    """
    yard = context.yard()
    if wanted.dry_run:
        _dry_run(context, yard, name, change, wanted)
        return
    from stackyard.cli.display import display
    from stackyard.cli.publish.deploy import report
    from stackyard.deploy.api import building, deploy

    before = recorded(yard, name)
    site = context.site()
    with ExitStack() as open_until_shown:
        held = open_until_shown.enter_context(building(yard, site, [name], show_notice))
        try:
            with changed_extension(yard.extension(name), change) as file, display() as progress:
                request = _request(context, yard, file, wanted)
                result = deploy(request, progress, held)
                if not result.ok:
                    raise _NotPublished
        except _NotPublished:
            pass
    if result.ok and not wanted.as_json:
        show_difference(before, recorded(yard, name))
    report(context, result, request, progress.notices, wanted.as_json)


def recorded(yard: Yard, name: str) -> BuildRecord | None:
    """The record of what an extension loads now; None before its first deploy."""
    try:
        return record_of(yard, name)
    except StackyardError:
        return None


def show_difference(before: BuildRecord | None, after: BuildRecord | None) -> None:
    """The packages that a change added, removed or replaced, where there was something before."""
    if before is None or after is None or before.module == after.module:
        return
    from stackyard.lock.api import compare_packages

    echo(f"{before.module} -> {after.module}")
    for line in compare_packages(before.packages, after.packages).lines():
        echo(f"    {line}")


def _request(context: Context, yard: Yard, file: Path, wanted: Wanted) -> Request:
    from stackyard.cli.publish.stacks import load_stacks
    from stackyard.deploy.api import Request, hashes_as_read
    from stackyard.lock.api import Update

    site = context.site()
    stacks = load_stacks([file], site, yard, None, None)
    return Request(
        stacks, site, yard, accept=wanted.accept, update=Update(wanted.renew), command=context.command,
        read=hashes_as_read(stacks, site),
    )  # fmt: skip


def _dry_run(context: Context, yard: Yard, name: str, change: Change, wanted: Wanted) -> None:
    from dataclasses import replace

    from stackyard.cli.display import display
    from stackyard.cli.publish.deploy import plan_line, plan_row
    from stackyard.deploy.api import lock_all, plan_deploy, require_deployable, solving

    site = context.site()
    before = recorded(yard, name)
    with scratch("dry-run") as folder:
        change(ExtensionFiles.read(yard.extension(name))).write(folder / name)
        request = _request(context, yard, folder / name / "stack.yaml", wanted)
        require_deployable(request)
        with solving(yard, site, lambda: folder / "yard", dry_run=True) as apart, display() as progress:
            tasks = plan_deploy(request, lock_all(replace(request, yard=apart), progress))
    rows = [plan_row(task, task.action, yard, site) for task in tasks]
    added = [[f"{p.name} {p.version}" for p in task.locked.packages] for task in tasks]
    if wanted.as_json:
        bases = [task.variant.base.id if task.variant.base else "" for task in tasks]
        show_json({"dry_run": True, "revisions": rows, "packages": added, "bases": bases})
        return
    for task, row, packages in zip(tasks, rows, added, strict=True):
        echo(plan_line(row))
        if task.variant.base:
            echo(f"    on {task.variant.base.id}" + _instead(before, task.variant.base.id))
        echo(f"    packages of its own: {', '.join(packages) or 'none'}")


def _instead(before: BuildRecord | None, base: str) -> str:
    old = before.base.id if before is not None and before.base is not None else base
    return f" (before: {old})" if old != base else ""
