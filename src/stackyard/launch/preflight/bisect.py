"""Finds the hosts that make a group fail, by testing groups: the disjoint groups of a round run in parallel. Pure.

A host may pass alone and fail with others (its link), so a single host is tested together with one that is known to be
good. One bad host among n takes about log2(n) + 2 rounds; several share their rounds.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

Group = tuple[str, ...]
Test = Callable[[Sequence[Group]], list[bool]]


@dataclass(frozen=True)
class BisectResult:
    """The cause of a group's failure.

    Attributes:
        nodes: hosts that fail with every partner.
        links: two hosts, each good with others, that fail together.
        together: hosts with which a larger group fails although they do not fail in any pair that was tried.
        rounds: the number of calls of `test`.
    """

    nodes: tuple[str, ...] = ()
    links: tuple[tuple[str, str], ...] = ()
    together: tuple[str, ...] = ()
    rounds: int = 0

    @property
    def hosts(self) -> tuple[str, ...]:
        """Hosts without which the rest passes: the nodes, and one end of each link."""
        return tuple(dict.fromkeys((*self.nodes, *(right for _, right in self.links), *self.together)))

    def reasons(self, what: str) -> dict[str, str]:
        """Why each of `hosts` is excluded, where `what` failed."""
        said = dict.fromkeys(self.nodes, f"{what} fails with every other node")
        said.update({right: f"{what} fails between {left} and {right}" for left, right in self.links})
        said.update(dict.fromkeys(self.together, f"{what} fails in larger groups that include it"))
        return said


def find_bad(hosts: Sequence[str], test: Test, good: Sequence[str] = ()) -> BisectResult:
    """Find the hosts that make a test of all of `hosts` fail.

    Args:
        test: returns for each of some disjoint groups whether it passes.
        good: hosts that are already known to be good; the others are suspects.

    Returns:
        The bad hosts and links; none if every group passes now (the failure was transient). Two hosts that only fail
        together are a link: which of the two is bad cannot be determined.
    """
    search = _Search(test, list(good))
    search.split([tuple(host for host in hosts if host not in set(good))])
    survivors = [host for host in hosts if host in set(search.good)]
    links, together = search.among(survivors)
    bad = set(search.bad)
    return BisectResult(tuple(h for h in hosts if h in bad), (*search.links, *links), together, search.rounds)


class _Search:
    def __init__(self, test: Test, good: list[str]) -> None:
        self._test = test
        self.good, self.bad = good, list[str]()
        self.links: list[tuple[str, str]] = []
        self.rounds = 0

    def ask(self, groups: Sequence[Group]) -> list[bool]:
        """Test one round; nothing if no group is left to test, since every host is known to be good."""
        if not groups:
            return []
        self.rounds += 1
        return list(self._test(groups))

    def split(self, failing: list[Group]) -> None:
        """Halve failing groups until each suspect is proved good or bad."""
        waiting: list[str] = []
        while failing or waiting:
            parts = [half for group in failing for half in _halves(group)]
            waiting += [part[0] for part in parts if len(part) == 1]
            groups = [part for part in parts if len(part) > 1]
            if not groups and waiting and not self.good:
                self._without_witness(waiting)
                return
            tried, waiting = waiting[: len(self.good)], waiting[len(self.good) :]
            passed = self.ask([*groups, *((host, self.good[i]) for i, host in enumerate(tried))])
            failing = [group for group, ok in zip(groups, passed, strict=False) if not ok]
            self.good += [host for group, ok in zip(groups, passed, strict=False) if ok for host in group]
            for host, ok in zip(tried, passed[len(groups) :], strict=True):
                (self.good if ok else self.bad).append(host)

    def _without_witness(self, hosts: list[str]) -> None:
        """No host is known to be good: test each alone, then all pairs, until one pair passes."""
        alone = self.ask([(host,) for host in hosts])
        self.bad += [host for host, ok in zip(hosts, alone, strict=True) if not ok]
        rest = [host for host, ok in zip(hosts, alone, strict=True) if ok]
        if len(rest) == 2 and len(hosts) == 2:
            self._only_two(rest[0], rest[1])
            return
        if len(rest) == 1:
            self.good += rest
            return
        for pairs in all_pairs(rest):
            passed = self.ask(pairs)
            proved = [host for pair, ok in zip(pairs, passed, strict=True) if ok for host in pair]
            if proved:
                self.good += proved
                self._with_witnesses([host for host in rest if host not in proved])
                return
        self.bad += rest

    def _only_two(self, left: str, right: str) -> None:
        if self.ask([(left, right)])[0]:
            self.good += [left, right]
        else:
            self.good.append(left)
            self.links.append((left, right))

    def _with_witnesses(self, hosts: list[str]) -> None:
        while hosts:
            tried, hosts = hosts[: len(self.good)], hosts[len(self.good) :]
            passed = self.ask([(host, self.good[i]) for i, host in enumerate(tried)])
            for host, ok in zip(tried, passed, strict=True):
                (self.good if ok else self.bad).append(host)

    def among(self, hosts: list[str]) -> tuple[tuple[tuple[str, str], ...], tuple[str, ...]]:
        """For hosts that each pass with another one: whether all pass together, and if not, two that fail."""
        links: list[tuple[str, str]] = []
        together: list[str] = []
        while len(hosts) > 1 and not self.ask([tuple(hosts)])[0]:
            right = hosts[self._shortest(hosts, ()) - 1]
            before = hosts[: hosts.index(right)]
            left = before[self._shortest(before, (right,)) - 1]
            if self.ask([(left, right)])[0]:
                together.append(right)
            else:
                links.append((left, right))
            hosts = [host for host in hosts if host != right]
        return tuple(links), tuple(together)

    def _shortest(self, hosts: list[str], more: Group) -> int:
        """The length of the shortest beginning of `hosts` that fails with `more`; all of them are known to fail."""
        low, high = 1, len(hosts)
        while low < high:
            middle = (low + high) // 2
            group = (*hosts[:middle], *more)
            if len(group) > 1 and not self.ask([group])[0]:
                high = middle
            else:
                low = middle + 1
        return low


def _halves(group: Group) -> list[Group]:
    if len(group) < 2:
        return [group] if group else []
    return [group[: len(group) // 2], group[len(group) // 2 :]]


def all_pairs(hosts: Sequence[str]) -> list[list[Group]]:
    """Every pair once, in rounds of disjoint pairs (the circle method of tournaments)."""
    ring: list[str | None] = [*hosts]
    if len(ring) % 2:
        ring.append(None)
    rounds: list[list[Group]] = []
    for _ in range(len(ring) - 1):
        pairs = [(ring[i], ring[-1 - i]) for i in range(len(ring) // 2)]
        rounds.append([(a, b) for a, b in pairs if a is not None and b is not None])
        ring.insert(1, ring.pop())
    return rounds


def suspects(pairs: Sequence[tuple[Sequence[str], bool]]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """(suspects, good) by tests of pairs. Good hosts passed with any other; both may be incomplete."""
    good = dict.fromkeys(host for pair, ok in pairs if ok for host in pair)
    rest = dict.fromkeys(host for pair, ok in pairs if not ok for host in pair if host not in good)
    return tuple(rest), tuple(good)
