"""The drawing of a node: what is in it, that it can be read without colour, and that no line is too long."""

from __future__ import annotations

import re
from collections import Counter
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stackyard.launch.layout.model import Node, NodeDomain
from stackyard.launch.layout.picture import IDLE, KEPT, draw
from stackyard.launch.layout.placing import plan_layout
from stackyard.launch.layout.this_node import THIS
from stackyard.launch.request.intent import Intent
from support.layoutnodes import LAPTOP, LUMI, PLAIN, SUMMIT, nodes

SGR = re.compile(r"\033\[[0-9;]*m")


def picture(node: Node, *, width: int = 80, color: bool = False, **asked: Any) -> str:
    return draw(plan_layout(Intent(**asked), node), width=width, color=color)


def test_summit() -> None:
    assert (
        picture(SUMMIT, nodes=2)
        == """\
batch, 2 nodes: 6 ranks per node, 12 in all
each rank: 7 cores, 7 threads, 1 GPU; sees all 6 GPUs of its node

socket 0
┌ cores 0-21 ───────────────────────────────────┐
│ 0 0 0 0 0 0 0  1 1 1 1 1 1 1  2 2 2 2 2 2 2 × │
│ GPU 0          GPU 1          GPU 2           │
└───────────────────────────────────────────────┘

socket 1
┌ cores 22-43 ──────────────────────────────────┐
│ 3 3 3 3 3 3 3  4 4 4 4 4 4 4  5 5 5 5 5 5 5 × │
│ GPU 3          GPU 4          GPU 5           │
└───────────────────────────────────────────────┘

0 - 5  local rank of the core    ×  reserved for the system
"""
    )


def test_straddling_rank_is_marked() -> None:
    text = picture(SUMMIT, ranks_per_node=3, cores_per_rank=14)
    assert text.count("1!") == 14
    assert "!  its rank spans two sockets" in text
    assert "GPU 2: rank 1" in text


def test_eight_domains_stand_four_in_a_row() -> None:
    for width in (80, 100):
        lines = picture(LUMI, width=width).splitlines()
        assert [line.count("┌") for line in lines if "┌" in line] == [4, 4]
        first = lines[lines.index("socket 0") + 2]
        assert first.startswith("│ × 4 4 4 4 4 4 4 │ │ × 5 5 5 5 5 5 5 │")


def test_idle_cores_and_gpus() -> None:
    text = picture(SUMMIT, ranks_per_node=4)
    assert "GPU 4: idle" in text
    assert f"{IDLE}  idle" in text
    assert text.count(IDLE) == 14 + 1


def test_shared_cores_and_gpus() -> None:
    text = picture(LAPTOP, ranks_per_node=10, oversubscribe=True)
    assert "0+" in text
    assert "+  shared with further ranks" in text
    assert "GPU 0: ranks 0-9" in text


def test_laptop() -> None:
    assert picture(LAPTOP).splitlines() == [
        "laptop: 1 rank per node",
        "each rank: 8 cores, 8 threads, 1 GPU",
        "",
        "socket 0",
        "┌ cores 0-7 ──────┐",
        "│ 0 0 0 0 0 0 0 0 │",
        "│ GPU 0           │",
        "└─────────────────┘",
        "",
        "0  rank of the core",
    ]


def test_long_socket_is_folded() -> None:
    rows = [line for line in picture(PLAIN).splitlines() if line.startswith("│")]
    assert [row.strip("│ ").split() for row in rows] == [["0"] * 32] * 2 + [["1"] * 32] * 2


def test_network_and_hosts() -> None:
    node = Node("batch", (NodeDomain(0, (0, 1), (0,), ("hsn0",)),), 2)
    text = draw(plan_layout(Intent(nodes=2), node, ("n1", "n2")), width=60)
    assert "NIC hsn0" in text
    assert "on n1 n2" in text


def test_hardware_threads_are_said() -> None:
    assert "4 of 4 hardware threads of each core" in picture(SUMMIT, smt=4)


def test_cores_that_a_process_may_not_use() -> None:
    node = Node(THIS, (NodeDomain(0, (0, 1)),), 4)
    assert "×  not available to this process" in draw(plan_layout(Intent(), node))


def test_kept_cores_without_a_place_are_counted() -> None:
    node = Node("odd", (NodeDomain(0, (1, 2, 3, 4)), NodeDomain(1, (5, 6, 7))), 9)
    text = draw(plan_layout(Intent(), node))
    assert "2 more cores reserved for the system" in text
    assert KEPT not in text


def test_colour_is_only_added() -> None:
    for asked in ({}, {"ranks_per_node": 4}, {"ranks_per_node": 3, "cores_per_rank": 14}):
        coloured = picture(SUMMIT, color=True, **asked)
        assert SGR.sub("", coloured) == picture(SUMMIT, **asked)
        assert "\033[36m0" in coloured or "\033[36m 0" in coloured
    assert "\033" not in picture(SUMMIT)


@pytest.mark.parametrize("width", [20, 40, 60, 80, 100, 200])
@pytest.mark.parametrize("node", [SUMMIT, LUMI, PLAIN, LAPTOP], ids=lambda node: node.kind)
def test_width(node: Node, width: int) -> None:
    for ranks in (1, 3, node.cores):
        text = picture(node, width=width, ranks_per_node=ranks)
        assert max(map(len, text.splitlines())) <= max(width, 40)


@settings(deadline=None)
@given(nodes(), st.integers(1, 30), st.integers(40, 120), st.booleans())
def test_every_core_and_gpu_is_drawn_once(node: Node, ranks: int, width: int, oversubscribe: bool) -> None:
    layout = plan_layout(Intent(ranks_per_node=ranks, oversubscribe=oversubscribe), node)
    text = draw(layout, width=width)
    assert max(map(len, text.splitlines())) <= width
    rows = [line for line in text.splitlines() if line.startswith("│")]
    drawn = Counter(
        int(word.rstrip("!+")) for row in rows for box in row.split("│") if "GPU" not in box for word in box.split()
        if word[0].isdigit()
    )  # fmt: skip
    holders: dict[int, int] = {}
    for slot in layout.slots:
        for core in slot.cores:
            holders.setdefault(core, slot.local_rank)
    assert drawn == Counter(holders.values())
    assert sorted(map(int, re.findall(r"GPU (\d+)", "\n".join(rows)))) == list(range(node.gpus))
