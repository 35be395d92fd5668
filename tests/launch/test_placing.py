"""Layouts: the machines' own published placements, what must always hold, and what is said about bad ones."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stackyard.core.errors import InputError
from stackyard.core.findings import Finding, refuse
from stackyard.host.machine.ranges import ranges
from stackyard.launch.layout.cores import packed, straddlers
from stackyard.launch.layout.model import Layout, Node, NodeDomain
from stackyard.launch.layout.placing import masks, plan_layout
from stackyard.launch.request.intent import BatchOptions, Intent
from support.layoutnodes import LAPTOP, LUMI, PLAIN, SUMMIT, nodes


def plan(node: Node, **asked: Any) -> Layout:
    return plan_layout(Intent(**asked), node)


def cores(layout: Layout) -> list[str]:
    return [ranges(slot.cores) for slot in layout.slots]


def rules(layout: Layout) -> dict[str, str]:
    return {finding.rule: finding.severity for finding in layout.findings}


def found(layout: Layout, rule: str) -> Finding:
    return next(finding for finding in layout.findings if finding.rule == rule)


def test_summit_as_its_guide_says() -> None:
    """``jsrun -r1 -g6 -a6 -c42 -bpacked:7``: rank i has GPU i and cores 7i to 7i+6, and sees all GPUs."""
    layout = plan(SUMMIT, nodes=2)
    assert [(slot.cores, slot.gpus) for slot in layout.slots] == [
        (tuple(range(7 * rank, 7 * rank + 7)), (rank,)) for rank in range(6)
    ]
    assert (layout.gpu_visibility, layout.threads, layout.ranks, layout.findings) == ("all", 7, 12, ())


def test_summit_with_all_hardware_threads() -> None:
    """Horovod's ERF files: {0-27},{28-55},{56-83},{84-111}: 42 * 4 // 6 logical threads for each rank."""
    layout = plan(SUMMIT, smt=4)
    logical = [sorted(4 * core + thread for core in slot.cores for thread in range(4)) for slot in layout.slots]
    assert [(threads[0], threads[-1]) for threads in logical] == [(28 * rank, 28 * rank + 27) for rank in range(6)]
    assert layout.threads == 28


LUMI_MASKS = [
    "0xfe000000000000", "0xfe00000000000000", "0xfe0000", "0xfe000000",
    "0xfe", "0xfe00", "0xfe00000000", "0xfe0000000000",
]  # fmt: skip


def test_lumi_as_its_guide_says() -> None:
    layout = plan(LUMI)
    assert [hex(mask) for mask in masks(layout)] == LUMI_MASKS
    assert [slot.gpus for slot in layout.slots] == [(gpu,) for gpu in range(8)]
    assert layout.findings == ()


def test_lumi_with_two_gpus_per_rank() -> None:
    layout = plan(LUMI, gpus_per_rank=2)
    wanted = [int(a, 16) | int(b, 16) for a, b in zip(LUMI_MASKS[::2], LUMI_MASKS[1::2], strict=True)]
    assert list(masks(layout)) == wanted


def test_masks_of_both_threads() -> None:
    first = masks(plan(LUMI, smt=2))[4]
    assert first == 0xFE | 0xFE << 64


def test_masks_of_adjacent_threads() -> None:
    """Core 21 for jobs is the system's core 22: its four threads are 88 to 91."""
    assert masks(plan(SUMMIT, smt=4))[3] == sum(1 << thread for thread in range(88, 116))
    assert masks(plan(SUMMIT))[0] == sum(1 << 4 * core for core in range(7))


@pytest.mark.parametrize(
    ("ranks", "each", "straddling", "idle"),
    [(2, 21, (), 0), (3, 14, (1,), 0), (4, 10, (2,), 2), (5, 8, (2,), 2), (6, 7, (), 0), (7, 6, (3,), 0),
     (8, 5, (4,), 2), (12, 3, (), 6)],
)  # fmt: skip
def test_packed_ranks_that_straddle(ranks: int, each: int, straddling: tuple[int, ...], idle: int) -> None:
    """One resource set of 42 cores: with an odd number, or where N does not divide 21, rank floor(a/2) straddles."""
    places = packed(ranks, each)
    assert straddlers(SUMMIT, places) == straddling
    assert 42 - sum(len(place) for place in places) == idle


