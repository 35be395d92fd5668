"""Runs with logs that were written by hand, to be read as if they had been launched."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from stackyard.launch.records.paths import RunPaths
from stackyard.launch.records.record import RunRecord, RunStatus, write_record, write_status
from stackyard.study.metrics.measured import Measured, Value
from stackyard.study.metrics.model import Metric
from stackyard.study.metrics.read import read_run


def run_of(
    directory: Path, *logs: str | bytes, state: str = "done", name: str = "2026-11-28-001", **record: Any
) -> RunPaths:
    """A run that has ended, with the log of each rank."""
    paths = RunPaths(directory / "runs" / name)
    paths.main.logs.mkdir(parents=True)
    intent = {"program": ["train.py"], "nodes": 1, **record.pop("intent", {})}
    write_record(paths, RunRecord(name, "2026-11-28", "launch", ("stackyard",), intent, **record))
    write_status(paths, RunStatus(state=state, code=0, started=1000, ended=2000, job="77"))
    for rank, text in enumerate(logs):
        paths.main.rank_log(rank).write_bytes(text.encode() if isinstance(text, str) else text)
    return paths


def read(
    directory: Path, *logs: str | bytes, metrics: tuple[Metric, ...] = (), state: str = "done", **how: Any
) -> Measured:
    """What is read of such a run."""
    return read_run(run_of(directory, *logs, state=state), metrics, energy=False, **how)


def first(measured: Measured) -> Value:
    """The first value of a run without problems."""
    assert not measured.problems, measured.problems
    return measured.values[0]
