"""Memory and energy of a run: what its agents recorded, and what the scheduler measured."""

from __future__ import annotations

import json
import math
import os
from typing import Any

from stackyard.core.errors import StackyardError
from stackyard.host.files.at import read_regular
from stackyard.host.run import command
from stackyard.launch.api.runs import RunPaths, RunStatus, read_run
from stackyard.study.metrics.measured import Energy, Memory


def memory_of(paths: RunPaths) -> Memory | None:
    """The rank that used most memory; None where no agent saw any."""
    try:
        ranks = json.loads(read_regular(paths.usage))["ranks"]
        used = [(int(one["peak_bytes"]), -int(one["task"]), int(one.get("gpu_peak_bytes", 0))) for one in ranks]
    except (OSError, ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError):
        return None
    peak, rank, _ = max(used, default=(0, 0, 0))
    return Memory(peak, -rank, max(gpu for _, _, gpu in used)) if peak else None


def energy_of(paths: RunPaths, status: RunStatus, whole_nodes: bool | None = None) -> Energy:
    """The energy of a run's nodes by Slurm's counters, which count all that runs on a node.

    Source: sacct(1), ConsumedEnergyRaw, in joules; right for whole nodes only.

    Args:
        whole_nodes: the run had its nodes for itself; None: what its own request says.
    """
    record = read_run(paths)
    batch: Any = record.intent.get("batch") or {}
    if record.scheduler != "slurm" or not status.job:
        return Energy(None, "not measured: no Slurm job, whose nodes have counters")
    if not (batch.get("exclusive") if whole_nodes is None else whole_nodes):
        return Energy(None, "not measured: the job shares its nodes (--exclusive)")
    words = ("sacct", "-n", "-P", "-j", status.job, "-o", "JobID,Start,End,ConsumedEnergyRaw")
    try:
        lines = command.run(words, env={**os.environ, "SLURM_TIME_FORMAT": "%s"}, timeout_s=20).stdout.splitlines()
    except StackyardError as error:
        return Energy(None, f"not measured: {error.message}")
    own = (status.started - 1, (status.ended or math.inf) + 2)
    steps = [step for line in lines if (step := _step(line)) and own[0] <= step[0] and step[1] <= own[1]]
    joules = max(steps, default=(0.0, 0.0, 0.0))[2]  # of the last to start: the preflight came before
    if not 0 < joules < 2**63:  # above: Slurm's NO_VAL64
        return Energy(None, "not measured: Slurm has no counters of these nodes (AcctGatherEnergyType)")
    return Energy(joules, "Slurm's ConsumedEnergyRaw")


def _step(line: str) -> tuple[float, float, float] | None:
    """Start, end and joules of a numbered step."""
    job, *values = line.split("|")
    try:
        start, end, joules = (float(value or 0) for value in values)
    except ValueError:
        return None
    return (start, end, joules) if job.partition(".")[2].isdigit() else None
