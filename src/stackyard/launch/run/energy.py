"""The energy of the GPUs of a step, from what its agents read of the counters of their nodes. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from stackyard.core.findings import counted, some
from stackyard.launch.node.step import StepFile
from stackyard.launch.records.outcome import GpuEnergy, Placement

SOURCES = {
    "nvidia": "NVML's counters of the GPUs",
    "amd": "AMD's counters of the GPUs, which do not show other users",
}


class _NotMeasured(Exception):
    """Why the energy of a node's GPUs is not known."""


def gpu_energy(file: StepFile, placements: Sequence[Placement], sent: Mapping[int, Any]) -> GpuEnergy | None:
    """The energy of the GPUs that the tasks of a step had, all nodes together; None in a step without GPUs.

    One GPU without a value leaves the whole without: a sum over some of them looks like one over all.

    Args:
        placements: the place of each task that has started.
        sent: by node, what its agent sent (`stackyard.launch.node.monitoring.energy.GpuEnergy.end`).
    """
    nodes = _nodes(file, placements)
    count = sum(len(planned) for _, planned, _ in nodes.values())
    if not count:
        return None
    joules, shared = 0.0, []
    try:
        for node, (host, planned, shown) in nodes.items():
            for gpu in _own(file.gpu_vendor, host, planned, shown, sent.get(node)):
                joules += float(gpu["joules"])
                shared += [f"GPU {gpu['index']} of {host}"] if int(gpu["others"]) else []
    except _NotMeasured as why:
        return GpuEnergy(None, count, f"not measured: {why}")
    except (KeyError, TypeError, ValueError, AttributeError):
        return GpuEnergy(None, count, "not measured: an agent sent an invalid reading")
    notes = (f"other programs used {some(shared, 3)}, and its energy includes theirs",) if shared else ()
    return GpuEnergy(round(joules, 3), count, SOURCES[file.gpu_vendor], notes)


def _nodes(file: StepFile, placements: Sequence[Placement]) -> dict[int, tuple[str, set[int], set[str]]]:
    """By node: its host, the GPUs that its tasks have by the plan, and those that they were shown."""
    nodes: dict[int, tuple[str, set[int], set[str]]] = {}
    for place in placements:
        node, local = file.place(place.task)
        slots = file.block_of(node).slots if file.blocks else file.slots
        _, planned, shown = nodes.setdefault(node, (place.host, set(), set()))
        if local < len(slots) and slots[local].gpus:
            planned.update(slots[local].gpus)
            shown.update(filter(None, place.gpus.split(",")))
    return nodes


def _own(vendor: str, host: str, planned: set[int], shown: set[str], reading: Any) -> Iterator[Mapping[str, Any]]:
    """The readings of a node's planned GPUs, found by the names in the variables that show them to the tasks."""
    if not planned:
        return
    if reading is None or reading.get("why"):
        raise _NotMeasured(f"{host}: {reading['why']}" if reading else f"{host}: its agent sent no reading")
    if any(name.startswith("MIG-") for name in shown):
        raise _NotMeasured(f"{host}: the counter of a GPU counts all of its MIG instances")
    gpus = [gpu for gpu in reading["gpus"] if any(_is(gpu, name) for name in shown)]
    if len(gpus) != len(planned) or (vendor == "amd" and len(gpus) != len(reading["gpus"])):
        # a control group for each task, or numbers that a program without control groups counts in another way
        seen = counted(len(reading["gpus"]), "counter")
        raise _NotMeasured(f"{host}: {seen} on the node, and which are those of its {len(planned)} GPUs is not known")
    for gpu in gpus:
        if gpu["joules"] is None:
            raise _NotMeasured(f"{host}: GPU {gpu['index']} {gpu['why']}")
        yield gpu


def _is(gpu: Mapping[str, Any], name: str) -> bool:
    """Whether a name, a number or the beginning of a UUID (CUDA C programming guide), means this GPU."""
    return gpu["index"] == name or (name.startswith("GPU-") and str(gpu["uuid"]).startswith(name))
