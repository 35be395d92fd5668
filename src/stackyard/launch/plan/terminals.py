"""The rank that gets your terminal or your standard input: its program is run by `stackyard.launch.node.terminal`."""

from __future__ import annotations

import sys
from pathlib import Path

from stackyard.errors import InputError
from stackyard.launch.plan.model import RankProgram, Reason, Wrapper
from stackyard.launch.request.intent import Intent

PROGRAM = Path(__file__).parents[1] / "node" / "terminal.py"


def wrap(intent: Intent, made: RankProgram) -> tuple[Wrapper, ...]:
    """The wrapper of this rank's program, or none.

    Raises:
        InputError: both are requested, no such rank, or the ranks are not the launcher's tasks.
    """
    terminal, pipe = intent.debug_rank, intent.stdin_rank
    rank = pipe if terminal is None else terminal
    if rank is None:
        return ()
    option = "--stdin" if terminal is None else "--debug-rank"
    if terminal is not None and pipe is not None:
        raise InputError("--debug-rank and --stdin contradict each other", hint="leave out one of them")
    if made.ranks_per_task > 1:
        raise InputError(f"{option} needs a task for each rank", hint="leave out --torchrun; Ray's workers have none")
    if rank >= made.layout.ranks:
        raise InputError(f"{option} {rank} is out of range: valid ranks are 0 to {made.layout.ranks - 1}")
    words = (
        sys.executable,
        "-I",
        "-S",
        str(PROGRAM),
        "${STACKYARD_STEP}/terminal.json",
        "tty" if pipe is None else "pipe",
    )
    what = "your standard input" if terminal is None else "your terminal: Ctrl-C goes to it, Ctrl-\\ ends the job"
    return (Wrapper((*words, "--"), (rank,), reasons=(Reason((option, str(rank)), f"rank {rank} has {what}"),)),)


def refuse_roles(intent: Intent) -> None:
    """Raise InputError where a rank of a job with several roles is to get it: which one is not told by its number."""
    if intent.debug_rank is not None or intent.stdin_rank is not None:
        option = "--stdin" if intent.debug_rank is None else "--debug-rank"
        raise InputError(f"{option}: not supported in a job with roles", hint="start the program of that role alone")
