"""Horovod's own rendezvous server on a given port: ``horovod_rendezvous.py PORT NODES RANKS_PER_NODE DISTRIBUTION``.

Run by the stack's python on rank 0's node until it is terminated. Horovod's `RendezvousServer.start` chooses its own
port; here it must be the one that every rank has received.
"""

from __future__ import annotations

import sys

from horovod.runner.common.util.hosts import SlotInfo  # type: ignore[import-not-found]
from horovod.runner.http.http_server import RendezvousHandler, RendezvousHTTPServer  # type: ignore[import-not-found]


def slots(nodes: int, per_node: int, distribution: str) -> list[SlotInfo]:
    """All ranks, named as their HOROVOD_* variables name them."""
    result = []
    for node in range(nodes):
        for local in range(per_node):
            rank = local * nodes + node if distribution == "cyclic" else node * per_node + local
            result.append(SlotInfo(f"node{node}", rank, local, node, nodes * per_node, per_node, nodes))
    return result


def main(port: str, nodes: str, per_node: str, distribution: str) -> None:
    """Serve until the process is terminated."""
    server = RendezvousHTTPServer(("", int(port)), RendezvousHandler, 0)
    server.init(slots(int(nodes), int(per_node), distribution))
    server.serve_forever()


if __name__ == "__main__":
    main(*sys.argv[1:])
