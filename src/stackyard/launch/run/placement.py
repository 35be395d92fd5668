"""The placement report: planned and actual place of each rank. Pure; nodes with equal places share one entry."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

from stackyard.core.findings import counted
from stackyard.core.hostlist import same_host
from stackyard.host.machine.ranges import ranges, runs
from stackyard.launch.node.step import PlannedSlot, StepFile
from stackyard.launch.records.outcome import Placement

Verdict = Literal["as planned", "differs", "not enforced here"]


@dataclass(frozen=True)
class TaskPlace:
    """One task of a node pattern. `cpus`: hardware threads as ranges; `why`: differences, or what is not enforced."""

    local: int
    verdict: Verdict
    cpus_planned: str
    cpus_real: str
    gpus_planned: str = ""
    gpus_real: str = ""
    why: tuple[str, ...] = ()


@dataclass(frozen=True)
class NodePlaces:
    """Nodes with the same places: the folded `hosts` (``n[1-4,7]``), their `count`, their tasks."""

    hosts: str
    count: int
    tasks: tuple[TaskPlace, ...]


@dataclass(frozen=True)
class PlacementReport:
    """Planned and actual places. `examples` describe the first few ranks that differ."""

    tasks: int
    as_planned: int
    differing: int
    not_enforced: int
    missing: int
    nodes: tuple[NodePlaces, ...]
    examples: tuple[str, ...] = ()
    not_enforced_why: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Plain JSON values, for placement.json."""
        return {"format": 1, "summary": self.summary(), **asdict(self)}

    def summary(self) -> str:
        """The summary in one sentence."""
        parts = [f"{self.as_planned} of {self.tasks} ranks as planned"] if self.as_planned or not self.tasks else []
        if self.differing:
            parts.append(f"{self.differing} of {self.tasks} ranks differ: {'; '.join(self.examples)}")
        if self.not_enforced:
            count = "" if self.not_enforced == self.tasks else f"{self.not_enforced} ranks: "
            parts.append(f"{count}{'; '.join(self.not_enforced_why)}")
        if self.missing:
            parts.append(f"{self.missing} ranks did not report")
        return "; ".join(parts)


EXAMPLES = 5


def placement_report(file: StepFile, placements: Sequence[Placement], hosts: Sequence[str] = ()) -> PlacementReport:
    """Compare the places in plan.json with those reported by the tasks.

    A rank that may use all CPUs of its node's ranks, or the same as every other rank there, was not bound: that is
    ``not enforced here``, not a difference. So is a visibility variable that is not set.

    Args:
        file: the step's plan.
        placements: what the tasks reported; the others are counted as missing.
        hosts: the step's hosts in the order of its nodes, for plans that do not name hosts.
    """
    planned_hosts = tuple(file.hosts) or tuple(hosts)
    by_node: dict[int, dict[int, Placement]] = {}
    for placement in placements:
        node, local = file.place(placement.task)
        by_node.setdefault(node, {})[local] = placement
    seen: dict[tuple[TaskPlace, ...], list[str]] = {}
    verdicts: Counter[str] = Counter()
    examples: list[str] = []
    for node, tasks in sorted(by_node.items()):
        planned = planned_hosts[node] if node < len(planned_hosts) else ""
        places = _node(file, node, planned, tasks)
        seen.setdefault(places, []).append(planned or next(iter(tasks.values())).host)
        verdicts.update(place.verdict for place in places)
        if len(examples) < EXAMPLES:
            examples += _examples(places, tasks)
    return PlacementReport(
        file.tasks, verdicts["as planned"], verdicts["differs"], verdicts["not enforced here"],
        file.tasks - len(placements),
        tuple(NodePlaces(fold(names), len(names), tasks) for tasks, names in seen.items()),
        tuple(examples[:EXAMPLES]), _reasons(seen),
    )  # fmt: skip


def _node(file: StepFile, node: int, planned_host: str, tasks: Mapping[int, Placement]) -> tuple[TaskPlace, ...]:
    slots = file.block_of(node).slots if file.blocks else file.slots
    unbound = _unbound(slots, tasks)
    task_places = []
    for local, placement in sorted(tasks.items()):
        role = file.in_role(placement.task)
        seen = (role[0].gpu_visibility, _of_role(file, node, local)) if role else (file.gpu_visibility, slots)
        task_places.append(_task(slots, seen, planned_host, local, placement, unbound))
    return tuple(task_places)


def _of_role(file: StepFile, node: int, local: int) -> tuple[PlannedSlot, ...]:
    """The places of a node's tasks with the same role as one of them."""
    block = file.block_of(node)
    return tuple(slot for slot, role in zip(block.slots, block.roles, strict=True) if role == block.roles[local])


