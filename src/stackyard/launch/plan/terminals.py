"""The rank that gets your terminal or standard input: `stackyard.launch.node.terminal` runs its program."""

from __future__ import annotations

import sys
from pathlib import Path

from stackyard.core.errors import InputError
from stackyard.launch.layout.model import Layout
from stackyard.launch.plan.model import RankProgram, Reason, Wrapper
from stackyard.launch.request.intent import Intent

PROGRAM = Path(__file__).parents[1] / "node" / "terminal.py"


def wrap(intent: Intent, program: RankProgram) -> tuple[Wrapper, ...]:
    """The wrapper of this rank's program, or none.

    Raises:
        InputError: both are requested, the rank does not exist, or the ranks are not the launcher's tasks.
    """
    pipe, option = intent.stdin_rank, _option(intent)
    if program.ranks_per_task > 1 and (intent.debug_rank, pipe) != (None, None):
        raise InputError(f"{option} needs a task for each rank", hint="leave out --torchrun; Ray's workers have none")
    rank = rank_of(intent, program.layout)
    if rank is None:
        return ()
    words = (
        sys.executable,
        "-I",
        "-S",
        str(PROGRAM),
        "${STACKYARD_STEP}/terminal.json",
        "tty" if pipe is None else "pipe",
    )
    what = "your standard input" if pipe is not None else "your terminal: Ctrl-C goes to it, Ctrl-\\ ends the job"
    return (Wrapper((*words, "--"), (rank,), reasons=(Reason((option, str(rank)), f"rank {rank} has {what}"),)),)


def rank_of(intent: Intent, layout: Layout) -> int | None:
    """The rank that gets your terminal or your standard input, or None.

    Raises:
        InputError: both are requested, or the rank does not exist.
    """
    rank = intent.stdin_rank if intent.debug_rank is None else intent.debug_rank
    if intent.debug_rank is not None and intent.stdin_rank is not None:
        raise InputError("--debug-rank and --stdin contradict each other", hint="leave out one of them")
    if rank is not None and rank >= layout.ranks:
        raise InputError(f"{_option(intent)} {rank} is out of range: valid ranks are 0 to {layout.ranks - 1}")
    return rank


def in_role(own: Intent, rank: int | None) -> Intent:
    """The request of a role, with the number within the role of the selected rank; None: it is in another role."""
    numbers = {name: rank for name in ("debug_rank", "stdin_rank") if getattr(own, name) is not None}
    return own.model_copy(update=numbers)


def _option(intent: Intent) -> str:
    return "--stdin" if intent.debug_rank is None else "--debug-rank"
