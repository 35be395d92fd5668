"""Assigns cores to each rank of a node. Pure arithmetic on a `Node`; `placing` decides how many and why.

A rank's *home* is the domain of its GPUs; without GPUs the ranks are spread evenly. Placements are tried from
best to worst: within the rank's own domains (a NUMA node, the cores sharing a cache), within one socket,
on whole sockets, and consecutively over the node, where some ranks span two sockets. Cores are usable-core numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from stackyard.core.late import dataclass
from stackyard.launch.layout.model import Node

KEEP_TO_DOMAINS = 0.75
"""Ranks stay within their own domains if this costs at most a quarter of the cores that they would get if only bound to
one socket: remote cache or memory costs a rank more than a few cores gain."""

Cores = tuple[int, ...]


@dataclass(frozen=True)
class Homes:
    """The home sockets and domains of a node's ranks.

    Attributes:
        gpus: per rank, its GPUs.
        sockets: per rank, the socket with most of its GPUs (or the one assigned to it).
        domains: per rank, the domains of its GPUs on that socket, by index; empty without GPUs.
    """

    gpus: tuple[tuple[int, ...], ...]
    sockets: tuple[int, ...]
    domains: tuple[tuple[int, ...], ...]


def domain_cores(node: Node) -> tuple[Cores, ...]:
    """The usable-core numbers of each domain."""
    domains, first = [], 0
    for domain in node.domains:
        domains.append(tuple(range(first, first + len(domain.cores))))
        first += len(domain.cores)
    return tuple(domains)


def socket_cores(node: Node) -> dict[int, Cores]:
    """The usable-core numbers of each socket, in the order in which the domains name the sockets."""
    by_socket: dict[int, Cores] = {}
    for domain, cores in zip(node.domains, domain_cores(node), strict=True):
        by_socket[domain.socket] = by_socket.get(domain.socket, ()) + cores
    return by_socket


def homes_of(node: Node, gpus: Sequence[tuple[int, ...]]) -> Homes:
    """The homes of ranks with these GPUs; ranks without GPUs are spread over the sockets by the sockets' cores."""
    at = {gpu: index for index, domain in enumerate(node.domains) for gpu in domain.gpus}
    spread = _spread(len(gpus), {socket: len(cores) for socket, cores in socket_cores(node).items()})
    sockets, domains = [], []
    for rank, own in enumerate(gpus):
        places = [at[gpu] for gpu in own]
        on = [node.domains[place].socket for place in places]
        socket = max(on, key=lambda one: (on.count(one), -on.index(one))) if on else spread[rank]
        sockets.append(socket)
        domains.append(tuple(sorted({place for place in places if node.domains[place].socket == socket})))
    return Homes(tuple(gpus), tuple(sockets), tuple(domains))


def most_cores(node: Node, homes: Homes) -> int:
    """The largest number of cores per rank such that no rank of a node spans two sockets.

    Fewer ranks than sockets get whole sockets each. 0: more ranks than cores.
    """
    ranks, by_socket = len(homes.sockets), socket_cores(node)
    if ranks < len(by_socket):
        return min(len(cores) for cores in _whole_sockets(node, homes))
    sizes = [len(cores) for cores in by_socket.values()]
    on_socket = _largest(ranks, sizes, _counts(homes.sockets, list(by_socket))) or _largest(ranks, sizes, None)
    in_domain = _most_in_domains(node, homes)
    return in_domain if in_domain >= KEEP_TO_DOMAINS * on_socket and in_domain else on_socket


def place(node: Node, homes: Homes, cores_per_rank: int) -> tuple[Cores, ...]:
    """The cores of each rank, ascending; no core twice if the node has enough of them.

    Otherwise cores are shared, on the rank's own socket if that is large enough.
    """
    ranks = len(homes.sockets)
    if ranks * cores_per_rank > node.cores:
        return _shared(node, homes, cores_per_rank)
    ways: tuple[Callable[[Node, Homes, int], tuple[Cores, ...] | None], ...] = (_in_domains, _on_sockets, _whole)
    for way in ways:
        cores = way(node, homes, cores_per_rank)
        if cores is not None:
            return cores
    return _in_a_row(node, homes, cores_per_rank)


