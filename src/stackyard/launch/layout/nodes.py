"""`Node`: the resources of one node, from the site file, or from this machine without a site.

What a site file omits gets the simplest default (cores and GPUs split evenly over the sockets); each such assumption is
a sentence in `Node.assumed`, which a picture or a plan can show.
"""

from __future__ import annotations

from collections.abc import Sequence

from stackyard.core.errors import InputError
from stackyard.host.machine.ranges import core_list, ranges
from stackyard.inputs.sites.sitemodels import NodeKind, Site
from stackyard.launch.layout.model import Node, NodeDomain
from stackyard.launch.layout.this_node import this_node
from stackyard.launch.request.intent import Intent

__all__ = ["even_split", "node_of", "pick_kind", "this_node"]


def node_of(name: str, kind: NodeKind) -> Node:
    """A node of a kind that the site file describes.

    Args:
        name: the kind's key under ``nodes:``, used in errors.
        kind: its description. Without ``domains`` there is one per socket, with cores and GPUs split evenly.

    Raises:
        InputError: the description contradicts itself (a core or a GPU twice, a core out of range, a
            number of cores that differs from the domains), or no number of cores is given.
    """
    assumed: list[str] = []
    all_cores = kind.all_cores or kind.cores
    domains = _said(name, kind) if kind.domains else _split(name, kind, assumed)
    if not any(domain.gpus for domain in domains) and kind.gpu.count:
        domains = _with_gpus(domains, kind.gpu.count)
        if len(domains) > 1:
            assumed.append(f"the {kind.gpu.count} GPUs of {name} are split evenly over its {_count(domains)}, in order")
    if kind.domains and not all_cores:
        all_cores = max(core for domain in domains for core in domain.cores) + 1
        assumed.append(f"{name} has {all_cores} cores: the highest core of its domains is {all_cores - 1}")
    _check(name, kind, domains, all_cores)
    return Node(
        kind=name,
        domains=domains,
        all_cores=all_cores,
        smt=kind.smt,
        smt_numbering=kind.smt_numbering,
        gpu_vendor=kind.gpu.vendor,
        gpu_peers=kind.gpu_peers,
        memory_gib=kind.memory_gib,
        assumed=tuple(assumed),
    )


def pick_kind(site: Site, intent: Intent) -> Node:
    """The node that a job is planned for: the kind it names, else the only one, else the only one with GPUs.

    For a site without node kinds, this machine.

    Raises:
        InputError: no such kind, or several match.
    """
    if intent.node_kind:
        if intent.node_kind not in site.nodes:
            known = f"use one of {', '.join(site.nodes)}" if site.nodes else "the site file describes no node kinds"
            raise InputError(f"no such node kind: {intent.node_kind}", hint=known)
        return node_of(intent.node_kind, site.nodes[intent.node_kind])
    if not site.nodes:
        return this_node()
    with_gpus = [name for name, kind in site.nodes.items() if kind.gpu.count or any(d.gpus for d in kind.domains)]
    for candidates in (list(site.nodes), with_gpus):
        if len(candidates) == 1:
            return node_of(candidates[0], site.nodes[candidates[0]])
    raise InputError(f"the site has several node kinds: {', '.join(site.nodes)}", hint="choose one with --node-kind")


def even_split(total: int, parts: int) -> tuple[int, ...]:
    """`total` items over `parts` places as evenly as possible; the first places get the remainder."""
    share, rest = divmod(total, parts)
    return tuple(share + (1 if index < rest else 0) for index in range(parts))


def _said(name: str, kind: NodeKind) -> tuple[NodeDomain, ...]:
    domains = []
    for index, domain in enumerate(kind.domains):
        try:
            cores = core_list(domain.cores)
        except ValueError as error:
            raise InputError(f"nodes.{name}.domains[{index}].cores: {error}") from None
        domains.append(NodeDomain(domain.socket, tuple(sorted(cores)), domain.gpus, domain.nics))
    return tuple(domains)


def _split(name: str, kind: NodeKind, assumed: list[str]) -> tuple[NodeDomain, ...]:
    """One domain per socket. Reserved cores are assumed to be the last ones of each socket."""
    if kind.cores < 1:
        raise InputError(
            f"missing number of cores of node kind {name}",
            hint=f"add cores: (and sockets:, or domains:) under nodes.{name}",
        )
    sockets = max(1, min(kind.sockets, kind.cores))
    sizes = even_split(max(kind.all_cores, kind.cores), sockets)
    usable = even_split(kind.cores, sockets)
    starts = [sum(sizes[:socket]) for socket in range(sockets)]
    if sockets > 1:
        assumed.append(f"the {kind.cores} cores of {name} are split evenly over its {sockets} sockets, in order")
    if kind.all_cores > kind.cores:
        reserved = kind.all_cores - kind.cores
        assumed.append(f"the {reserved} reserved cores of {name} are the last of each socket")
    return tuple(
        NodeDomain(socket, tuple(range(starts[socket], starts[socket] + usable[socket]))) for socket in range(sockets)
    )


def _with_gpus(domains: Sequence[NodeDomain], gpus: int) -> tuple[NodeDomain, ...]:
    groups, first = [], 0
    for domain, share in zip(domains, even_split(gpus, len(domains)), strict=True):
        groups.append(NodeDomain(domain.socket, domain.cores, tuple(range(first, first + share)), domain.nics))
        first += share
    return tuple(groups)


def _count(domains: Sequence[NodeDomain]) -> str:
    sockets = {domain.socket for domain in domains}
    return f"{len(domains)} {'sockets' if len(sockets) == len(domains) else 'domains'}"


def _check(name: str, kind: NodeKind, domains: Sequence[NodeDomain], all_cores: int) -> None:
    """Reject a description that contradicts itself; each message names the kind and the two values that disagree."""
    cores = [core for domain in domains for core in domain.cores]
    gpus = [gpu for domain in domains for gpu in domain.gpus]
    at = f"node kind {name}"
    if any(not domain.cores for domain in domains):
        raise InputError(f"{at}: a domain has no cores", hint=f"list its cores under nodes.{name}.domains")
    if twice := _repeated(cores):
        raise InputError(f"{at}: core {ranges(twice)} is in two domains", hint="list each core in one domain")
    if twice := _repeated(gpus):
        raise InputError(f"{at}: GPU {ranges(twice)} is in two domains", hint="list each GPU in one domain")
    if kind.cores and len(cores) != kind.cores:
        raise InputError(f"{at}: cores is {kind.cores}, but its domains have {len(cores)}", hint="use the same number")
    if max(cores) >= all_cores:
        raise InputError(
            f"{at}: core {max(cores)} is out of range: the node has {all_cores} cores, numbered from 0",
            hint=f"set nodes.{name}.all_cores to the number of all cores of the node, reserved ones included",
        )
    if kind.gpu.count and len(gpus) != kind.gpu.count:
        raise InputError(
            f"{at}: gpu.count is {kind.gpu.count}, but its domains have {len(gpus)} GPUs", hint="use the same number"
        )
    if len({domain.socket for domain in domains}) > max(kind.sockets, 1):
        raise InputError(f"{at}: sockets is {kind.sockets}, but its domains name more", hint="use the same number")


def _repeated(numbers: Sequence[int]) -> set[int]:
    seen: set[int] = set()
    return {number for number in numbers if number in seen or seen.add(number)}  # type: ignore[func-returns-value]
