"""Bad hosts and bad links are found, exactly and in few rounds."""

from __future__ import annotations

import math
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stackyard.launch.preflight.bisect import BisectResult, all_pairs, find_bad, suspects


class Cluster:
    """Answers as a cluster with some faults would, and checks that it is asked properly."""

    def __init__(self, bad: Sequence[str] = (), links: Sequence[tuple[str, str]] = (), alone: bool = False) -> None:
        self.bad, self.links, self.alone = set(bad), [set(link) for link in links], alone

    def __call__(self, groups: Sequence[tuple[str, ...]]) -> list[bool]:
        everyone = [host for group in groups for host in group]
        assert len(everyone) == len(set(everyone)), "groups of one round are disjoint"
        assert all(groups), "no empty group"
        return [self._passes(set(group)) for group in groups]

    def _passes(self, group: set[str]) -> bool:
        if len(group) == 1 and not self.alone:
            return True
        return not group & self.bad and not any(link <= group for link in self.links)


def names(count: int) -> list[str]:
    return [f"n{i}" for i in range(count)]


@pytest.mark.parametrize("count", [3, 4, 5, 16, 144, 1000])
@pytest.mark.parametrize("alone", [False, True])
def test_one_bad_host_takes_a_logarithm_of_rounds(count: int, alone: bool) -> None:
    for bad in {0, 1, count // 2, count - 1}:
        found = find_bad(names(count), Cluster([f"n{bad}"], alone=alone))
        assert found.nodes == (f"n{bad}",) and not found.links and not found.together
        assert found.rounds <= (math.ceil(math.log2(count)) + 3 if count > 3 else 7)


@settings(max_examples=200, deadline=None)
@given(st.data(), st.integers(3, 40), st.booleans())
def test_all_bad_hosts_are_found_while_two_are_good(data: st.DataObject, count: int, alone: bool) -> None:
    hosts = names(count)
    bad = data.draw(st.sets(st.sampled_from(hosts), min_size=1, max_size=count - 2))
    found = find_bad(hosts, Cluster(bad, alone=alone))
    assert set(found.nodes) == bad
    assert found.links == () and found.together == ()


@settings(max_examples=200, deadline=None)
@given(st.data(), st.integers(4, 40))
def test_a_bad_link_is_told_from_bad_hosts(data: st.DataObject, count: int) -> None:
    hosts = names(count)
    link = data.draw(st.lists(st.sampled_from(hosts), min_size=2, max_size=2, unique=True))
    found = find_bad(hosts, Cluster(links=[(link[0], link[1])]))
    rest = [host for host in hosts if host not in found.hosts]
    assert Cluster(links=[(link[0], link[1])])([tuple(rest)]) == [True]
    assert len(found.hosts) == 1
    if count > 4:
        assert not found.nodes and [set(pair) for pair in found.links] == [set(link)]


@settings(max_examples=200, deadline=None)
@given(st.data(), st.integers(6, 30))
def test_what_is_left_works(data: st.DataObject, count: int) -> None:
    hosts = names(count)
    bad = data.draw(st.sets(st.sampled_from(hosts), max_size=count // 3))
    pair = st.lists(st.sampled_from(hosts), min_size=2, max_size=2, unique=True).map(lambda p: (p[0], p[1]))
    cluster = Cluster(bad, data.draw(st.lists(pair, max_size=2)))
    found = find_bad(hosts, cluster)
    rest = tuple(host for host in hosts if host not in found.hosts)
    assert rest and cluster([rest]) == [True]
    assert bad <= set(found.hosts)


def test_two_hosts_that_fail_only_together_are_a_link() -> None:
    assert find_bad(["a", "b"], Cluster(["b"])) == BisectResult((), (("a", "b"),), (), 2)
    assert find_bad(["a", "b"], Cluster(["b"], alone=True)).nodes == ("b",)


def test_a_disturbance_that_has_passed_accuses_nobody() -> None:
    assert find_bad(names(8), Cluster()).hosts == ()


def test_a_fault_of_many_together_is_not_called_a_link() -> None:
    def crowded(groups: Sequence[tuple[str, ...]]) -> list[bool]:
        return [len(group) < 6 for group in groups]

    found = find_bad(names(8), crowded)
    assert not found.nodes and not found.links and len(found.together) == 3
    assert "larger groups" in found.reasons("all-reduce")[found.together[0]]


def test_known_good_hosts_spare_rounds() -> None:
    found = find_bad(names(64), Cluster(["n7"]), good=[name for name in names(64) if name != "n7"])
    assert found.nodes == ("n7",) and found.rounds == 2


@pytest.mark.parametrize("count", [2, 3, 4, 7, 8])
def test_all_pairs_meet_once_in_rounds_of_disjoint_pairs(count: int) -> None:
    rounds = all_pairs(names(count))
    met = [frozenset(pair) for pairs in rounds for pair in pairs]
    assert len(met) == len(set(met)) == count * (count - 1) // 2
    assert all(len({host for pair in pairs for host in pair}) == 2 * len(pairs) for pairs in rounds)


def test_pairs_in_a_ring_name_the_suspect() -> None:
    ring = [(("a", "b"), True), (("b", "c"), False), (("c", "d"), False), (("d", "a"), True)]
    assert suspects(ring) == (("c",), ("a", "b", "d"))