def _unbound(slots: Sequence[PlannedSlot], tasks: Mapping[int, Placement]) -> bool:
    """Whether the ranks of this node were not bound: all may use the same CPUs, although separate ones were planned."""
    planned = {slots[local].cpus for local in tasks if local < len(slots)}
    real = {frozenset(placement.cpus) for placement in tasks.values()}
    return len(real) == 1 and len(planned) > 1


def _task(
    slots: Sequence[PlannedSlot], seen: tuple[str, Sequence[PlannedSlot]], planned_host: str, local: int,
    placement: Placement, unbound: bool,
) -> TaskPlace:  # fmt: skip
    """The place of a task. `seen`: the visibility of GPUs, and the places of tasks that share the visible GPUs."""
    visibility, others = seen
    slot = slots[local] if local < len(slots) else PlannedSlot(())
    differs: list[str] = []
    loose: list[str] = []
    if planned_host and not same_host(planned_host, placement.host):
        differs.append(f"on {placement.host} instead of {planned_host}")
    _cpus(slot, placement, unbound, len(slots), differs, loose)
    gpus = _gpus_wanted(visibility, others, slot)
    _gpus(gpus, placement.gpus, visibility, differs, loose)
    verdict: Verdict = "differs" if differs else "not enforced here" if loose else "as planned"
    return TaskPlace(
        local, verdict, ranges(slot.cpus), ranges(placement.cpus), ranges(gpus), placement.gpus,
        tuple(differs) or tuple(loose),
    )  # fmt: skip


def _cpus(
    slot: PlannedSlot, placement: Placement, unbound: bool, per_node: int, differs: list[str], loose: list[str]
) -> None:
    planned, real = set(slot.cpus), set(placement.cpus)
    if not planned or planned == real:
        return
    if not real:
        loose.append("cores: not enforced here (the rank did not report its CPUs)")
    elif unbound or (real > planned and per_node == 1):
        loose.append("cores: not enforced here (the scheduler does not bind)")
    else:
        differs.append(f"on CPUs {ranges(real)} instead of {ranges(planned)}")


def _gpus_wanted(visibility: str, others: Sequence[PlannedSlot], slot: PlannedSlot) -> tuple[int, ...]:
    if visibility == "own":
        return slot.gpus
    return tuple(sorted({gpu for one in others for gpu in one.gpus})) if slot.gpus else ()


def _gpus(gpus: tuple[int, ...], real: str, visibility: str, differs: list[str], loose: list[str]) -> None:
    if not gpus:
        return
    words = [word.strip() for word in real.split(",") if word.strip()]
    if not words:
        if visibility == "own":
            loose.append("GPUs: not enforced here (each rank sees all)")
    elif not all(word.isdigit() for word in words):
        if len(words) != len(gpus):
            differs.append(f"sees {counted(len(words), 'GPU')} instead of {len(gpus)}")
    elif {int(word) for word in words} != set(gpus):
        _numbered(words, gpus, real, differs, loose)


def _numbered(words: list[str], gpus: tuple[int, ...], real: str, differs: list[str], loose: list[str]) -> None:
    """Compare GPUs by number. If a scheduler shows a rank only some, they are renumbered from 0, hence unknown."""
    if len(words) == len(gpus) and sorted(int(word) for word in words) == list(range(len(words))):
        loose.append("GPUs: which ones is unknown (the scheduler renumbers them)")
    else:
        differs.append(f"sees GPUs {real} instead of {ranges(gpus)}")


def _examples(places: Iterable[TaskPlace], tasks: Mapping[int, Placement]) -> list[str]:
    return [
        f"rank {tasks[place.local].task} ({tasks[place.local].host}): {', '.join(place.why)}"
        for place in places
        if place.verdict == "differs"
    ]


def _reasons(seen: Iterable[tuple[TaskPlace, ...]]) -> tuple[str, ...]:
    reasons = (why for tasks in seen for task in tasks if task.verdict == "not enforced here" for why in task.why)
    return tuple(dict.fromkeys(reasons))


def fold(hosts: Sequence[str]) -> str:
    """``n[1-4,7],login`` for hostnames that end in numbers; leading zeros are kept."""
    groups: dict[tuple[str, int], list[int]] = {}
    plain: list[str] = []
    for host in dict.fromkeys(hosts):
        match = re.fullmatch(r"(.*?)(\d+)", host)
        if match is None:
            plain.append(host)
            continue
        digits = match.group(2)
        width = len(digits) if digits.startswith("0") and len(digits) > 1 else 0
        groups.setdefault((match.group(1), width), []).append(int(digits))
    return ",".join([*(_folded(stem, width, numbers) for (stem, width), numbers in groups.items()), *plain])


def _folded(stem: str, width: int, numbers: Sequence[int]) -> str:
    if len(numbers) == 1:
        return f"{stem}{numbers[0]:0{width}d}"
    parts = ("-".join(f"{end:0{width}d}" for end in dict.fromkeys(run)) for run in runs(numbers))
    return f"{stem}[{','.join(parts)}]"
