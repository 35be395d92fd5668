"""The resources used by the ranks of a step, from the data that agents send with each end. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any

from stackyard.core.findings import counted, some
from stackyard.launch.node.step import StepFile
from stackyard.launch.records.outcome import Cause, GpuEnergy, RankUsage
from stackyard.launch.run.causes.verdict import TaskEnd

MOST_RANKS = 1000
"""Ranks that usage.json names one by one: those that used most."""
OF_MEMORY = ("step-memory", "host-memory", "oom-kill", "killed", "shared-memory")
"""The rules that are about the memory of a node."""
OF_GPU_MEMORY = ("gpu-memory",)
Sent = Mapping[int, tuple[str, Mapping[str, Any]]]
"""By task: its host, and what its agent sent (`stackyard.launch.node.monitoring.usage.Usage.of`)."""


def ranks_usage(file: StepFile, sent: Sent) -> tuple[RankUsage, ...]:
    """The usage of each task that has ended; tasks without data are left out."""
    every = (_of(file, task, host, value) for task, (host, value) in sorted(sent.items()))
    return tuple(one for one in every if one.peak_bytes or one.gpu_total_bytes or one.mpi)


def _of(file: StepFile, task: int, host: str, sent: Mapping[str, Any]) -> RankUsage:
    gpus = _own_gpus(file, task, sent.get("gpus") or {})
    known = [use for _, _, use in gpus if use >= 0]
    return RankUsage(
        task, host, int(sent.get("peak", 0)), int(sent.get("largest", 0)), int(sent.get("processes", 0)),
        sum(peak for peak, _, _ in gpus), sum(total for _, total, _ in gpus),
        round(sum(known) / len(known)) if known else -1, *sent.get("mpi", ("", False)),
    )  # fmt: skip


def _own_gpus(file: StepFile, task: int, gpus: Mapping[str, Sequence[int]]) -> list[Sequence[int]]:
    """The rank's own GPUs, if the agent sees all of the node's under their own numbers."""
    node, local = file.place(task)
    slots = file.block_of(node).slots if file.blocks else file.slots
    own = [str(gpu) for gpu in slots[local].gpus] if local < len(slots) else []
    planned = {str(gpu) for slot in slots for gpu in slot.gpus}
    return [gpus[gpu] for gpu in (own if planned <= set(gpus) else gpus)]


def oom_kills(sent: Sent, failures: Collection[TaskEnd]) -> int:
    """The number of OOM kills on the nodes of the failed tasks."""
    return max((int(sent[one.task][1].get("oom_kills", 0)) for one in failures if one.task in sent), default=0)


def with_usage(cause: Cause | None, task: int, sent: Mapping[str, Any]) -> Cause | None:
    """The cause; for one about memory, the remedy begins with the rank's last known usage."""
    if cause is None or not sent:
        return cause
    said = ""
    if cause.rule in OF_MEMORY and sent.get("peak"):
        of = f", of {_gib(sent['limit'])} that its job has on the node" if sent.get("limit") else ""
        several = f" in {sent['processes']} processes" if sent.get("processes", 1) > 1 else ""
        said = f"rank {task} had used up to {_gib(sent['peak'])}{several} {sent.get('ago', 0):g} s before its end{of}"
    elif cause.rule in OF_GPU_MEMORY and sent.get("gpus"):
        peaks = (f"GPU {index} {_gib(peak)} of {_gib(total)}" for index, (peak, total, _) in sent["gpus"].items())
        said = f"in use on its node, seen every few seconds: {', '.join(peaks)}"
    return replace(cause, remedy=f"{said}; {cause.remedy}") if said else cause


def usage_report(usage: Sequence[RankUsage], energy: GpuEnergy | None = None) -> dict[str, Any]:
    """The content of usage.json: a sentence about memory, GPUs, MPIs other than the host's, energy; largest ranks."""
    most = sorted(usage, key=lambda one: (-one.peak_bytes, -one.gpu_peak_bytes, one.task))[:MOST_RANKS]
    ranks = [asdict(one) for one in sorted(most, key=lambda one: one.task)]
    sentences = {"memory": _memory(usage), "gpus": _gpus(usage), "energy": _energy(energy), "mpi": _mpi(usage)}
    gpu_energy = asdict(energy) if energy else None
    return {"format": 1, "measured": len(usage), **sentences, "gpu_energy": gpu_energy, "ranks": ranks}


def _mpi(usage: Sequence[RankUsage]) -> str:
    """The ranks that have loaded another MPI than the host's, although their bindings name it."""
    seen = [one for one in usage if one.mpi]
    others = [one for one in seen if not one.mpi_is_host]
    if not others:
        return ""
    files = some(list(dict.fromkeys(one.mpi for one in others)), 2)
    first = f"rank {others[0].task} on {others[0].host}"
    return f"{len(others)} of {counted(len(seen), 'rank')} loaded {files}, which is not the host's ({first})"


def _memory(usage: Sequence[RankUsage]) -> str:
    seen = [one for one in usage if one.peak_bytes]
    if not seen:
        return ""
    top = max(seen, key=lambda one: one.peak_bytes)
    several = f" in {top.processes} processes" if top.processes > 1 else ""
    middle = ""
    if len(seen) > 1:
        from statistics import median  # late: it imports much

        middle = f", median {_gib(median(one.peak_bytes for one in seen))}"
    return f"peak {_gib(top.peak_bytes)}{several} (rank {top.task} on {top.host}){middle}"


def _gpus(usage: Sequence[RankUsage]) -> str:
    seen = [one for one in usage if one.gpu_total_bytes]
    if not seen:
        return ""
    top = max(seen, key=lambda one: one.gpu_peak_bytes)
    known = [one.gpu_use_percent for one in seen if one.gpu_use_percent >= 0]
    used = f", {round(sum(known) / len(known))} % busy on average" if known else ""
    peak = f"peak {_gib(top.gpu_peak_bytes)} of {_gib(top.gpu_total_bytes)}"
    return f"{peak} (rank {top.task} on {top.host}){used}"


def _energy(energy: GpuEnergy | None) -> str:
    if energy is None:
        return ""
    used = "" if energy.joules is None else f"{energy.joules / 3600:.4g} Wh of {counted(energy.gpus, 'GPU')}: "
    return "; ".join((f"{used}{energy.source}", *energy.notes))


def _gib(size: float) -> str:
    """Bytes as GiB, or as MiB below one GiB."""
    return f"{size / (1 << 30):.1f} GiB" if size >= 1 << 30 else f"{size / (1 << 20):.0f} MiB"
