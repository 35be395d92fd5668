"""Determines which of several failures came first, and its message. Pure."""

from __future__ import annotations

import itertools
import re
import signal
from collections.abc import Mapping, Sequence

from stackyard.core.late import dataclass

PEER_LOST = re.compile(
    r"connection (?:reset|closed|aborted) by|connection closed\b|peer closed|broken pipe|socket closed|"
    r"remote process exited|recv(?:Value|Bytes)? failed|failed to recv|lost connection|"
    r"coordination service.*(?:unavailable|shut)|"
    r"the process was asked to (?:stop|exit)|has been shut ?down",
    re.IGNORECASE,
)
"""What a program prints when another rank has ended: its failure is a consequence (Gloo, NCCL, TCPStore, gRPC, MPI)."""


WAITED = re.compile(
    r"collective operation timeout|timed out waiting \d+ ?ms|barrier timed out|client socket has timed out",
    re.IGNORECASE,
)
"""What a program prints that has waited in vain for another rank."""


@dataclass(frozen=True)
class TaskEnd:
    """A task with an exit status other than 0. `at` is the hub's clock; `how`: killed, orphaned or empty."""

    at: float
    task: int
    host: str
    code: int
    tail: tuple[str, ...] = ()
    how: str = ""


def is_consequence(one: TaskEnd) -> bool:
    """Whether a rank seems to have failed because another one had ended before it.

    Either SIGTERM or SIGINT came from a launcher that ends the other ranks, or the last lines mention a lost peer.
    """
    if one.code in (128 + signal.SIGTERM, 128 + signal.SIGINT):
        return True
    return one.code < 128 and any(PEER_LOST.search(line) for line in one.tail[-15:])


def first_of(ended: Sequence[TaskEnd]) -> tuple[TaskEnd, str]:
    """The failure to report, and why it was chosen if it is not the earliest. `ended` is not empty."""
    ordered = sorted(ended, key=lambda one: one.at)
    for one in ordered:
        if not is_consequence(one):
            if one is ordered[0]:
                return one, ""
            before = ordered.index(one)
            return one, f"{before} failed just before it, as ranks do that have lost a peer"
    return ordered[0], ""


def left_early(codes: Mapping[int, int], first: TaskEnd) -> tuple[int, ...]:
    """The tasks that had ended with status 0 when `first` failed because it lost a peer; empty for another failure.

    A rank that exits before the others succeeds itself, but makes the others fail.

    Args:
        codes: the exit statuses of the tasks, in the order in which they ended.
        first: the result of `first_of`.
    """
    if first.code in (128 + signal.SIGTERM, 128 + signal.SIGINT):
        return ()
    if not any(PEER_LOST.search(line) or WAITED.search(line) for line in first.tail[-15:]):
        return ()
    return tuple(itertools.takewhile(lambda task: not codes[task], codes))


def signal_name(code: int) -> str:
    """``SIGKILL`` for 137; empty if the status is not from a signal."""
    try:
        return signal.Signals(code - 128).name if code > 128 else ""
    except ValueError:
        return ""


def describe(one: TaskEnd, who: str) -> str:
    """``rank 3 on d2 exited with status 3`` and its variants."""
    name = signal_name(one.code)
    if one.how == "orphaned":
        return f"the shell of {who} on {one.host} was killed while its program was running"
    if one.how == "killed":
        return f"{who} on {one.host} was killed with its shell"
    if name:
        return f"{who} on {one.host} was killed by signal {one.code - 128} ({name})"
    return f"{who} on {one.host} exited with status {one.code}"
