"""Shared by `extend`, `update` and `rebase`: change the file of an extension, and deploy it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from stackyard.cli.context import Context
from stackyard.cli.output import echo, show_json
from stackyard.core.errors import StackyardError
from stackyard.core.late import dataclass
from stackyard.yard.api import BuildRecord, Yard, record_of

if TYPE_CHECKING:
    from stackyard.upkeep.api import ExtensionChange


@dataclass(frozen=True)
class DeployOptions:
    """The options for the deploy of a changed extension and its display."""

    dry_run: bool = False
    as_json: bool = False
    accept: tuple[str, ...] = ()
    renew: bool = False


def carry_out(context: Context, name: str, change: ExtensionChange, options: DeployOptions) -> None:
    """Change the files of an extension and deploy it; they are restored on failure.

    Raises:
        StackyardError: it cannot be solved or built.
        click.exceptions.Exit: it was built but not published; the failures have been shown.
    """
    if options.dry_run:
        _dry_run(context, name, change, options)
        return
    from stackyard.cli.display import display
    from stackyard.cli.publish.deploy import report
    from stackyard.upkeep.api import deploy_changed

    workspace = context.workspace()
    before = recorded(workspace.yard, name)
    with display() as progress:
        result = deploy_changed(
            workspace,
            name,
            change,
            progress,
            accept=options.accept,
            renew=options.renew,
            command=context.command,
        )
    if result.ok and not options.as_json:
        show_difference(before, recorded(workspace.yard, name))
    report(context, result, workspace, progress.notices, options.as_json)


def recorded(yard: Yard, name: str) -> BuildRecord | None:
    """The record of an extension's present revision; None before its first deploy."""
    try:
        return record_of(yard, name)
    except StackyardError:
        return None


def show_difference(before: BuildRecord | None, after: BuildRecord | None) -> None:
    """Print the packages that a change added, removed or replaced, if there was a previous revision."""
    if before is None or after is None or before.module == after.module:
        return
    from stackyard.lock.api import compare_packages

    echo(f"{before.module} -> {after.module}")
    for line in compare_packages(before.packages, after.packages).lines():
        echo(f"    {line}")


def _dry_run(context: Context, name: str, change: ExtensionChange, options: DeployOptions) -> None:
    from stackyard.cli.display import display
    from stackyard.cli.publish.deploy import plan_line, plan_row
    from stackyard.upkeep.api import preview_changed

    workspace = context.workspace()
    before = recorded(workspace.yard, name)
    with display() as progress:
        tasks = preview_changed(workspace, name, change, progress, accept=options.accept, renew=options.renew).tasks
    rows = [plan_row(task, task.action, workspace) for task in tasks]
    added = [[f"{p.name} {p.version}" for p in task.locked.packages] for task in tasks]
    if options.as_json:
        bases = [task.variant.base.id if task.variant.base else "" for task in tasks]
        show_json({"dry_run": True, "revisions": rows, "packages": added, "bases": bases})
        return
    for task, row, packages in zip(tasks, rows, added, strict=True):
        echo(plan_line(row))
        if task.variant.base:
            echo(f"    on {task.variant.base.id}" + _instead(before, task.variant.base.id))
        echo(f"    packages of its own: {', '.join(packages) or 'none'}")


def _instead(before: BuildRecord | None, base: str) -> str:
    old = before.base_id if before is not None else ""
    return f" (before: {old})" if old not in ("", base) else ""
