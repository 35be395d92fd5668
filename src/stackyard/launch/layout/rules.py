"""Errors and wasted resources in a layout: a table of rules, each with its reason and the option that fixes it.

| rule | severity | |
|---|---|---|
| straddles-socket | refused | a rank on two sockets that it shares; a note if allowed, or if it has them alone |
| oversubscribed-cores | refused | more cores requested than the node has |
| threads-more-than-cores | refused | more threads than hardware threads of the rank's cores |
| more-gpus-than-there-are | refused | |
| smt-not-there | refused | more hardware threads per core than the node has |
| more-memory-than-there-is | refused | |
| idle-cores | warning | cores that no rank uses |
| idle-gpus, ranks-do-not-divide-gpus | warning | GPUs that no rank uses, or that unequal numbers of ranks share |
| oversubscribed-gpus | warning | several ranks on one GPU |
| one-visible-gpu | warning | NCCL has no peer access to the other GPUs of the node |
| local-rank-beyond-gpus | warning | more ranks than devices, all visible |
| far-gpu | warning | a rank whose GPU is on a socket without cores of the rank |

``--oversubscribe`` turns the refused findings on cores, threads and GPUs into notes, ``--straddle`` that on sockets.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator

from stackyard.core.findings import Finding, Severity, counted
from stackyard.launch.layout.cores import gpus_each, homes_of, most_cores, own_gpus, place, socket_cores, straddlers
from stackyard.launch.layout.model import Layout, Node, Slot
from stackyard.launch.layout.this_node import THIS
from stackyard.launch.request.intent import Intent

_ORDER: dict[Severity, int] = {"refused": 0, "warning": 1, "note": 2}


def judge(intent: Intent, layout: Layout) -> tuple[Finding, ...]:
    """All findings about the layout of an intent, the worst first."""
    rules: tuple[Callable[[Intent, Layout], Iterator[Finding]], ...] = (
        _cores_there, _socket, _threads, _smt, _memory, _gpus_there, _gpus_shared, _gpus_used, _peers, _far, _idle,
    )  # fmt: skip
    findings = [finding for rule in rules for finding in rule(intent, layout)]
    return tuple(sorted(findings, key=lambda finding: _ORDER[finding.severity]))


def _cores_there(intent: Intent, layout: Layout) -> Iterator[Finding]:
    width = intent.cores_per_rank or layout.cores_per_rank
    cores, there = layout.ranks_per_node * width, layout.node.cores
    if cores > there:
        most = _most(layout.node, layout.slots)
        fewer = f"--cores-per-rank {most}" if most else f"--ranks-per-node {there}"
        yield Finding(
            "oversubscribed-cores",
            "note" if intent.oversubscribe else "refused",
            f"{counted(layout.ranks_per_node, 'rank')} with {counted(width, 'core')} each need {cores} cores, "
            f"but a node has {there}",
            "ranks that share a core run in turns, and all others wait for the slowest",
            "" if intent.oversubscribe else f"{fewer}, or --oversubscribe",
        )


def _socket(intent: Intent, layout: Layout) -> Iterator[Finding]:
    places = [slot.cores for slot in layout.slots]
    on_two = straddlers(layout.node, places)
    if not on_two:
        return
    alone = all(_alone(layout.node, places, rank) for rank in on_two)
    allowed = intent.straddle or intent.oversubscribe or alone
    most = _most(layout.node, layout.slots)
    yield Finding(
        "straddles-socket",
        "note" if allowed else "refused",
        f"local {_ranks(on_two)} would span two sockets"
        if not allowed
        else f"local {_ranks(on_two)} {'spans' if len(on_two) == 1 else 'span'} more than one socket",
        "half of its threads access its memory and its GPU across the link between sockets",
        "" if allowed else f"{f'--cores-per-rank {most}' if most else '--ranks-per-node 1'}, or --straddle",
    )


def _alone(node: Node, places: list[tuple[int, ...]], rank: int) -> bool:
    """Whether no other rank has a core on this rank's sockets."""
    sockets = {core: socket for socket, cores in socket_cores(node).items() for core in cores}
    mine = {sockets[core] for core in places[rank]}
    return not any(sockets[core] in mine for other, cores in enumerate(places) if other != rank for core in cores)