def packed(ranks: int, cores_per_rank: int) -> tuple[Cores, ...]:
    """Rank after rank along the node's usable cores, as one jsrun resource set with ``-b packed:N`` binds them."""
    return tuple(tuple(range(rank * cores_per_rank, (rank + 1) * cores_per_rank)) for rank in range(ranks))


def straddlers(node: Node, places: Sequence[Cores]) -> tuple[int, ...]:
    """The ranks whose cores are on more than one socket."""
    socket = {core: name for name, cores in socket_cores(node).items() for core in cores}
    return tuple(rank for rank, cores in enumerate(places) if len({socket[core] for core in cores}) > 1)


def _in_domains(node: Node, homes: Homes, width: int) -> tuple[Cores, ...] | None:
    """Places every rank within its own domains (those of its GPUs, and a share of the domains without GPUs)."""
    territories = _territories(node, homes) if any(homes.gpus) else _spread_domains(node, homes, width)
    if territories is None or any(len(cores) < width * len(ranks) for ranks, cores in territories):
        return None
    return _deal(len(homes.sockets), territories, width)


def _most_in_domains(node: Node, homes: Homes) -> int:
    if any(homes.gpus):
        territories = _territories(node, homes)
        return 0 if territories is None else min(len(cores) // len(ranks) for ranks, cores in territories)
    sizes = [len(domain.cores) for domain in node.domains]
    return _largest(len(homes.sockets), sizes, None) if len(homes.sockets) >= len(sizes) else 0


def _territories(node: Node, homes: Homes) -> list[tuple[list[int], Cores]] | None:
    """Ranks with the same home domains, and the cores they share. None if homes overlap or a rank has none."""
    groups: dict[tuple[int, ...], list[int]] = {}
    for rank, domains in enumerate(homes.domains):
        groups.setdefault(domains, []).append(rank)
    taken = [domain for domains in groups for domain in domains]
    if () in groups or len(set(taken)) != len(taken):
        return None
    cores = domain_cores(node)
    territories = []
    for domains, ranks in groups.items():
        socket = node.domains[domains[0]].socket
        same = [other for other in groups if node.domains[other[0]].socket == socket]
        free = [d for d, domain in enumerate(node.domains) if domain.socket == socket and d not in taken]
        share = len(free) // len(same)
        first = sorted(same).index(domains) * share
        own = [*domains, *free[first : first + share]]
        territories.append((ranks, tuple(core for domain in own for core in cores[domain])))
    return territories


def _spread_domains(node: Node, homes: Homes, width: int) -> list[tuple[list[int], Cores]] | None:
    """Ranks without GPUs spread over the domains, as evenly as whole ranks fit."""
    cores = domain_cores(node)
    room = {domain: len(cores[domain]) // width for domain in range(len(cores))}
    ranks = len(homes.sockets)
    if sum(room.values()) < ranks or ranks < len(room):
        return None
    at = _spread(ranks, room)
    return [([r for r in range(ranks) if at[r] == domain], cores[domain]) for domain in room if domain in at]


def _on_sockets(node: Node, homes: Homes, width: int) -> tuple[Cores, ...] | None:
    """Places every rank on its home socket; if that is full, ranks move to another one with room."""
    by_socket = socket_cores(node)
    room = {socket: len(cores) // width for socket, cores in by_socket.items()}
    if sum(room.values()) < len(homes.sockets):
        return None
    groups: dict[int, list[int]] = {socket: [] for socket in by_socket}
    late: list[int] = []
    for rank, socket in enumerate(homes.sockets):
        (groups[socket] if len(groups[socket]) < room[socket] else late).append(rank)
    for rank in late:
        groups[next(socket for socket in groups if len(groups[socket]) < room[socket])].append(rank)
    territories = [
        (sorted(ranks, key=lambda r: (homes.domains[r], r)), by_socket[s]) for s, ranks in groups.items() if ranks
    ]
    return _deal(len(homes.sockets), territories, width)


def _whole(node: Node, homes: Homes, width: int) -> tuple[Cores, ...] | None:
    """With fewer ranks than sockets: whole, unshared sockets for each rank."""
    if len(homes.sockets) >= node.sockets:
        return None
    sockets = _whole_sockets(node, homes)
    if any(len(cores) < width for cores in sockets):
        return None
    return tuple(tuple(sorted(cores[:width])) for cores in sockets)


def _whole_sockets(node: Node, homes: Homes) -> list[Cores]:
    """The cores of an equal number of sockets per rank, starting with the sockets of its GPUs."""
    by_socket = socket_cores(node)
    share = len(by_socket) // len(homes.sockets)
    free = list(by_socket)
    on = {gpu: domain.socket for domain in node.domains for gpu in domain.gpus}
    blocks = []
    for gpus in homes.gpus:
        order = list(dict.fromkeys(on[gpu] for gpu in gpus))
        mine = sorted(free, key=lambda s: order.index(s) if s in order else len(order))[:share]
        free = [socket for socket in free if socket not in mine]
        blocks.append(tuple(core for socket in mine for core in by_socket[socket]))
    return blocks


def _in_a_row(node: Node, homes: Homes, width: int) -> tuple[Cores, ...]:
    """The fallback: consecutive ranks in the order of their homes; some span two sockets."""
    order = sorted(range(len(homes.sockets)), key=lambda rank: (homes.domains[rank], rank))
    return _deal(len(order), [(order, tuple(range(node.cores)))], width)


def _shared(node: Node, homes: Homes, width: int) -> tuple[Cores, ...]:
    """With more cores requested than available, assignment wraps around to the first core."""
    by_socket, taken = socket_cores(node), dict.fromkeys(socket_cores(node), 0)
    everything, row = tuple(range(node.cores)), 0
    shares = []
    for socket in homes.sockets:
        mine = by_socket[socket] if width <= len(by_socket[socket]) else everything
        first = taken[socket] if mine is not everything else row
        count = min(width, len(mine))
        shares.append(tuple(sorted(mine[(first + step) % len(mine)] for step in range(count))))
        taken[socket] += count
        row += count
    return tuple(shares)


def _deal(ranks: int, territories: Sequence[tuple[list[int], Cores]], width: int) -> tuple[Cores, ...]:
    shares: list[Cores] = [()] * ranks
    for members, cores in territories:
        for index, rank in enumerate(members):
            shares[rank] = tuple(sorted(cores[index * width : (index + 1) * width]))
    return tuple(shares)


def _spread(ranks: int, room: dict[int, int]) -> tuple[int, ...]:
    """The place of each rank: neighbours together, places filled in proportion to their capacity."""
    counts = dict.fromkeys(room, 0)
    for _ in range(ranks):
        open_places = [one for one in room if counts[one] < room[one]] or list(room)
        counts[min(open_places, key=lambda one: (counts[one] + 1) / max(room[one], 1))] += 1
    return tuple(one for one, count in counts.items() for _ in range(count))


def _counts(chosen: Sequence[int], places: Sequence[int]) -> list[int]:
    return [list(chosen).count(one) for one in places]


def _largest(ranks: int, sizes: Sequence[int], counts: Sequence[int] | None) -> int:
    """The largest share such that every place holds its ranks; without `counts` ranks may go to any place with room."""
    if counts is not None:
        return min(size // count for size, count in zip(sizes, counts, strict=True) if count)
    return next((c for c in range(max(sizes), 0, -1) if sum(size // c for size in sizes) >= ranks), 0)


def own_gpus(node: Node, ranks: int, count: int) -> tuple[tuple[int, ...], ...]:
    """The GPUs of each rank, in the driver's order, so that local rank i with one GPU has GPU i.

    Programs choose their device by local rank; any other order would put them on a GPU next to another rank's cores.
    With more ranks than GPUs, neighbouring ranks share one.
    """
    gpus = sorted(gpu for domain in node.domains for gpu in domain.gpus)
    if not gpus or not count:
        return ((),) * ranks
    if ranks * count <= len(gpus):
        return tuple(tuple(gpus[rank * count : (rank + 1) * count]) for rank in range(ranks))
    firsts = (rank * len(gpus) // ranks for rank in range(ranks))
    return tuple(tuple(gpus[(first + step) % len(gpus)] for step in range(min(count, len(gpus)))) for first in firsts)


def gpus_each(node: Node, ranks: int) -> int:
    """The default number of GPUs per rank: the GPUs divided by the ranks, at least one (shared)."""
    return max(1, node.gpus // ranks) if node.gpus else 0
