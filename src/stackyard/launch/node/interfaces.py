"""Selects the addresses of a machine for other nodes to use: the hub's, and the agents' among each other. Pure.

Part of the agent of a job with staged files: any Python from 3.6 on, standard library alone (see
`stackyard.launch.node.agent`).
"""

from stackyard.launch.node.machine import is_loopback

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    Interfaces = Mapping[str, Sequence[str]]


def reachable(interfaces: "Interfaces", interface: "str", alone: "bool" = False) -> "list[str]":
    """Addresses of a machine, best first: named interfaces, IPv4, IPv6; loopback last and only if `alone`.

    Args:
        interfaces: addresses by interface, from `stackyard.launch.node.machine.addresses`.
        interface: beginnings of interface names, e.g. ``hsn`` or ``ib0,eth``, best first; empty: any.
        alone: only this machine connects, so that loopback can be used.
    """
    names = [name for name in interface.split(",") if name]

    def order(item: "tuple[str, str]") -> "tuple[int, bool]":
        name, address = item
        place = next((i for i, start in enumerate(names) if name.startswith(start)), len(names))
        return place, ":" in address

    pairs = [(name, address) for name, every in interfaces.items() for address in every]
    outside = [address for _, address in sorted(((n, a) for n, a in pairs if not is_loopback(a)), key=order)]
    inside = [address for _, address in pairs if is_loopback(address)]
    return outside + (inside if alone or not outside else [])


def on_interface(interfaces: "Interfaces", interface: "str") -> "list[str]":
    """The addresses of the named interfaces, IPv4 first; none if no name begins with one of `interface`."""
    names = tuple(name for name in interface.split(",") if name)
    named = {name: addresses for name, addresses in interfaces.items() if names and name.startswith(names)}
    return reachable(named, interface) if named else []


def offered(interfaces: "Interfaces", interface: "str") -> "list[str]":
    """The addresses on which a process listens for other nodes: those of the named interfaces, else all."""
    return on_interface(interfaces, interface) or reachable(interfaces, interface)
