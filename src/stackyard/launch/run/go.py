"""The ``go`` message to every shim when all nodes have reported: addresses and ports."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from stackyard.launch.node.step import StepFile
from stackyard.launch.run.addresses import master_address
from stackyard.launch.run.link import Link


def bound(file: StepFile, ports: Mapping[int, Sequence[int]]) -> bool:
    """Whether all nodes on which a role begins have bound their ports."""
    return all(len(ports.get(node, ())) == count for node, count in file.ports_of.items())


def go_variables(
    file: StepFile, ports: Mapping[int, Sequence[int]], links: Mapping[int, Link], interface: str
) -> dict[str, str | int]:
    """MASTER_ADDR and the ports of the node of task 0; with several roles, address and ports of each.

    Args:
        ports: the bound ports of each node; roles that begin on the same node take theirs in turn.
        links: to the agents of all nodes; `interface` as in `WatchOptions`.

    Raises:
        StackyardError: a node has no address that the others can reach.
    """
    variables: dict[str, str | int] = {"MASTER_ADDR": _address(0, links, interface)}
    variables |= dict(zip(_names("MASTER_PORT", "STACKYARD_PORT", file.ports), ports[0], strict=True))
    left = {node: list(bound) for node, bound in ports.items()}
    for role in file.roles:
        own, left[role.first] = left[role.first][: role.ports], left[role.first][role.ports :]
        name = role.name.upper()
        variables[f"STACKYARD_ADDR_{name}"] = _address(role.first, links, interface)
        variables |= dict(zip(_names(f"STACKYARD_PORT_{name}", f"STACKYARD_PORT_{name}", role.ports), own, strict=True))
    return variables


def _address(node: int, links: Mapping[int, Link], interface: str) -> str:
    """The address at which all nodes reach this one."""
    first, rest = links[node], [link for other, link in links.items() if other != node]
    return master_address(
        first.host, first.hello["facts"]["interfaces"], first.peer, interface, len(links),
        met=[link.met for link in rest],
        others={str(address) for link in rest for address in link.hello.get("addresses", ())},
    )  # fmt: skip


def _names(first: str, more: str, count: int) -> list[str]:
    return [first, *(f"{more}_{number}" for number in range(1, count))][:count]
