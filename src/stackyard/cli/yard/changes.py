"""Shows the difference between two generations, for `history`, `rollback` and `deploy --dry-run`."""

from __future__ import annotations

from collections.abc import Iterator

import click

from stackyard.cli.tables import show_line
from stackyard.yard.api import Changes

INDENT = "    "


def show_changes(changes: Changes) -> None:
    """Print one line for each added, removed or changed revision, and for each changed default."""
    for line in _lines(changes):
        show_line(f"{INDENT}{line}", len(INDENT) + 2)


def _lines(changes: Changes) -> Iterator[str]:
    for module in changes.added:
        yield f"{click.style('+', fg='green')} {module}"
    for module in changes.withdrawn:
        yield f"{click.style('-', fg='red')} {module}  withdrawn: hidden, loads by its full name"
    for module in changes.removed:
        yield f"{click.style('-', fg='red')} {module}  removed: its files are put aside"
    for module in changes.missing:
        yield f"{click.style('-', fg='red')} {module}  missing: its files no longer exist"
    for module, words in changes.relabelled.items():
        yield f"{click.style('~', fg='yellow')} {module}  {'; '.join(words)}"
    for stack, (old, new) in changes.defaults.items():
        if new:
            yield f"{click.style('D', fg='cyan')} {stack}  loads {new}" + (f" (before: {old})" if old else "")
        else:
            yield f"{click.style('D', fg='cyan')} {stack}  has no default (before: {old})"
