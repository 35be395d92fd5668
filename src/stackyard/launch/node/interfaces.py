"""Which addresses of a machine others use: the hub's, and the agents' among each other. Pure.

Part of the agent where something is staged: any Python from 3.6 on, standard library alone (see
`stackyard.launch.node.agent`).
"""

from stackyard.launch.node.machine import is_loopback

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    Interfaces = Mapping[str, Sequence[str]]


def reachable(found: "Interfaces", interface: "str", alone: "bool" = False) -> "list[str]":
    """Addresses of a machine, the best first: the named interfaces', IPv4, IPv6; loopback last and only if `alone`.

    Args:
        found: addresses by interface, as `stackyard.launch.node.machine.addresses` returns them.
        interface: beginnings of interface names, e.g. ``hsn`` or ``ib0,eth``, best first; empty: any.
        alone: only this machine itself connects; to any other one its loopback is of no use.
    """
    wanted = [name for name in interface.split(",") if name]

    def order(item: "tuple[str, str]") -> "tuple[int, bool]":
        name, address = item
        place = next((i for i, start in enumerate(wanted) if name.startswith(start)), len(wanted))
        return place, ":" in address

    pairs = [(name, address) for name, every in found.items() for address in every]
    outside = [address for _, address in sorted(((n, a) for n, a in pairs if not is_loopback(a)), key=order)]
    inside = [address for _, address in pairs if is_loopback(address)]
    return outside + (inside if alone or not outside else [])


def on_interface(found: "Interfaces", interface: "str") -> "list[str]":
    """The addresses of the named interfaces, IPv4 first; none where no name begins like one of `interface`."""
    wanted = tuple(name for name in interface.split(",") if name)
    named = {name: addresses for name, addresses in found.items() if wanted and name.startswith(wanted)}
    return reachable(named, interface) if named else []


def offered(found: "Interfaces", interface: "str") -> "list[str]":
    """Where a process listens for those on other nodes, and where these try: on the named interfaces, or on all where
    the machine has none of those."""
    return on_interface(found, interface) or reachable(found, interface)