@pytest.mark.parametrize(
    ("node", "asked", "wanted"),
    [
        (SUMMIT, {"ranks_per_node": 2}, ["0-20", "21-41"]),
        (SUMMIT, {"ranks_per_node": 1}, ["0-41"]),
        (SUMMIT, {"ranks_per_node": 12}, ["0-2", "3-5", "6-8", "9-11", "12-14", "15-17",
                                          "21-23", "24-26", "27-29", "30-32", "33-35", "36-38"]),
        (SUMMIT, {"gpus_per_rank": 0}, ["0-20", "21-41"]),
        (SUMMIT, {"gpus_per_rank": 3}, ["0-20", "21-41"]),
        (SUMMIT, {"ranks_per_node": 4, "gpus_per_rank": 0, "cores_per_rank": 10}, ["0-9", "10-19", "21-30", "31-40"]),
        (SUMMIT, {"ranks_per_node": 2, "cores_per_rank": 4}, ["0-3", "21-24"]),
        (SUMMIT, {"ranks_per_node": 3, "cores_per_rank": 14, "straddle": True}, ["0-13", "14-27", "28-41"]),
        (PLAIN, {}, ["0-63", "64-127"]),
        (PLAIN, {"ranks_per_node": 3}, ["0-31", "32-63", "64-95"]),
        (LAPTOP, {}, ["0-7"]),
        (LUMI, {"ranks_per_node": 4}, ["42-55", "14-27", "0-13", "28-41"]),
    ],
)  # fmt: skip
def test_cores(node: Node, asked: dict[str, Any], wanted: list[str]) -> None:
    assert cores(plan(node, **asked)) == wanted