def _threads(intent: Intent, layout: Layout) -> Iterator[Finding]:
    there = layout.cores_per_rank * layout.smt
    if layout.threads > there:
        yield Finding(
            "threads-more-than-cores",
            "note" if intent.oversubscribe else "refused",
            f"{layout.threads} threads per rank, but {counted(layout.cores_per_rank, 'core')} run {there} at a time",
            "threads that wait for a core delay all others at every barrier",
            "" if intent.oversubscribe else f"--threads-per-rank {there}, or --oversubscribe",
        )


def _smt(intent: Intent, layout: Layout) -> Iterator[Finding]:
    if intent.smt > layout.node.smt:
        yield Finding(
            "smt-not-there",
            "refused",
            f"{intent.smt} hardware threads per core are requested, but a core of {layout.node.kind} has "
            f"{layout.node.smt}",
            remedy=f"--smt {layout.node.smt}",
        )


def _memory(intent: Intent, layout: Layout) -> Iterator[Finding]:
    memory, there = intent.batch.memory_gib, layout.node.memory_gib
    if there and memory > there:
        yield Finding(
            "more-memory-than-there-is",
            "refused",
            f"{memory:g} GiB per node are requested, but {_node(layout)} has {there:g}",
            "the job would stay queued forever",
            f"at most --memory {there:g}",
        )


def _node(layout: Layout) -> str:
    return THIS if layout.node.kind == THIS else f"a node of kind {layout.node.kind}"


def _gpus_there(intent: Intent, layout: Layout) -> Iterator[Finding]:
    per_rank, ranks, there = intent.gpus_per_rank or 0, layout.ranks_per_node, layout.node.gpus
    if per_rank > there:
        yield Finding(
            "more-gpus-than-there-are",
            "refused",
            f"{counted(per_rank, 'GPU')} per rank requested, but {_node(layout)} has {there}",
            remedy=f"--gpus-per-rank {gpus_each(layout.node, ranks)}",
        )
    elif per_rank * ranks > there:
        yield Finding(
            "more-gpus-than-there-are",
            "note" if intent.oversubscribe else "refused",
            f"{ranks} ranks with {counted(per_rank, 'GPU')} each need {ranks * per_rank} GPUs, but a node has {there}",
            remedy="" if intent.oversubscribe else f"--ranks-per-node {max(1, there // per_rank)}, or --oversubscribe",
        )


def _gpus_shared(intent: Intent, layout: Layout) -> Iterator[Finding]:
    holders = Counter(gpu for slot in layout.slots for gpu in slot.gpus)
    if not holders or max(holders.values()) == 1:
        return
    ranks, gpus = layout.ranks_per_node, layout.node.gpus
    yield Finding(
        "oversubscribed-gpus",
        "note" if intent.oversubscribe else "warning",
        f"up to {max(holders.values())} ranks share a GPU",
        "NCCL rejects two ranks on one GPU, and without NVIDIA MPS they run in turns",
        f"--ranks-per-node {gpus}, or --gpus-per-rank 0 for ranks without GPUs",
    )
    if layout.gpu_visibility == "all" and ranks > gpus:
        yield Finding(
            "local-rank-beyond-gpus",
            "warning",
            f"each rank sees {counted(gpus, 'GPU')}, but local ranks go up to {ranks - 1}",
            "a program that uses its local rank as device number fails with 'invalid device ordinal'",
            "--gpu-visibility own",
        )


def _gpus_used(intent: Intent, layout: Layout) -> Iterator[Finding]:
    there, ranks = layout.node.gpus, layout.ranks_per_node
    holders = Counter(gpu for slot in layout.slots for gpu in slot.gpus)
    if not holders:
        return
    idle, is_requested = there - len(holders), intent.gpus_per_rank is not None
    if idle:
        remedy = there // layout.gpus_per_rank if is_requested else _all_gpus(layout.node, ranks)
        yield Finding(
            "idle-gpus" if is_requested else "ranks-do-not-divide-gpus",
            "warning",
            f"{idle} of {there} GPUs of each node {'is' if idle == 1 else 'are'} unused with {counted(ranks, 'rank')}",
            "a node is usually charged as a whole",
            f"--ranks-per-node {remedy}",
        )
    elif len(set(holders.values())) > 1:
        yield Finding(
            "ranks-do-not-divide-gpus",
            "warning",
            f"{ranks} ranks cannot share {there} GPUs evenly",
            "all ranks wait for the GPUs with the most ranks",
            f"--ranks-per-node {max(1, min(round(ranks / there), layout.node.cores // there)) * there}",
        )


