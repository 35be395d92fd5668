"""Memory and energy of a run: what its agents recorded, and what the scheduler measured."""

from __future__ import annotations

import json
import math
import os
import time
from dataclasses import replace
from typing import Any

from stackyard.core.errors import StackyardError
from stackyard.host.files.at import read_regular
from stackyard.host.run import command
from stackyard.launch.api.runs import RunPaths, RunStatus, read_run
from stackyard.study.metrics.measured import Energy, Memory

WRONG = (OSError, ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError)
"""What a damaged usage.json raises."""
LATE_S, LOOKS = 1.0, 3
"""Accounting hears of the end of a step shortly after its launcher: how often it is asked, and the time between."""


def memories(paths: RunPaths) -> list[Memory]:
    """The most memory of each rank, as its agent saw it; empty where none saw any."""
    try:
        ranks = json.loads(read_regular(paths.usage))["ranks"]
        return [Memory(int(one["peak_bytes"]), int(one["task"]), int(one.get("gpu_peak_bytes", 0))) for one in ranks]
    except WRONG:
        return []


def memory_of(paths: RunPaths) -> Memory | None:
    """The rank that used most memory; None where no agent saw any."""
    used = memories(paths)
    most = max(used, key=lambda one: (one.peak_bytes, -one.rank), default=None)
    if most is None or not most.peak_bytes:
        return None
    return replace(most, gpu_peak_bytes=max(one.gpu_peak_bytes for one in used))


def gpu_energy_of(paths: RunPaths) -> Energy | None:
    """The energy of the run's GPUs, as its agents read it from their counters; None where it had no GPUs."""
    try:
        value = json.loads(read_regular(paths.usage))["gpu_energy"]
        joules, texts = value["joules"], [value["source"], *value["notes"]]
        return Energy(None if joules is None else float(joules), "; ".join(texts))
    except WRONG:
        return None


def energy_of(paths: RunPaths, status: RunStatus, whole_nodes: bool | None = None, job: str = "") -> Energy:
    """The energy of a run's nodes by Slurm's counters, which count all that runs on a node.

    Source: sacct(1), ConsumedEnergyRaw of a step, in joules; right for whole nodes only.

    Args:
        whole_nodes: the run had its nodes for itself; None: what its own request says.
        job: the job in which it ran, if it was not a job of its own.
    """
    record = read_run(paths)
    batch: Any = record.intent.get("batch") or {}
    if record.scheduler != "slurm" or not (status.job or job):
        return Energy(None, "not measured: no Slurm job, whose nodes have counters")
    if not (batch.get("exclusive") if whole_nodes is None else whole_nodes):
        return Energy(None, "not measured: the job may share its nodes (--exclusive)")
    words = ("sacct", "-n", "-P", "-j", status.job or job, "-o", "JobID,Start,End,ConsumedEnergyRaw")
    steps: list[tuple[float, float, float]] = []
    for look in range(LOOKS):
        time.sleep(LATE_S if look else 0)
        try:
            rows = command.run(words, env={**os.environ, "SLURM_TIME_FORMAT": "%s"}, timeout_s=20).stdout.splitlines()
        except StackyardError as error:
            said = (error.detail or "").rpartition("\n")[2]
            return Energy(None, f"not measured: {': '.join(filter(None, (error.message, said)))}")
        # the last to start: the preflight came before
        steps = sorted(step for row in rows if (step := _step(row)) and step[0] >= status.started - 1)
        steps = [step for step in steps if step[0] <= (status.ended or math.inf)][-1:]
        if steps and math.isfinite(steps[0][1]):
            break
    return _of_step(status, *steps)


def _of_step(status: RunStatus, step: tuple[float, float, float] = (0, 0, 0)) -> Energy:
    start, end, joules = step
    if not start:
        return Energy(None, "not measured: Slurm's accounting has no step of this run")
    if end > (status.ended or math.inf) + 2:
        return Energy(None, "not measured: Slurm's accounting does not have the end of its step")
    if not 0 < joules < 2**63:  # above: Slurm's NO_VAL64
        return Energy(None, "not measured: Slurm has no counters of these nodes (AcctGatherEnergyType)")
    return Energy(joules, "Slurm's ConsumedEnergyRaw")


def _step(row: str) -> tuple[float, float, float] | None:
    """Start, end and joules of a numbered step; the end of one that runs is infinite."""
    job, *values = row.split("|")
    try:
        start, end, joules = (float(value or 0) for value in ("inf" if v == "Unknown" else v for v in values))
    except ValueError:
        return None
    return (start, end, joules) if job.partition(".")[2].isdigit() else None