def test_domains_without_gpus_are_shared_out() -> None:
    """Eight NUMA domains of which every second has a GPU: a rank gets its GPU's and the free one beside it."""
    domains = tuple(NodeDomain(d // 4, tuple(range(8 * d, 8 * d + 8)), (d // 2,) if d % 2 else ()) for d in range(8))
    layout = plan(Node("numa", domains, 64))
    assert cores(layout) == ["0-15", "16-31", "32-47", "48-63"]
    assert layout.findings == ()


def test_fewer_ranks_than_sockets_get_whole_ones() -> None:
    four = Node("four", tuple(NodeDomain(s, tuple(range(8 * s, 8 * s + 8)), (3 - s,)) for s in range(4)), 32)
    layout = plan(four, ranks_per_node=2)
    assert cores(layout) == ["16-31", "0-15"]
    assert rules(layout) == {"straddles-socket": "note"}


def test_foreign_caches_are_avoided_only_where_it_is_cheap() -> None:
    """Three GPUs in one half of a socket, one in the other: staying at home would leave ranks with 5 of 8 cores."""
    domains = (NodeDomain(0, tuple(range(16)), (0, 1, 2)), NodeDomain(0, tuple(range(16, 32)), (3,)))
    assert plan(Node("uneven", domains, 32)).cores_per_rank == 8


# --------------------------------------------------------------------------- what must always hold

ASKED = st.fixed_dictionaries(
    {},
    optional={
        "ranks_per_node": st.integers(1, 40),
        "cores_per_rank": st.integers(1, 40),
        "gpus_per_rank": st.integers(0, 4),
        "threads_per_rank": st.integers(1, 64),
        "straddle": st.booleans(),
        "oversubscribe": st.booleans(),
        "gpu_visibility": st.sampled_from(("auto", "all", "own")),
        "distribution": st.sampled_from(("block", "cyclic")),
        "nodes": st.integers(1, 5),
        "smt": st.integers(1, 4),
    },
)


@settings(deadline=None)
@given(nodes(), ASKED)
def test_always(node: Node, asked: dict[str, Any]) -> None:
    layout = plan(node, **asked)
    severities = rules(layout)
    wanted = layout.ranks_per_node * max(asked.get("cores_per_rank", 1), layout.cores_per_rank)
    enough = wanted <= node.cores
    used = [core for slot in layout.slots for core in slot.cores]
    assert all(0 <= core < node.cores for core in used)
    assert len({len(slot.cores) for slot in layout.slots}) == 1 or not enough
    assert len(set(used)) == len(used) or not enough
    assert enough or severities["oversubscribed-cores"] == ("note" if asked.get("oversubscribe") else "refused")
    assert sorted(rank for rank, _, _ in layout.places()) == list(range(layout.ranks))
    gpus = [gpu for slot in layout.slots for gpu in slot.gpus]
    assert set(gpus) <= set(range(node.gpus))
    assert len(set(gpus)) == len(gpus) or "oversubscribed-gpus" in severities
    on_two = straddlers(node, [slot.cores for slot in layout.slots])
    assert bool(on_two) == ("straddles-socket" in severities)
    assert all(finding.remedy or finding.severity == "note" or finding.rule in ("idle-cores", "far-gpu")
               for finding in layout.findings)  # fmt: skip


@settings(deadline=None)
@given(nodes(), st.integers(1, 40))
def test_what_is_chosen_here_is_never_refused(node: Node, ranks: int) -> None:
    """Whatever nobody said is chosen so that no rank shares a core or lies on a socket that another rank is on too."""
    layout = plan(node, ranks_per_node=min(ranks, node.cores))
    refuse(layout.findings)
    assert "oversubscribed-cores" not in rules(layout)


@settings(deadline=None)
@given(nodes(), st.integers(1, 4))
def test_masks_are_disjoint(node: Node, smt: int) -> None:
    layout = plan(node, ranks_per_node=min(node.cores, 6), gpus_per_rank=0, smt=smt)
    every = masks(layout)
    together = 0
    for mask, slot in zip(every, layout.slots, strict=True):
        assert not together & mask
        assert bin(mask).count("1") == len(slot.cores) * layout.smt
        together |= mask


@settings(deadline=None)
@given(nodes())
def test_local_rank_i_has_gpu_i(node: Node) -> None:
    layout = plan(node)
    if node.gpus:
        assert [slot.gpus for slot in layout.slots] == [(gpu,) for gpu in range(node.gpus)]


@pytest.mark.parametrize("distribution", ["block", "cyclic"])
def test_ranks_are_numbered_once(distribution: str) -> None:
    layout = plan(SUMMIT, nodes=3, distribution=distribution)
    numbered = {(host, slot.local_rank): rank for rank, host, slot in layout.places()}
    assert sorted(numbered.values()) == list(range(18))
    assert numbered[(1, 2)] == (8 if distribution == "block" else 7)


# --------------------------------------------------------------------------- what is said


@pytest.mark.parametrize(
    ("node", "asked", "rule", "severity", "better"),
    [
        (SUMMIT, {"ranks_per_node": 3, "cores_per_rank": 14}, "straddles-socket", "refused", "--cores-per-rank 10"),
        (SUMMIT, {"ranks_per_node": 3, "cores_per_rank": 14, "straddle": True}, "straddles-socket", "note", ""),
        (SUMMIT, {"ranks_per_node": 1}, "straddles-socket", "note", ""),
        (SUMMIT, {"ranks_per_node": 4}, "idle-cores", "warning", "--ranks-per-node 6"),
        (SUMMIT, {"cores_per_rank": 4}, "idle-cores", "warning", "--cores-per-rank 7"),
        (SUMMIT, {"cores_per_rank": 8}, "oversubscribed-cores", "refused", "--cores-per-rank 7, or --oversubscribe"),
        (SUMMIT, {"cores_per_rank": 8, "oversubscribe": True}, "oversubscribed-cores", "note", ""),
        (SUMMIT, {"ranks_per_node": 43}, "oversubscribed-cores", "refused", "--ranks-per-node 42"),
        (SUMMIT, {"ranks_per_node": 12}, "oversubscribed-gpus", "warning", "--ranks-per-node 6"),
        (SUMMIT, {"ranks_per_node": 12, "oversubscribe": True}, "oversubscribed-gpus", "note", ""),
        (SUMMIT, {"ranks_per_node": 12, "gpu_visibility": "all"}, "local-rank-beyond-gpus", "warning", "own"),
        (SUMMIT, {"gpus_per_rank": 7}, "more-gpus-than-there-are", "refused", "--gpus-per-rank 6"),
        (SUMMIT, {"ranks_per_node": 4, "gpus_per_rank": 2}, "more-gpus-than-there-are", "refused", "-node 3"),
        (PLAIN, {"gpus_per_rank": 1}, "more-gpus-than-there-are", "refused", "--gpus-per-rank 0"),
        (SUMMIT, {"gpu_visibility": "own"}, "one-visible-gpu", "warning", "--gpu-visibility all"),
        (SUMMIT, {"ranks_per_node": 3}, "far-gpu", "warning", "--ranks-per-node 2"),
        (SUMMIT, {"ranks_per_node": 4}, "ranks-do-not-divide-gpus", "warning", "--ranks-per-node 6"),
        (SUMMIT, {"ranks_per_node": 9}, "ranks-do-not-divide-gpus", "warning", "--ranks-per-node 12"),
        (SUMMIT, {"ranks_per_node": 2, "gpus_per_rank": 1}, "idle-gpus", "warning", "--ranks-per-node 6"),
        (SUMMIT, {"smt": 8}, "smt-not-there", "refused", "--smt 4"),
        (SUMMIT, {"threads_per_rank": 8}, "threads-more-than-cores", "refused", "--threads-per-rank 7"),
        (SUMMIT, {"threads_per_rank": 8, "oversubscribe": True}, "threads-more-than-cores", "note", ""),
        (SUMMIT, {"batch": BatchOptions(memory_gib=600)}, "more-memory-than-there-is", "refused", "--memory 512"),
    ],
)  # fmt: skip
def test_findings(node: Node, asked: dict[str, Any], rule: str, severity: str, better: str) -> None:
    finding = found(plan(node, **asked), rule)
    assert finding.severity == severity
    assert better in finding.remedy
    assert finding.message


def test_the_better_option_is_better() -> None:
    """What a finding advises is taken at its word."""
    for ranks in range(1, 43):
        for finding in plan(SUMMIT, ranks_per_node=ranks).findings:
            option, _, value = finding.remedy.partition(" ")
            if option == "--ranks-per-node":
                again = plan(SUMMIT, ranks_per_node=int(value.split(",")[0]))
                assert finding.rule not in rules(again), (ranks, finding)


@pytest.mark.parametrize(
    ("node", "asked"),
    [
        (SUMMIT, {}),
        (SUMMIT, {"ranks_per_node": 2}),
        (LUMI, {}),
        (PLAIN, {}),
        (PLAIN, {"ranks_per_node": 128}),
        (LAPTOP, {}),
    ],
)
def test_no_false_alarm(node: Node, asked: dict[str, Any]) -> None:
    assert plan(node, **asked).findings == ()


def test_idle_cores_are_counted() -> None:
    assert found(plan(SUMMIT, ranks_per_node=12), "idle-cores").message == (
        "6 of 42 cores of each node are unused with 12 ranks of 3 cores"
    )


def test_refused_comes_first() -> None:
    layout = plan(SUMMIT, ranks_per_node=100, gpu_visibility="own")
    severities = [finding.severity for finding in layout.findings]
    assert severities == sorted(severities, key=["refused", "warning", "note"].index)
    with pytest.raises(InputError, match="100 ranks with 1 core each need 100 cores, but a node has 42"):
        refuse(layout.findings)


@pytest.mark.parametrize(
    ("node", "asked", "visibility"),
    [
        (SUMMIT, {}, "all"),
        (SUMMIT, {"gpu_visibility": "own"}, "own"),
        (SUMMIT, {"ranks_per_node": 12}, "own"),
        (SUMMIT, {"ranks_per_node": 1}, "all"),
        (SUMMIT, {"ranks_per_node": 1, "gpus_per_rank": 1}, "own"),
        (Node("no peers", SUMMIT.domains, 44, gpu_peers=False), {}, "own"),
        (LAPTOP, {}, "own"),
    ],
)
def test_visibility(node: Node, asked: dict[str, Any], visibility: str) -> None:
    assert plan(node, **asked).gpu_visibility == visibility


def test_no_alarm_about_peers_where_there_are_none() -> None:
    layout = plan(Node("no peers", SUMMIT.domains, 44, gpu_peers=False), gpu_visibility="own")
    assert "one-visible-gpu" not in rules(layout)


def test_reasons() -> None:
    assert plan(SUMMIT, nodes=2).reasons == (
        "6 ranks per node: one per GPU",
        "7 cores per rank: the most with every rank on one socket",
        "7 OpenMP threads per rank: one per core",
        "GPU i of a node belongs to local rank i, which has the cores next to it",
        "each rank sees all 6 GPUs of its node: NCCL and RCCL need this for peer access",
        "block distribution: rank = 6 x node + local rank",
    )


def test_what_was_assumed_is_not_said_twice() -> None:
    """It is the node's own: whoever shows a layout shows both."""
    assumed = Node("batch", PLAIN.domains, 128, assumed=("cores are split evenly",))
    assert "cores are split evenly" not in " ".join(plan(assumed).reasons)
    assert plan(assumed).node.assumed == ("cores are split evenly",)


def test_hosts() -> None:
    layout = plan_layout(Intent(nodes=2), SUMMIT, ("a", "b", "c"))
    assert layout.hosts == ("a", "b")
    assert layout.host(1) == "b"


@pytest.mark.parametrize(
    ("hosts", "message"),
    [(("a",), "2 nodes are requested, but the allocation has 1: a"), (("a", "a"), "duplicate host a")],
)
def test_hosts_that_do_not_do(hosts: tuple[str, ...], message: str) -> None:
    with pytest.raises(InputError, match=message):
        plan_layout(Intent(nodes=2), SUMMIT, hosts)


def test_the_size_of_the_job_costs_nothing() -> None:
    """One block, however many nodes: nothing is kept per rank."""
    small, large = plan(LUMI, nodes=1), plan(LUMI, nodes=10_000)
    assert large.slots == small.slots
    assert (len(large.blocks), large.ranks) == (1, 80_000)


def test_one_task_per_node() -> None:
    whole = plan(LUMI, nodes=3).per_node()
    assert (whole.ranks, len(whole.slots[0].cores), whole.slots[0].gpus) == (3, 56, tuple(range(8)))
    assert masks(whole) == (sum(int(mask, 16) for mask in LUMI_MASKS),)
