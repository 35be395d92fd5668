"""Addresses of a step: those at which agents reach the hub, and at which all nodes reach rank 0 (MASTER_ADDR). Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence

from stackyard.core.errors import StackyardError
from stackyard.launch.node.interfaces import offered, on_interface, reachable
from stackyard.launch.node.machine import is_loopback

Interfaces = Mapping[str, Sequence[str]]
"""Addresses by interface, as `stackyard.launch.node.machine.addresses` returns them."""


def hub_addresses(interfaces: Interfaces, interface: str, *, alone: bool) -> list[str]:
    """The hub's listening addresses, in the order in which agents try them.

    With one node on the loopback interface only; with several on the named interfaces, or on all if this machine has
    none of those.
    """
    if alone:
        return [one for one in reachable(interfaces, "", alone=True) if is_loopback(one)][:1]
    return offered(interfaces, interface)


def with_port(addresses: Sequence[str], port: int) -> tuple[str, ...]:
    """``address:port`` for each address."""
    return tuple(endpoint(one, port) for one in addresses)


def endpoint(address: str, port: int) -> str:
    """``address:port``; an IPv6 address in brackets, as gRPC and TensorFlow require."""
    return f"[{address}]:{port}" if ":" in address else f"{address}:{port}"


def master_address(
    host: str, interfaces: Interfaces, peer: str, interface: str, nodes: int, *,
    met: Sequence[str] = (), others: Collection[str] = (), which: str = "the node of rank 0",
) -> str:  # fmt: skip
    """MASTER_ADDR: the address at which the other nodes reach the node of rank 0.

    It is an address on the named interface. Without a name it is one at which other agents have reached the hub, if the
    hub runs on that node too; else the one from which its agent has connected. Both are known to work.

    Args:
        host: the node's name, for the error.
        interfaces: its addresses.
        peer: the source address of its agent's connection.
        met: the hub's own addresses at which the agents of the other nodes have connected.
        others: the other nodes' addresses. One that they have too (a bridge of a container engine) is the last choice.
        which: what the node is, for the error.

    Raises:
        StackyardError: the node has only loopback addresses or no interface of that name, and there are several nodes.
    """
    if nodes == 1:
        return "127.0.0.1"
    outside = [one for one in reachable(interfaces, interface, alone=False) if not is_loopback(one)]
    every = [one for one in outside if one not in others] or outside
    if not every:
        raise StackyardError(
            f"{host}, {which}, has only loopback addresses: {nodes} nodes cannot connect to it",
            hint="set launch.interface in site.yaml to an interface that all nodes share",
        )
    if interface:
        named = [one for one in on_interface(interfaces, interface) if one in every]
        if not named:
            raise StackyardError(
                f"launch.interface {interface} not found on {host}, {which}; it has "
                f"{', '.join(name for name in interfaces if name != 'lo')}",
                hint="correct launch.interface in site.yaml",
            )
        return named[0]
    proved = Counter(one for one in met if one in every)
    if proved:
        return proved.most_common(1)[0][0]
    return peer if peer in every else every[0]
