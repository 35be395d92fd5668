"""Shared by `default`, `withdraw` and `retire`, which publish one step: preview it, or do it and show the result."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING

from stackyard.cli.context import Context
from stackyard.cli.output import echo, show_json, show_notice
from stackyard.cli.yard.changes import show_changes
from stackyard.inputs.api import Workspace
from stackyard.yard.api import Entry, Manifest, StepBase, compare_generations, current_manifest

if TYPE_CHECKING:
    from stackyard.deploy.api import MakeStep, Step
    from stackyard.yard.api import StepBase, Yard


def publish_step(
    context: Context, make: MakeStep, nothing: str, back: str = "", *, dry_run: bool, as_json: bool
) -> None:
    """Publish the step that `make` creates from the current generation.

    Args:
        nothing: the text to print if it changes nothing.
        back: the words of the command that undoes it, which is shown.
    """
    from stackyard.deploy.api import changes_something
    from stackyard.upkeep.api import despite_full

    yard = context.yard()
    present = current_manifest(yard)
    base = StepBase(present, 0)
    planned = make(base)  # errors come before anything is written
    if dry_run or not changes_something(base, planned):
        change = changes_something(base, planned)
        _show(f"would publish: {planned.reason}" if change else nothing, planned.entries, present, as_json, dry_run)
        return
    now = despite_full(yard, lambda: publish(context, yard, make), show_notice)
    if as_json:
        show_json(now.to_json())
        return
    _show(f"generation {now.number}: {now.reason}", now.entries, present, as_json, dry_run)
    show_undo(context, back)


def show_undo(context: Context, words: str) -> None:
    """Print the command line that undoes what was done, if there is one."""
    if words:
        echo(f"to undo it: {context.program} {words}")


def publish(context: Context, yard: Yard, step: Callable[[StepBase], Step]) -> Manifest:
    """Publish a step, as this account and command line."""
    from stackyard.deploy.api import publish_step, writing
    from stackyard.yard.api import origin

    workspace = Workspace(context.site(), yard)
    with writing(workspace):
        return publish_step(workspace, step, origin(context.command))


def _show(title: str, now: Sequence[Entry], before: Manifest | None, as_json: bool, dry_run: bool) -> None:
    if as_json:
        show_json({"dry_run": dry_run, "reason": title, "entries": [asdict(e) for e in now]})
        return
    echo(title)
    show_changes(compare_generations(before.entries if before else (), now))
