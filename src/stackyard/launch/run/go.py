"""The ``go`` message to every shim when all nodes have reported: addresses and ports."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from stackyard.launch.node.step import StepFile
from stackyard.launch.plan.peers import check_size
from stackyard.launch.run.addresses import endpoint, master_address
from stackyard.launch.run.link import Link


def bound(file: StepFile, ports: Mapping[int, Sequence[int]]) -> bool:
    """Whether all nodes on which a role begins, or with `task_ports` all nodes, have bound their ports."""
    return all(len(ports.get(node, ())) == count for node, count in file.ports_of.items())


def go_variables(
    file: StepFile, ports: Mapping[int, Sequence[int]], links: Mapping[int, Link], interface: str
) -> dict[str, str | int]:
    """MASTER_ADDR and the ports of the node of task 0; with several roles, address and ports of each.

    Args:
        ports: the bound ports of each node; roles that begin on the same node take theirs in turn, then its tasks.
        links: to the agents of all nodes; `interface` as in `WatchOptions`.

    Raises:
        StackyardError: a node has no address that the others can reach, or the addresses of all tasks are too long.
    """
    nodes = _Nodes(links, interface)
    variables: dict[str, str | int] = {"MASTER_ADDR": nodes.address(0)}
    variables |= dict(zip(_names("MASTER_PORT", "STACKYARD_PORT", file.ports), ports[0][: file.ports], strict=True))
    left = {node: list(bound) for node, bound in ports.items()}
    for role in file.roles:
        own, left[role.first] = left[role.first][: role.ports], left[role.first][role.ports :]
        name = role.name.upper()
        variables[f"STACKYARD_ADDR_{name}"] = nodes.address(role.first)
        variables |= dict(zip(_names(f"STACKYARD_PORT_{name}", f"STACKYARD_PORT_{name}", role.ports), own, strict=True))
    if not file.task_ports:
        return variables
    if not file.roles:
        left[0] = left[0][file.ports :]
    return {**variables, **_peers(file, left, nodes)}


def _peers(file: StepFile, ports: Mapping[int, Sequence[int]], nodes: _Nodes) -> dict[str, str]:
    """``address:port`` of every task, as a JSON list for each role.

    Args:
        ports: those of each node's tasks, by local number.
    """
    addresses = {node: nodes.address(node, "one of its nodes") for node in ports}
    places = map(file.place, range(file.tasks))
    tasks = [endpoint(addresses[node], ports[node][local]) for node, local in places]
    if not file.roles:
        peers = {"STACKYARD_PEERS": tasks}
    else:
        peers = {
            f"STACKYARD_PEERS_{role.name.upper()}": [tasks[file.task_of(role, rank)] for rank in range(role.tasks)]
            for role in file.roles
        }
    texts = {name: json.dumps(own, separators=(",", ":")) for name, own in peers.items()}
    check_size(len(tasks), sum(map(len, texts.values())))
    return texts


class _Nodes:
    """The addresses of nodes at which all others reach them; what many nodes need is counted once."""

    def __init__(self, links: Mapping[int, Link], interface: str) -> None:
        self._links, self._interface = links, interface
        self._met = Counter(link.met for link in links.values())
        self._had = Counter(one for link in links.values() for one in set(_addresses(link)))

    def address(self, node: int, which: str = "the node of rank 0") -> str:
        """The address of a node. Raises StackyardError: it has none that the others can reach."""
        link = self._links[node]
        interfaces: Mapping[str, Sequence[str]] = link.hello["facts"]["interfaces"]
        own = list(dict.fromkeys(one for addresses in interfaces.values() for one in addresses))
        declared = set(_addresses(link))
        return master_address(
            link.host, interfaces, link.peer, self._interface, len(self._links),
            met=[one for one in own for _ in range(self._met[one] - (link.met == one))],
            others={one for one in own if self._had[one] > (one in declared)},
            which=which,
        )  # fmt: skip


def _addresses(link: Link) -> Sequence[str]:
    declared: Any = link.hello.get("addresses", ())
    return [str(address) for address in declared]


def _names(first: str, more: str, count: int) -> list[str]:
    return [first, *(f"{more}_{number}" for number in range(1, count))][:count]
