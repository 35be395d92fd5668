"""The layout of a job: the place of each rank, with reasons and findings. Pure; the same for one node and for 10,000.

`plan_layout` chooses what is not set (ranks per node, cores, threads, GPUs, visibility), places one node's ranks with
`cores`, and checks the result with `rules`. A bad layout raises no error, so that it can be drawn too: problems that
prevent a start are findings of severity ``refused`` (`stackyard.core.findings.refuse`).
"""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

from stackyard.core.errors import InputError
from stackyard.core.findings import counted
from stackyard.core.late import dataclass
from stackyard.launch.layout.cores import gpus_each, homes_of, most_cores, own_gpus, place
from stackyard.launch.layout.model import Block, Layout, Node, Slot
from stackyard.launch.layout.rules import judge
from stackyard.launch.request.intent import Intent

__all__ = ["masks", "plan_layout"]

Visibility = Literal["all", "own"]


@dataclass(frozen=True)
class _ChosenNumber:
    """A number with the sentence that explains it."""

    value: int
    why: str


def plan_layout(intent: Intent, node: Node, hosts: tuple[str, ...] = ()) -> Layout:
    """Place the ranks of a job on nodes of one kind.

    Args:
        intent: the request; fields that are None or empty are chosen here.
        node: the resources of each node.
        hosts: their names in order, if known; the first `intent.nodes` are used.

    Raises:
        InputError: fewer hosts than nodes, or a host twice.
    """
    hosts = _checked(hosts, intent.nodes)
    ranks = _ranks(intent, node)
    gpus = _gpus(intent, node, ranks.value)
    own = own_gpus(node, ranks.value, gpus.value)
    homes = homes_of(node, own)
    cores = _cores(intent, node, ranks.value, most_cores(node, homes))
    smt = min(intent.smt, node.smt)
    threads = _threads(intent, cores.value, smt)
    places = place(node, homes, cores.value)
    slots = tuple(Slot(rank, places[rank], own[rank]) for rank in range(ranks.value))
    visibility, seen = _visibility(intent, node, slots)
    layout = Layout(
        node=node,
        blocks=(Block(0, intent.nodes, slots),),
        gpu_visibility=visibility,
        distribution=intent.distribution,
        threads=threads.value,
        smt=smt,
        hosts=hosts,
    )
    reasons = [ranks.why, cores.why, threads.why, gpus.why, seen, _numbered(layout)]
    said = tuple(sentence for sentence in reasons if sentence)
    return replace(layout, findings=judge(intent, layout), reasons=said)


def masks(layout: Layout) -> tuple[int, ...]:
    """The CPU mask of each local rank: bit n is the operating system's hardware thread n.

    The values of ``srun --cpu-bind=mask_cpu:`` and of ``taskset``, with as many hardware threads of each core as the
    layout uses.
    """
    node = layout.node
    return tuple(
        sum(1 << thread for core in slot.cores for thread in node.os_threads(core, layout.smt)) for slot in layout.slots
    )


def _checked(hosts: tuple[str, ...], nodes: int) -> tuple[str, ...]:
    if not hosts:
        return ()
    if len(hosts) < nodes:
        raise InputError(
            f"{nodes} nodes are requested, but the allocation has {len(hosts)}: {' '.join(hosts[:8])}",
            hint=f"use -N {len(hosts)}, or an allocation of {nodes} nodes",
        )
    used = hosts[:nodes]
    if len(set(used)) < nodes:
        twice = next(host for host in used if used.count(host) > 1)
        raise InputError(f"duplicate host {twice}", hint="list each host once")
    return used


def _ranks(intent: Intent, node: Node) -> _ChosenNumber:
    if intent.ranks_per_node:
        return _ChosenNumber(intent.ranks_per_node, f"{counted(intent.ranks_per_node, 'rank')} per node, as requested")
    per_rank = intent.gpus_per_rank
    if node.gpus and per_rank is None:
        return _ChosenNumber(node.gpus, f"{counted(node.gpus, 'rank')} per node: one per GPU")
    if node.gpus and per_rank:
        ranks = max(1, node.gpus // per_rank)
        return _ChosenNumber(ranks, f"{counted(ranks, 'rank')} per node: one per {counted(per_rank, 'GPU')}")
    return _ChosenNumber(node.sockets, f"{counted(node.sockets, 'rank')} per node: one per socket")


def _gpus(intent: Intent, node: Node, ranks: int) -> _ChosenNumber:
    per_rank = intent.gpus_per_rank
    if per_rank is not None:
        return _ChosenNumber(per_rank, f"{counted(per_rank, 'GPU') if per_rank else 'no GPU'} per rank, as requested")
    per_rank = gpus_each(node, ranks)
    if not node.gpus:
        return _ChosenNumber(0, "")
    if ranks > node.gpus:
        return _ChosenNumber(per_rank, f"{counted(ranks, 'rank')} share {counted(node.gpus, 'GPU')}")
    what = "GPU i of a node belongs to local rank i" if per_rank == 1 else f"each rank has {per_rank} GPUs of its own"
    return _ChosenNumber(per_rank, f"{what}, which has the cores next to it" if per_rank == 1 else what)


def _cores(intent: Intent, node: Node, ranks: int, most: int) -> _ChosenNumber:
    if intent.cores_per_rank:
        return _ChosenNumber(intent.cores_per_rank, f"{counted(intent.cores_per_rank, 'core')} per rank, as requested")
    if most == 0:
        return _ChosenNumber(1, "one shared core per rank: more ranks than cores")
    why = "whole sockets" if ranks < node.sockets else "the most with every rank on one socket"
    why = "an equal share of the node's" if node.sockets == 1 else why
    return _ChosenNumber(most, f"{counted(most, 'core')} per rank: {why}")


def _threads(intent: Intent, cores: int, smt: int) -> _ChosenNumber:
    if intent.threads_per_rank:
        return _ChosenNumber(
            intent.threads_per_rank, f"{counted(intent.threads_per_rank, 'thread')} per rank, as requested"
        )
    per = "core" if smt == 1 else "hardware thread"
    return _ChosenNumber(cores * smt, f"{counted(cores * smt, 'OpenMP thread')} per rank: one per {per}")


def _visibility(intent: Intent, node: Node, slots: tuple[Slot, ...]) -> tuple[Visibility, str]:
    """The visibility of GPUs: all GPUs if they have peer access; a shared GPU is visible alone, as device 0."""
    used = {gpu for slot in slots for gpu in slot.gpus}
    shared = sum(len(slot.gpus) for slot in slots) > len(used)
    if not used:
        return "all", ""
    if intent.gpu_visibility != "auto":
        whose = "all GPUs of its node" if intent.gpu_visibility == "all" else "only its own GPUs"
        return intent.gpu_visibility, f"each rank sees {whose}, as requested"
    if node.gpu_peers and len(used) > 1 and not shared:
        return "all", f"each rank sees all {node.gpus} GPUs of its node: NCCL and RCCL need this for peer access"
    return "own", "each rank sees only its own GPU, as device 0"


def _numbered(layout: Layout) -> str:
    if layout.nodes == 1:
        return ""
    if layout.distribution == "cyclic":
        return f"cyclic distribution: rank = {layout.nodes} x local rank + node"
    return f"block distribution: rank = {layout.ranks_per_node} x node + local rank"
