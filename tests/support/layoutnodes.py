"""Nodes for tests of layouts: machines that exist, plain ones, and a hypothesis strategy for any other."""

from __future__ import annotations

from hypothesis import strategies as st

from stackyard.launch.layout.model import Node, NodeDomain

SUMMIT = Node(
    "batch",
    (NodeDomain(0, tuple(range(21)), (0, 1, 2)), NodeDomain(1, tuple(range(22, 43)), (3, 4, 5))),
    all_cores=44,
    smt=4,
    smt_numbering="adjacent",
    gpu_vendor="nvidia",
    memory_gib=512,
)
LUMI = Node(
    "lumi-g",
    tuple(
        NodeDomain(0, tuple(range(8 * block + 1, 8 * block + 8)), (gpu,))
        for block, gpu in enumerate((4, 5, 2, 3, 6, 7, 0, 1))
    ),
    all_cores=64,
    smt=2,
    gpu_vendor="amd",
)
PLAIN = Node("plain", (NodeDomain(0, tuple(range(64))), NodeDomain(1, tuple(range(64, 128)))), all_cores=128, smt=2)
LAPTOP = Node("laptop", (NodeDomain(0, tuple(range(8)), (0,)),), all_cores=8, smt=2)


@st.composite
def nodes(draw: st.DrawFn) -> Node:
    """1 to 4 sockets of 1 to 3 domains, up to 12 cores in each, and up to 3 GPUs, in any order."""
    sockets = draw(st.integers(1, 4))
    sizes = draw(st.lists(st.lists(st.integers(1, 12), min_size=1, max_size=3), min_size=sockets, max_size=sockets))
    shape = [(socket, size) for socket, of_socket in enumerate(sizes) for size in of_socket]
    counts = draw(st.lists(st.integers(0, 3), min_size=len(shape), max_size=len(shape)))
    gpus = draw(st.permutations(range(sum(counts))))
    domains, core, gpu = [], 0, 0
    for (socket, size), count in zip(shape, counts, strict=True):
        core += draw(st.integers(0, 1))
        domains.append(NodeDomain(socket, tuple(range(core, core + size)), tuple(gpus[gpu : gpu + count])))
        core, gpu = core + size, gpu + count
    smt = draw(st.sampled_from((1, 2, 4)))
    numbering = draw(st.sampled_from(("adjacent", "split")))
    return Node("any", tuple(domains), core, smt, numbering, gpu_peers=draw(st.booleans()))
