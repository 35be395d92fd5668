"""Addresses of a step: where agents reach the hub, and where all nodes reach rank 0 (MASTER_ADDR). Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from stackyard.errors import StackyardError
from stackyard.launch.node.machine import is_loopback

Interfaces = Mapping[str, Sequence[str]]
"""Addresses by interface, as `stackyard.launch.node.machine.addresses` returns them."""


def reachable(found: Interfaces, interface: str, *, alone: bool) -> list[str]:
    """Addresses of a machine, the best first: the named interfaces', IPv4, IPv6; loopback last and only if `alone`.

    Args:
        interface: beginnings of interface names, e.g. ``hsn`` or ``ib0,eth``, best first; empty: any.
        alone: only this machine itself connects; to any other one its loopback is of no use.
    """
    wanted = [name for name in interface.split(",") if name]

    def order(item: tuple[str, str]) -> tuple[int, bool]:
        name, address = item
        place = next((i for i, start in enumerate(wanted) if name.startswith(start)), len(wanted))
        return place, ":" in address

    pairs = [(name, address) for name, every in found.items() for address in every]
    outside = [address for _, address in sorted(((n, a) for n, a in pairs if not is_loopback(a)), key=order)]
    inside = [address for _, address in pairs if is_loopback(address)]
    return outside + (inside if alone or not outside else [])


def hub_addresses(found: Interfaces, port: int, interface: str, *, alone: bool) -> tuple[str, ...]:
    """``address:port`` of the hub, in the order in which agents try them."""
    every = reachable(found, interface, alone=alone)
    return tuple(f"[{one}]:{port}" if ":" in one else f"{one}:{port}" for one in every)


def master_address(host: str, found: Interfaces, peer: str, interface: str, nodes: int) -> str:
    """MASTER_ADDR: the address at which the other nodes reach the node of rank 0.

    One on the named interface if the node has one there, else the one from which its agent has connected to the hub,
    which is known to work; with one node the loopback.

    Args:
        host: the node's name, for the error.
        found: its addresses.
        peer: where its agent's connection comes from.

    Raises:
        StackyardError: the node has only loopback addresses, and there are several nodes.
    """
    if nodes == 1:
        return "127.0.0.1"
    every = [one for one in reachable(found, interface, alone=False) if not is_loopback(one)]
    if not every:
        raise StackyardError(
            f"{host}, the node of rank 0, has only loopback addresses: {nodes} nodes cannot connect to it",
            hint="set launch.interface in site.yaml to an interface that all nodes share",
        )
    named = [a for n in interface.split(",") if n for k, v in found.items() if k.startswith(n) for a in v if a in every]
    if named:
        return min(named, key=lambda address: ":" in address)
    return peer if peer in every else every[0]
