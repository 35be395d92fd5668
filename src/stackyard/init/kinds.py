"""Groups the nodes of a cluster into the kinds of a site.yaml, and chooses the queue and the feature of each."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Sequence
from itertools import groupby
from typing import NamedTuple

from stackyard.core.late import dataclass
from stackyard.init.model import Cluster, HostNode, Queue

_ALIKE = 1.1
"""Nodes are of one kind if the memory of the largest is at most this much of the smallest."""


@dataclass(frozen=True)
class Kind:
    """Nodes that are alike: the first stands for all, with the smallest memory among them."""

    name: str
    like: HostNode
    hosts: tuple[str, ...]
    queue: str
    constraint: str


class _Hardware(NamedTuple):
    arch: str
    cores: int
    all_cores: int
    sockets: int
    smt: int
    gpus: int
    model: str
    queues: tuple[str, ...]


def kinds(cluster: Cluster) -> list[Kind]:
    """The kinds, the largest first; of nodes that are up, or of all if none is."""
    up = [node for node in cluster.nodes if node.is_up] or list(cluster.nodes)
    groups: list[list[HostNode]] = []
    for _, alike in groupby(sorted(up, key=_key), key=_hardware):
        for node in alike:
            if (
                groups
                and _hardware(groups[-1][0]) == _hardware(node)
                and (node.memory_gib <= _ALIKE * groups[-1][0].memory_gib)
            ):
                groups[-1].append(node)
            else:
                groups.append([node])
    groups.sort(key=lambda group: (-len(group), group[0].host))
    names = _names(groups)
    return [
        Kind(name, group[0], tuple(node.host for node in group), *_selection(group, groups, cluster.queues))
        for name, group in zip(names, groups, strict=True)
    ]


def _hardware(node: HostNode) -> _Hardware:
    """What nodes of one kind have in common; GPUs of which no model is told differ by the queues of their nodes."""
    queues = node.queues if node.gpus and not node.gpu_model else ()
    return _Hardware(
        node.arch, node.cores, node.all_cores, node.sockets, node.smt, node.gpus, node.gpu_model.lower(), queues
    )


def _key(node: HostNode) -> tuple[_Hardware, float, str]:
    return _hardware(node), node.memory_gib, node.host


def _names(groups: Sequence[Sequence[HostNode]]) -> list[str]:
    """A name for each: its GPU, or else cpu; with its queue, memory or a number if that is not enough."""
    plain = [word(group[0].gpu_model or "gpu") if group[0].gpus else "cpu" for group in groups]
    found: list[str] = []
    for name, group in zip(plain, groups, strict=True):
        own = _own_queue(group, groups)
        memory = f"{name}-{group[0].memory_gib:.0f}gib"
        options = [name] if plain.count(name) == 1 else [word(own), memory] if own else [memory]
        options += [f"{memory}-{number}" for number in range(2, 2 + len(groups))]
        found.append(next(option for option in options if option and option not in found))
    return found


def _own_queue(group: Sequence[HostNode], groups: Sequence[Sequence[HostNode]]) -> str:
    """The queue that has nodes of this kind alone."""
    others = {queue for other in groups if other is not group for node in other for queue in node.queues}
    own = Counter(queue for node in group for queue in node.queues if queue not in others)
    return max(own, key=lambda queue: (own[queue], queue), default="")


def word(text: str) -> str:
    """Text as a name in a site.yaml: small letters, digits and hyphens."""
    return re.sub(r"[^a-z0-9]+", "-", text.lower().removeprefix("nvidia_").removeprefix("amd_")).strip("-")


def _selection(
    group: Sequence[HostNode], groups: Sequence[Sequence[HostNode]], queues: Sequence[Queue]
) -> tuple[str, str]:
    """The queue that sends jobs to such nodes, and the feature that they need in it, or empty.

    The one with most of them; of several the default, then one that has no other nodes, then that with the longest
    limit: a queue for debugging has all nodes too.
    """
    known = {queue.name: queue for queue in queues}
    has = Counter(queue for node in group for queue in node.queues if known.get(queue, Queue(queue)).is_up)
    if not has:
        return "", ""
    all_nodes: dict[str, int] = defaultdict(int)
    for other in groups:
        for node in other:
            for queue in node.queues:
                all_nodes[queue] += 1

    def rank(name: str) -> tuple[int, bool, bool, float, str]:
        queue = known.get(name, Queue(name))
        return has[name], all_nodes[name] == has[name], queue.is_default, queue.time_min or float("inf"), name

    best = max(has, key=rank)
    return best, _feature(group, [node for other in groups if other is not group for node in other
                                  if best in node.queues])  # fmt: skip


def _feature(group: Sequence[HostNode], others: Sequence[HostNode]) -> str:
    """A feature that all of these nodes have, and none of the others of their queue; GPUs are asked for by count."""
    if not others or (group[0].gpus and not any(node.gpus for node in others)):
        return ""
    common = set.intersection(*(set(node.features) for node in group))
    rest = {feature for node in others for feature in node.features}
    return min(common - rest, key=lambda name: (len(name), name), default="")
