"""What `bench` and `tune` have in common on the command line: the question about the price, and how to go on."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

import click

from stackyard.cli.context import Context
from stackyard.cli.output import echo
from stackyard.core.errors import InputError, StackyardError, StopSignal


def confirm_price(context: Context, node_hours: float | None, what: str, limited: str, *, agreed: bool) -> None:
    """Ask about more node-hours than the site lets a study take without a question.

    Args:
        node_hours: at most; None: unknown, without a time limit.
        what: what is submitted, for the question.
        limited: what ``-t`` limits.

    Raises:
        InputError: the limit is exceeded without a terminal to ask on, or you decline.
    """
    limit = context.site().bench.confirm_node_hours
    if agreed or not limit or (node_hours is not None and node_hours <= limit):
        return
    price = "an unknown number of node-hours" if node_hours is None else f"at most {node_hours:.4g} node-hours"
    if sys.stdin.isatty() and click.confirm(f"{price}; submit {what}?", err=True):
        return
    raise InputError(f"not submitted: {price}; this site asks above {limit:g}",
                     hint=f"add --yes; -t limits each {limited}")  # fmt: skip


def price_of(node_hours: float | None) -> str:
    """Node-hours in words."""
    return "node-hours unknown without -t" if node_hours is None else f"at most {node_hours:.4g} node-hours"


@contextmanager
def continued_by(line: str, what: str, how: str) -> Iterator[None]:
    """Say how to go on after an interruption or an error.

    Args:
        line: the command line.
        what: what it does: ``runs what is missing``.
        how: ``jobs``: submitted jobs go on meanwhile.
    """
    try:
        yield
    except (KeyboardInterrupt, StopSignal):
        echo(f"\n{'submitted jobs go on; ' if how == 'jobs' else ''}`{line}` {what}", err=True)
        raise
    except StackyardError as error:
        error.hint = "; ".join(filter(None, [error.hint, line]))
        raise