def _peers(intent: Intent, layout: Layout) -> Iterator[Finding]:
    used = {gpu for slot in layout.slots for gpu in slot.gpus}
    ranks = layout.ranks_per_node
    if layout.gpu_visibility == "own" and layout.gpus_per_rank == 1 and min(ranks, len(used)) > 1:
        if not layout.node.gpu_peers or ranks > len(used):
            return
        yield Finding(
            "one-visible-gpu",
            "warning",
            "each rank sees one GPU, although the GPUs of a node support peer access",
            "NCCL and RCCL copy directly between GPUs only if a process sees both",
            "--gpu-visibility all",
        )


def _far(intent: Intent, layout: Layout) -> Iterator[Finding]:
    far = _far_ranks(layout.node, layout.slots)
    if not far:
        return
    remedy = _other_ranks(layout.node, layout.ranks_per_node, lambda slots: not _far_ranks(layout.node, slots))
    yield Finding(
        "far-gpu",
        "warning",
        f"local {_ranks(far)} {'has' if len(far) == 1 else 'have'} a GPU on a socket where it has no core",
        "all copies to this GPU cross the link between the sockets",
        f"--ranks-per-node {remedy}" if remedy else "",
    )


def _idle(intent: Intent, layout: Layout) -> Iterator[Finding]:
    node, slots = layout.node, layout.slots
    used = {core for slot in slots for core in slot.cores}
    idle = node.cores - len(used)
    if not idle:
        return
    most = _most(node, slots)
    remedy = ""
    if intent.cores_per_rank and most > layout.cores_per_rank:
        remedy = f"--cores-per-rank {most}"
    else:
        ranks = _other_ranks(
            node, len(slots), lambda own_slots: node.cores == sum(len(slot.cores) for slot in own_slots)
        )
        remedy = f"--ranks-per-node {ranks}" if ranks else ""
    yield Finding(
        "idle-cores",
        "warning",
        f"{idle} of {node.cores} cores of each node {'is' if idle == 1 else 'are'} unused with "
        f"{counted(len(slots), 'rank')} of {counted(layout.cores_per_rank, 'core')}",
        "a node is usually charged as a whole",
        remedy,
    )


def _far_ranks(node: Node, slots: tuple[Slot, ...]) -> tuple[int, ...]:
    sockets = {core: socket for socket, cores in socket_cores(node).items() for core in cores}
    at = {gpu: domain.socket for domain in node.domains for gpu in domain.gpus}
    return tuple(
        slot.local_rank
        for slot in slots
        if not {at[gpu] for gpu in slot.gpus} <= {sockets[core] for core in slot.cores}
    )


def _most(node: Node, slots: tuple[Slot, ...]) -> int:
    return most_cores(node, homes_of(node, [slot.gpus for slot in slots]))


def _other_ranks(node: Node, ranks: int, good: Callable[[tuple[Slot, ...]], bool]) -> int:
    """The number of ranks nearest to `ranks` that divides the GPUs and has a good default layout; 0 if none."""
    for other in sorted(range(1, node.cores + 1), key=lambda one: (abs(one - ranks), -one)):
        if other == ranks or (node.gpus and node.gpus % other):
            continue
        own = own_gpus(node, other, gpus_each(node, other))
        homes = homes_of(node, own)
        places = place(node, homes, max(1, most_cores(node, homes)))
        if good(tuple(Slot(rank, places[rank], own[rank]) for rank in range(other))):
            return other
    return 0


def _all_gpus(node: Node, ranks: int) -> int:
    """The number of ranks nearest to `ranks` that uses all GPUs, each from its own socket; else one per GPU."""
    return _other_ranks(node, ranks, lambda slots: not _far_ranks(node, slots)) or node.gpus


def _ranks(ranks: tuple[int, ...]) -> str:
    if len(ranks) == 1:
        return f"rank {ranks[0]}"
    shown = ", ".join(str(rank) for rank in ranks[:6])
    return f"ranks {shown}{' ...' if len(ranks) > 6 else ''}"
