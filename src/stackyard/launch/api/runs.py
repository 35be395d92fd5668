"""Recorded runs: listed, found, followed, cancelled, compared. Standard library only."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stackyard.core.errors import InputError
from stackyard.launch.node.step import StepFile
from stackyard.launch.records.find import compare, find_run, handle, known_runs, row
from stackyard.launch.records.follow import follow
from stackyard.launch.records.outcome import StepResult
from stackyard.launch.records.paths import MANY_RANKS, RunPaths
from stackyard.launch.records.profiled import profiled
from stackyard.launch.records.record import RunRecord, RunStatus, read_run, read_status
from stackyard.launch.records.status import array_tasks, cancel, current_status, why_ended

__all__ = [
    "RunPaths",
    "RunRecord",
    "RunReport",
    "RunStatus",
    "StepResult",
    "cancel",
    "compare",
    "current_status",
    "find_run",
    "first_ranks",
    "follow",
    "followed_logs",
    "handle",
    "list_runs",
    "profiled",
    "rank_log",
    "rank_logs",
    "rank_of",
    "ranks_per_task",
    "read_run",
    "read_status",
    "report",
]


@dataclass(frozen=True)
class RunReport:
    """The full report of a run.

    Attributes:
        tasks: the status of each task of an array, by its index.
        placement: planned and actual placement of the ranks; empty before the end.
        usage: the memory, the GPUs and the MPI that the ranks used; empty before the end.
        staged: the files copied to the nodes, and the speed; empty before the end, and without staging.
        preflight: the results of the preflight; empty without one.
        attempts: the results of earlier attempts, by their number.
    """

    paths: RunPaths
    record: RunRecord
    status: RunStatus
    tasks: dict[str, RunStatus]
    placement: dict[str, Any]
    preflight: dict[str, Any]
    usage: dict[str, Any]
    staged: dict[str, Any]
    attempts: dict[int, dict[str, Any]]


def list_runs(directory: Path, *, everywhere: bool = False) -> list[dict[str, Any]]:
    """The runs below a directory, oldest first, as plain values; with `everywhere` all existing runs of yours."""
    return [
        row(paths, read_run(paths), current_status(paths)) for paths in known_runs(directory, everywhere=everywhere)
    ]


def report(paths: RunPaths) -> RunReport:
    """The full report of a run now.

    Raises:
        InputError: not a run, or a record that cannot be read.
    """
    record, status = read_run(paths), why_ended(paths, current_status(paths), patience_s=0)
    before = {number: _json(paths.attempt(number) / "result.json") for number in range(1, max(1, status.attempts))}
    of_ranks = (_json(paths.placement), _json(paths.preflight), _json(paths.usage), _json(paths.staged))
    return RunReport(paths, record, status, array_tasks(paths), *of_ranks, before)


def _json(path: Path) -> dict[str, Any]:
    value: dict[str, Any] = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    return value


def rank_log(paths: RunPaths, rank: int) -> Path:
    """The log file for the output of a rank: its own, or its node's; it need not exist."""
    step = paths.main
    try:
        file = StepFile.read(step.plan)
    except (OSError, ValueError, KeyError):
        return step.rank_log(rank)
    if file.logs != "node" or not rank:
        return step.rank_log(rank)
    return step.node_log(file.place(rank)[0])


def rank_logs(paths: RunPaths) -> dict[int, Path]:
    """The logs of the ranks that have one of their own, by rank. Where nodes have logs that is the first rank alone."""
    files = {path.stem.rpartition("-")[2]: path for path in paths.main.logs.glob("rank-*.log")}
    return {int(rank): files[rank] for rank in sorted(files, key=lambda rank: (len(rank), rank)) if rank.isdecimal()}


def ranks_per_task(paths: RunPaths) -> int:
    """The ranks of each task that the launcher starts, and an agent sees as one: those of a node under torchrun."""
    try:
        return int(StepFile.read(paths.main.plan).ranks_per_task)
    except (OSError, ValueError, KeyError, TypeError, AttributeError):  # not started, or of another account and damaged
        return 1


def first_ranks(record: RunRecord) -> dict[int, str]:
    """For a run with several roles, the label of each role's first rank in the output; else empty."""
    return {role["first_rank"]: f"{role['name']} 0" for role in record.plan.get("roles", ())}


def followed_logs(paths: RunPaths, stream: str) -> dict[Path, str]:
    """The logs to follow, each with the label of its rank; they need not exist.

    Args:
        stream: ``first``: the first rank, with several roles that of each; ``all``: every rank; ``none``.
    """
    record = read_run(paths)
    firsts = first_ranks(record) or {0: "0"}
    if stream != "all":
        return {paths.main.rank_log(rank): label for rank, label in firsts.items()} if stream == "first" else {}
    layout, kept = record.plan.get("layout") or {}, record.intent.get("logs") or "auto"
    ranks = int(layout.get("ranks") or 1)
    if kept == "node" or (kept == "auto" and ranks > MANY_RANKS):
        nodes = {paths.main.node_log(node): f"node {node}" for node in range(int(layout.get("nodes") or 1))}
        return {paths.main.rank_log(0): "0", **nodes}
    return {paths.main.rank_log(rank): firsts.get(rank, str(rank)) for rank in range(ranks)}


def rank_of(paths: RunPaths, role: str, rank: int) -> int:
    """The rank, among those of all roles, of a rank within its role.

    Raises:
        InputError: the run has not started, has no such role, or that has fewer ranks.
    """
    try:
        file = StepFile.read(paths.main.plan)
    except (OSError, ValueError, KeyError) as error:
        raise InputError(f"{paths.name} has no ranks yet", hint="its job has not started") from error
    known = {one.name: one for one in file.roles}
    if role not in known:
        hint = f"use one of {', '.join(known)}" if known else "leave out --role: this run has one program"
        raise InputError(f"no role {role} in {paths.name}", hint=hint)
    if rank >= known[role].tasks:
        raise InputError(f"no rank {rank} of {role}", hint=f"its ranks are 0 to {known[role].tasks - 1}")
    return file.task_of(known[role], rank)
