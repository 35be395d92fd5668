"""Sockets of a launch: connect to the first address that answers, reserve a port, listen and accept on both families.

Part of the agent (any Python from 3.6 on, standard library alone, few imports: see `stackyard.launch.node.agent`). Like
`messages` it imports nothing else of Stackyard, since it is copied to the nodes for the preflight.
"""
# ruff: noqa: PTH110

import os
import selectors
import socket
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

SILENT_MS = 20_000
"""How long the kernel retransmits to a host that does not acknowledge, before it reports the connection as broken."""


def connect(
    targets: "list[str]", deadline: "float", is_wanted: "Callable[[], bool]"
) -> "tuple[socket.socket, str] | None":
    """A connection to the first ``address:port`` that answers; None after `deadline`, or if no longer `is_wanted`.

    Addresses are tried 0.1 s apart, and all of them again until one answers.
    """
    while time.monotonic() < deadline and targets and is_wanted():
        waiting = selectors.DefaultSelector()
        todo, until = list(targets), min(deadline, time.monotonic() + 3)
        while time.monotonic() < until and (todo or waiting.get_map()):
            if todo and not _begin(todo.pop(0), waiting) and (todo or not waiting.get_map()):
                continue  # no route to that address: known at once
            for key, _ in waiting.select(0.1 if todo else max(0.0, until - time.monotonic())):
                connection = key.fileobj
                waiting.unregister(connection)
                if connection.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) == 0:  # type: ignore[union-attr]
                    _close_all(waiting)
                    return connection, key.data  # type: ignore[return-value]
                connection.close()  # type: ignore[union-attr]
        _close_all(waiting)
        time.sleep(0.2)
    return None


def _begin(target: "str", waiting: "selectors.BaseSelector") -> "bool":
    """Start to connect; False if that fails at once."""
    address, _, port = target.rpartition(":")
    connection = socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET)
    connection.setblocking(False)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    connection.setsockopt(socket.IPPROTO_TCP, getattr(socket, "TCP_USER_TIMEOUT", 18), SILENT_MS)
    if connection.connect_ex((address.strip("[]"), int(port))) in (0, 11, 36, 115):  # EAGAIN, EINPROGRESS
        waiting.register(connection, selectors.EVENT_WRITE, target)
        return True
    connection.close()
    return False


def _close_all(waiting: "selectors.BaseSelector") -> "None":
    for key in list(waiting.get_map().values()):
        key.fileobj.close()  # type: ignore[union-attr]
    waiting.close()


def hold_port(tries: "int" = 100) -> "tuple[int, list[socket.socket]]":
    """Reserve a free port: bound on all addresses of both families, so that no other process gets it.

    The sockets have SO_REUSEADDR and do not listen: a program that sets SO_REUSEADDR itself can bind and listen there
    (socket(7)), while neither an automatic choice of a port nor a bind without the option ever gets it.

    Raises:
        OSError: no port is free on both families.
    """
    try:
        return bind(0, ["0.0.0.0", "::"] if os.path.exists("/proc/net/if_inet6") else ["0.0.0.0"])
    except OSError:  # free on one family only
        if tries == 1:
            raise
        return hold_port(tries - 1)


def bind(port: "int", addresses: "Sequence[str]") -> "tuple[int, list[socket.socket]]":
    """Sockets bound to one port (0: a free one) of each of these addresses. Raises OSError."""
    sockets = []  # type: list[socket.socket]
    try:
        for address in addresses:
            listener = socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET, socket.SOCK_STREAM)
            sockets.append(listener)
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if ":" in address:
                listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            listener.bind((address, port))
            port = listener.getsockname()[1]
    except OSError:
        for one in sockets:
            one.close()
        raise
    return port, sockets


def listen(
    addresses: "Sequence[str]", backlog: "int", port: "int" = 0, tries: "int" = 100
) -> "tuple[int, list[socket.socket]]":
    """One port of these addresses (0: a free one), and the sockets that listen there. Raises OSError."""
    try:
        port, bound = bind(port, addresses)
    except OSError:  # free at one address only
        if port or tries == 1:
            raise
        return listen(addresses, backlog, 0, tries - 1)
    for one in bound:
        one.setblocking(False)
        one.listen(max(128, backlog))
    return port, bound


def accept(listening: "socket.socket") -> "Iterator[tuple[socket.socket, str]]":
    """Every connection that has arrived, non-blocking, with the address it comes from. Raises OSError."""
    while True:
        try:
            connection, address = listening.accept()
        except BlockingIOError:
            return
        connection.setblocking(False)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        yield connection, address[0]
