"""`Node`: what one node offers to jobs, from the site file's words; or from this machine, where there is no site.

What a site file does not say is taken to be the plainest case (cores and GPUs split evenly over the sockets), and
every such guess is a sentence in `Node.assumed`, so that a picture or a plan can show what it rests on.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from stackyard.errors import InputError
from stackyard.launch.layout.model import Node, NodeDomain
from stackyard.launch.layout.this_node import this_node
from stackyard.launch.request.intent import Intent
from stackyard.spec.sitemodels import NodeKind, Site

__all__ = ["core_list", "core_ranges", "even_split", "node_of", "pick_kind", "this_node"]

_RANGE = re.compile(r"(\d+)(?:-(\d+))?")


def node_of(name: str, kind: NodeKind) -> Node:
    """A node of a kind that the site file describes.

    Args:
        name: the kind's key under ``nodes:``, used in errors.
        kind: what the file says of it. Without ``domains`` there is one per socket, with cores and GPUs split evenly.

    Raises:
        InputError: the description contradicts itself (a core or a GPU twice, a core that the node does not have, a
            number of cores that the domains do not have), or no number of cores is given at all.
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
        assumed.append(f"{name} has {all_cores} cores: the highest that its domains name is {all_cores - 1}")
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

    A site without kinds of node is this machine.

    Raises:
        InputError: no kind has that name, or several would do.
    """
    if intent.node_kind:
        if intent.node_kind not in site.nodes:
            known = f"known: {', '.join(site.nodes)}" if site.nodes else "the site describes none"
            raise InputError(f"the site has no node kind {intent.node_kind}", hint=known)
        return node_of(intent.node_kind, site.nodes[intent.node_kind])
    if not site.nodes:
        return this_node()
    with_gpus = [name for name, kind in site.nodes.items() if kind.gpu.count or any(d.gpus for d in kind.domains)]
    for candidates in (list(site.nodes), with_gpus):
        if len(candidates) == 1:
            return node_of(candidates[0], site.nodes[candidates[0]])
    raise InputError(
        f"the site has several kinds of node: {', '.join(site.nodes)}", hint="say which one with --node-kind"
    )


def core_list(text: str) -> tuple[int, ...]:
    """The cores that ``0-20,22`` names, in the order written.

    Raises:
        ValueError: it is not such a list; the message says which part.
    """
    cores: list[int] = []
    for part in text.replace(" ", "").split(","):
        match = _RANGE.fullmatch(part)
        if match is None:
            raise ValueError(f"{part!r} is neither a number nor a range such as 0-20")
        first, last = int(match[1]), int(match[2] or match[1])
        if last < first:
            raise ValueError(f"{part} goes backwards")
        cores.extend(range(first, last + 1))
    return tuple(cores)


def core_ranges(cores: Iterable[int]) -> str:
    """Numbers as a list of ranges, ``0-20,22``: what `core_list` reads."""
    parts: list[list[int]] = []
    for core in sorted(set(cores)):
        if parts and core == parts[-1][1] + 1:
            parts[-1][1] = core
        else:
            parts.append([core, core])
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in parts)


def even_split(total: int, parts: int) -> tuple[int, ...]:
    """`total` things over `parts` places as evenly as can be; the first places get the rest."""
    each, rest = divmod(total, parts)
    return tuple(each + (1 if index < rest else 0) for index in range(parts))


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
    """One domain per socket. Cores kept for the system are taken to be the last ones of each socket."""
    if kind.cores < 1:
        raise InputError(
            f"the site file does not say how many cores a node of kind {name} has",
            hint=f"add cores: (and sockets:, or domains:) under nodes.{name}",
        )
    sockets = max(1, min(kind.sockets, kind.cores))
    sizes = even_split(max(kind.all_cores, kind.cores), sockets)
    usable = even_split(kind.cores, sockets)
    starts = [sum(sizes[:socket]) for socket in range(sockets)]
    if sockets > 1:
        assumed.append(f"the {kind.cores} cores of {name} are split evenly over its {sockets} sockets, in order")
    if kind.all_cores > kind.cores:
        kept = kind.all_cores - kind.cores
        assumed.append(f"the {kept} cores of {name} that are not for jobs are the last of each socket")
    return tuple(
        NodeDomain(socket, tuple(range(starts[socket], starts[socket] + usable[socket]))) for socket in range(sockets)
    )


def _with_gpus(domains: Sequence[NodeDomain], gpus: int) -> tuple[NodeDomain, ...]:
    made, first = [], 0
    for domain, share in zip(domains, even_split(gpus, len(domains)), strict=True):
        made.append(NodeDomain(domain.socket, domain.cores, tuple(range(first, first + share)), domain.nics))
        first += share
    return tuple(made)


def _count(domains: Sequence[NodeDomain]) -> str:
    sockets = {domain.socket for domain in domains}
    return f"{len(domains)} {'sockets' if len(sockets) == len(domains) else 'domains'}"


def _check(name: str, kind: NodeKind, domains: Sequence[NodeDomain], all_cores: int) -> None:
    """Refuse a description that contradicts itself; each message names the kind and the two things that disagree."""
    cores = [core for domain in domains for core in domain.cores]
    gpus = [gpu for domain in domains for gpu in domain.gpus]
    at = f"node kind {name}"
    if any(not domain.cores for domain in domains):
        raise InputError(f"{at}: a domain has no cores", hint=f"name its cores under nodes.{name}.domains")
    if twice := _repeated(cores):
        raise InputError(f"{at}: core {core_ranges(twice)} is in two domains", hint="a core belongs to one domain")
    if twice := _repeated(gpus):
        raise InputError(f"{at}: GPU {core_ranges(twice)} is in two domains", hint="a GPU belongs to one domain")
    if kind.cores and len(cores) != kind.cores:
        raise InputError(f"{at}: cores is {kind.cores}, but its domains have {len(cores)}", hint="make them agree")
    if max(cores) >= all_cores:
        raise InputError(
            f"{at}: there is no core {max(cores)}, since the node has {all_cores} (numbered from 0)",
            hint=f"say how many cores the node has, the system's included, in nodes.{name}.all_cores",
        )
    if kind.gpu.count and len(gpus) != kind.gpu.count:
        raise InputError(
            f"{at}: gpu.count is {kind.gpu.count}, but its domains have {len(gpus)} GPUs", hint="make them agree"
        )
    if len({domain.socket for domain in domains}) > max(kind.sockets, 1):
        raise InputError(f"{at}: sockets is {kind.sockets}, but its domains are on more", hint="make them agree")


def _repeated(numbers: Sequence[int]) -> set[int]:
    seen: set[int] = set()
    return {number for number in numbers if number in seen or seen.add(number)}  # type: ignore[func-returns-value]
