"""What the ranks of a function have returned or raised, read from the run directory."""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from stackyard.launch.api.failures import RankFailed, RemoteTraceback, RunFailed
from stackyard.launch.api.handles import Run
from stackyard.launch.records.record import RunStatus


def outcomes_in(directory: Path, attempt: int) -> list[dict[str, Any]]:
    """What the ranks of an attempt have kept, by rank; `stackyard.launch.node.call` writes it.

    Those of an earlier attempt may have been more, on more nodes.
    """
    found = [pickle.loads(path.read_bytes()) for path in sorted(directory.glob("*.pkl"))]
    return [each for each in found if each["attempt"] == attempt]


def is_complete(outcomes: Sequence[dict[str, Any]]) -> bool:
    """Whether every rank has returned."""
    return bool(outcomes) and len(outcomes) == outcomes[0]["ranks"] and all(each["ok"] for each in outcomes)


def values_of(outcomes: Sequence[dict[str, Any]]) -> list[list[Any]]:
    """What each rank returned: a list of the results of its calls."""
    return [pickle.loads(each["values"]) for each in outcomes]


def failure_of(run: Run, status: RunStatus, outcomes: Sequence[dict[str, Any]]) -> BaseException:
    """Why a run has no results: the exception of the rank that failed first, else how the run ended."""
    raised = {each["rank"]: each for each in outcomes if not each["ok"]}
    if raised and status.state == "failed":
        first = (status.first or {}).get("task", -1)
        return raised_by(raised.get(first) or raised[min(raised)])
    if status.ended_well:
        have = {each["rank"] for each in outcomes}
        ranks = outcomes[0]["ranks"] if outcomes else 1
        missing = ", ".join(str(rank) for rank in range(ranks) if rank not in have)
        return RunFailed(run, status, f"rank {missing} exited with status 0 before the function returned")
    return RunFailed(run, status)


def raised_by(outcome: dict[str, Any]) -> BaseException:
    """The exception of a rank, with its traceback as the cause."""
    rank, host, text = outcome["rank"], outcome["host"], outcome["text"]
    with suppress(Exception):
        error = pickle.loads(outcome["error"])
        if isinstance(error, Exception):
            error.__cause__ = RemoteTraceback(rank, host, text)
            return error
    kind = outcome["kind"]
    message = f"{kind}: {outcome['message']}" if kind else outcome["message"]
    return RankFailed(message, rank=rank, host=host, kind=kind, text=text, hint=outcome["hint"] or None)
