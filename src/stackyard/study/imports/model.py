"""An import storm as a closed queue: each client has one request at a time at the one server, or is busy itself.

Its time for n clients follows from two numbers: the seconds of one import that are the client's own (its computing, the
network), and those that are the server's. Both are fitted to times that were measured while the server was loaded;
below the knee the server's part cannot be told from the client's. The number of requests cancels out of the time.

Source: M. Reiser and S. S. Lavenberg, Mean-value analysis of closed multichain queuing networks, J. ACM 27 (1980) 313.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from stackyard.core.late import dataclass

LOADED = 2.0
"""The server is loaded where an import takes longer than this many times the one of a single client."""
WAITED = 0.25
"""Where ranks waited for a core for this share of the time, that says nothing about the server."""
FEWEST = 3
"""Numbers of clients without which the two seconds are guessed, not fitted."""
SHARES = 600
NODES, RANKS = "nodes", "ranks"
"""Who asks the server: each node once, since it keeps names for its ranks; or each rank."""


@dataclass(frozen=True)
class Point:
    """One measurement.

    Attributes:
        seconds: of the slowest rank.
        waited_s: for which it waited for a core; None: the kernel does not tell, more ranks than cores have waited.
    """

    nodes: int
    per_node: int
    seconds: float
    waited_s: float | None = 0

    def clients(self, who: str) -> int:
        """How many ask the server."""
        return self.nodes if who == NODES else self.nodes * self.per_node


@dataclass(frozen=True)
class Cores:
    """What an import computes, and on how many cores per node."""

    cpu_s: float
    cores: int

    def seconds(self, per_node: int) -> float:
        """The least time of this many imports on one node."""
        return self.cpu_s * max(1.0, per_node / self.cores)

    def are_busy(self, point: Point) -> bool:
        """Whether the ranks of a point waited for cores."""
        return point.per_node > self.cores if point.waited_s is None else point.waited_s > WAITED * point.seconds


@dataclass(frozen=True)
class Fit:
    """A fitted queue.

    Attributes:
        who: who its clients are: `NODES` or `RANKS`.
        own_s: seconds of one import that are not the server's (z, for all of its requests).
        server_s: seconds of the server for one import (s, for all of its requests).
        error: the largest relative deviation of a measured time from the fitted one.
        most: the most clients that were measured.
        is_sure: whether the measurements can tell nodes from ranks.
    """

    who: str
    own_s: float
    server_s: float
    error: float
    most: int
    is_sure: bool

    @property
    def knee(self) -> float:
        """The number of clients above which the server sets the time."""
        return 1 + self.own_s / self.server_s

    def seconds(self, nodes: int, per_node: int, cores: Cores) -> float:
        """The time of an import by this many ranks: the server's or that of the cores, whichever is longer."""
        clients = Point(nodes, per_node, 0).clients(self.who)
        return max(cores.seconds(per_node), queue(clients, self.own_s, self.server_s)[-1])


def queue(clients: int, own_s: float, server_s: float) -> list[float]:
    """The seconds that 1, 2, ... `clients` clients need: exact mean value analysis.

    A request that arrives finds the queue that one client fewer has on average.
    """
    waiting, found = 0.0, []
    for number in range(1, clients + 1):
        answer = server_s * (1 + waiting)
        waiting = number * answer / (own_s + answer)
        found.append(own_s + answer)
    return found


def fitted(points: Sequence[Point], cores: Cores) -> Fit | None:
    """The queue that the measured times fit best; None: the server was not loaded, and nothing can be said of more.

    Times in which the cores were busy are left out.
    """
    usable = [point for point in points if not cores.are_busy(point)]
    fits = [fit for clients in (NODES, RANKS) if (fit := _fit(usable, clients))]
    if not fits:
        return None
    best = min(fits, key=lambda fit: fit.error)
    return replace(best, is_sure=any(point.per_node > 1 for point in usable))


def _fit(points: Sequence[Point], who: str) -> Fit | None:
    """One search over the server's share of a single import; the scale follows, since times are proportional to it."""
    if not _is_loaded(points, who):
        return None
    most = max(point.clients(who) for point in points)
    best: tuple[float, float, float] | None = None
    for step in range(1, SHARES):
        share = (step / SHARES) ** 3  # the small ones finer
        times = queue(most, 1 - share, share)
        logs = [math.log(point.seconds / times[point.clients(who) - 1]) for point in points]
        scale = math.fsum(logs) / len(logs)
        error = math.fsum((log - scale) ** 2 for log in logs)
        if best is None or error < best[0]:
            best = (error, share, math.exp(scale))
    assert best is not None
    _, share, scale = best
    own_s, server_s = (1 - share) * scale, share * scale
    times = queue(most, own_s, server_s)
    worst = max(abs(times[point.clients(who) - 1] / point.seconds - 1) for point in points)
    return Fit(who, own_s, server_s, worst, most, is_sure=False)


def _is_loaded(points: Sequence[Point], who: str) -> bool:
    counts = sorted({point.clients(who) for point in points})
    alone = [point.seconds for point in points if point.clients(who) in counts[:1]]
    more = [point.seconds for point in points if point.clients(who) not in counts[:1]]
    return len(counts) >= FEWEST and max(more) > LOADED * max(alone)


def predictions(
    fit: Fit, cores: Cores, per_node: int, ranks: Sequence[int] = (1_000, 100_000)
) -> Iterator[Mapping[str, object]]:
    """For each number of ranks the seconds, and what is assumed: both ways where the measurements cannot tell."""
    for number in ranks:
        nodes = math.ceil(number / per_node)
        for who in (fit.who,) if fit.is_sure else (NODES, RANKS):
            clients = Point(nodes, per_node, 0).clients(who)
            kept = "each node keeps names for its ranks" if who == NODES else "nodes keep no names"
            yield {
                "ranks": number, "nodes": nodes, "clients": clients,
                "seconds": replace(fit, who=who).seconds(nodes, per_node, cores),
                "assuming": f"{per_node} per node; {kept}: {clients:,} clients; one server, as fast as measured",
            }  # fmt: skip
