"""The layout of a job: who runs where, why, and what is wrong with it. Pure; the same for one node and for 10,000.

`plan_layout` chooses what nobody said (ranks per node, cores, threads, GPUs, visibility), places one node's ranks
with `coreplaces`, and lets `layoutrules` judge the result. It refuses nothing itself: what may not be started is a
finding with severity ``refused`` (`stackyard.findings.refuse`), so that a bad layout can be drawn too.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from stackyard.errors import InputError
from stackyard.launch.layout.cores import gpus_each, homes_of, most_cores, own_gpus, place
from stackyard.launch.layout.model import Block, Layout, Node, Slot
from stackyard.launch.layout.rules import counted, judge
from stackyard.launch.request.intent import Intent

__all__ = ["masks", "plan_layout"]

Visibility = Literal["all", "own"]


@dataclass(frozen=True)
class _Said:
    """A number with the sentence that says where it comes from."""

    value: int
    why: str


def plan_layout(intent: Intent, node: Node, hosts: tuple[str, ...] = ()) -> Layout:
    """Place the ranks of a job on nodes of one kind.

    Args:
        intent: what is asked; None and empty mean that this function decides.
        node: what each of the nodes offers.
        hosts: their names, in order, once they are known; the first `intent.nodes` are used.

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
            f"{nodes} nodes are asked for, but there are {len(hosts)} hosts: {' '.join(hosts[:8])}",
            hint=f"use -N {len(hosts)}, or an allocation of {nodes} nodes",
        )
    used = hosts[:nodes]
    if len(set(used)) < nodes:
        twice = next(host for host in used if used.count(host) > 1)
        raise InputError(f"the host {twice} is named twice", hint="name each host once: it runs all of its ranks")
    return used


def _ranks(intent: Intent, node: Node) -> _Said:
    if intent.ranks_per_node:
        return _Said(intent.ranks_per_node, f"{counted(intent.ranks_per_node, 'rank')} per node, as asked for")
    each = intent.gpus_per_rank
    if node.gpus and each is None:
        return _Said(node.gpus, f"{counted(node.gpus, 'rank')} per node: one for each GPU")
    if node.gpus and each:
        ranks = max(1, node.gpus // each)
        return _Said(ranks, f"{counted(ranks, 'rank')} per node: one for every {counted(each, 'GPU')}")
    return _Said(node.sockets, f"{counted(node.sockets, 'rank')} per node: one for each socket")


def _gpus(intent: Intent, node: Node, ranks: int) -> _Said:
    each = intent.gpus_per_rank
    if each is not None:
        return _Said(each, f"{counted(each, 'GPU') if each else 'no GPU'} for each rank, as asked for")
    each = gpus_each(node, ranks)
    if not node.gpus:
        return _Said(0, "")
    if ranks > node.gpus:
        return _Said(each, f"{counted(ranks, 'rank')} share {counted(node.gpus, 'GPU')}")
    what = "GPU i of a node is that of its local rank i" if each == 1 else f"each rank has {each} GPUs of its own"
    return _Said(each, f"{what}, and its cores are the ones next to it" if each == 1 else what)


def _cores(intent: Intent, node: Node, ranks: int, most: int) -> _Said:
    if intent.cores_per_rank:
        return _Said(intent.cores_per_rank, f"{counted(intent.cores_per_rank, 'core')} for each rank, as asked for")
    if most == 0:
        return _Said(1, "one core for each rank, shared: there are more ranks than cores")
    why = "whole sockets" if ranks < node.sockets else "the most that leave no rank on two sockets"
    why = "an equal share of the node's" if node.sockets == 1 else why
    return _Said(most, f"{counted(most, 'core')} for each rank: {why}")


def _threads(intent: Intent, cores: int, smt: int) -> _Said:
    if intent.threads_per_rank:
        return _Said(
            intent.threads_per_rank, f"{counted(intent.threads_per_rank, 'thread')} for each rank, as asked for"
        )
    per = "core" if smt == 1 else "hardware thread"
    return _Said(cores * smt, f"{counted(cores * smt, 'OpenMP thread')} for each rank: one for each {per}")


def _visibility(intent: Intent, node: Node, slots: tuple[Slot, ...]) -> tuple[Visibility, str]:
    """All GPUs where they talk to each other directly; a shared GPU is better seen alone, as device 0."""
    used = {gpu for slot in slots for gpu in slot.gpus}
    shared = sum(len(slot.gpus) for slot in slots) > len(used)
    if not used:
        return "all", ""
    if intent.gpu_visibility != "auto":
        whose = "all GPUs of its node" if intent.gpu_visibility == "all" else "only its own GPUs"
        return intent.gpu_visibility, f"each rank sees {whose}, as asked for"
    if node.gpu_peers and len(used) > 1 and not shared:
        return "all", f"each rank sees all {node.gpus} GPUs of its node: NCCL and RCCL reach only visible ones directly"
    return "own", "each rank sees only its own GPU, which is device 0 for it"


def _numbered(layout: Layout) -> str:
    if layout.nodes == 1:
        return ""
    if layout.distribution == "cyclic":
        return f"ranks are dealt over the nodes: rank = {layout.nodes} x local rank + node"
    return f"ranks fill node after node: rank = {layout.ranks_per_node} x node + local rank"
