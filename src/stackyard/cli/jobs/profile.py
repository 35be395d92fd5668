"""``stackyard profile``: a trace of a run that is running."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import click

from stackyard.cli.context import Context
from stackyard.cli.help import verb
from stackyard.cli.output import echo, show_error, show_json, show_notice
from stackyard.core.errors import InputError, StackyardError

if TYPE_CHECKING:
    from stackyard.launch.api.profiling import LiveProfile

STEPS = 5
_UNITS = {"s": 1.0, "m": 60.0, "": 1.0}


@verb(
    ("five steps of the last run of this directory", "stackyard profile last"),
    (
        "ten seconds of ranks 0 and 8, with the shapes of tensors",
        "stackyard profile 003 --for 10s --ranks 0,8 --shapes",
    ),
)
@click.argument("run", metavar="RUN")
@click.option("--steps", type=click.IntRange(1), metavar="N", help=f"Whole steps of training. Default: {STEPS}.")
@click.option("--for", "time", metavar="TIME", help="Instead of steps, a time: 10s, 2m.")
@click.option("--ranks", metavar="LIST", help="Ranks, e.g. 0,8. Default: the first of each node.")
@click.option("--shapes", is_flag=True, help="With the shapes of tensors (PyTorch).")
@click.option("--memory", is_flag=True, help="With allocations (PyTorch).")
@click.option("--json", "as_json", is_flag=True, help="Print the traces as JSON.")
def command(
    context: Context, run: str, steps: int | None, time: str | None, ranks: str | None, shapes: bool, memory: bool,
    as_json: bool,
) -> None:  # fmt: skip
    """Trace RUN while it is running: programs of PyTorch, TensorFlow and JAX, without a change to them.

    The traces are in profile/ of the run directory; `stackyard report RUN` shows them. Only the user who started a run
    can profile it. The launch must be reachable from here: else run the command on the node where it runs.
    """
    from stackyard.launch.api.profiling import ProfileRequest, profile_run
    from stackyard.launch.api.runs import find_run

    if steps and time:
        raise InputError("cannot use --steps with --for", hint="leave one of them out")
    seconds = _seconds(time) if time else 0.0
    request = ProfileRequest(
        0 if seconds else steps or STEPS, seconds, _ranks(ranks) if ranks else (), shapes, memory,
    )  # fmt: skip
    paths = find_run(run, context.job_workspace().runs)
    traced = profile_run(paths, request, (lambda _: None) if as_json else show_notice)
    _show(traced, as_json)
    if not any(one.files for one in traced.ranks):
        why = next((one.error for one in traced.ranks if one.error), "no process has written one")
        raise StackyardError(f"no trace of {paths.name}: {why}")


def _show(traced: LiveProfile, as_json: bool) -> None:
    """Print the files, and what went wrong with each rank."""
    if as_json:
        ranks = [{"rank": o.rank, "host": o.host, "files": list(o.files), "error": o.error} for o in traced.ranks]
        show_json({"directory": str(traced.directory), "trace": traced.trace, "ranks": ranks})
        return
    for one in traced.ranks:
        for name in one.files:
            echo(traced.directory / name)
        if one.error:
            show_error(StackyardError(f"rank {one.rank} on {one.host}: {one.error}"))


def _seconds(text: str) -> float:
    """``10s``, ``2m`` or ``10``. Raises InputError."""
    match = re.fullmatch(r"([0-9]{1,6}(?:\.[0-9]{1,3})?)(s|m|)", text)
    if not match or not float(match[1]):
        raise InputError(f"--for {text}: not a time", hint="use e.g. --for 10s or --for 2m")
    return float(match[1]) * _UNITS[match[2]]


def _ranks(text: str) -> tuple[int, ...]:
    """``0,8``. Raises InputError."""
    if not re.fullmatch(r"\d{1,9}(,\d{1,9})*", text):
        raise InputError(f"--ranks {text}: not a list of ranks", hint="use e.g. --ranks 0,8")
    return tuple(dict.fromkeys(int(rank) for rank in text.split(",")))
