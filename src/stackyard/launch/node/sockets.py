"""The agent's connection to the hub, and ports that are held for the ranks.

Part of the agent: any Python from 3.6 on, standard library alone, few imports (see `stackyard.launch.node.agent`).
"""
# ruff: noqa: PTH110

import os
import selectors
import socket
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

HUB_SILENT_MS = 20_000
"""How long the kernel sends again to a hub whose machine has gone before the connection counts as broken."""


def connect(hubs: "list[str]", deadline: "float", wanted: "Callable[[], bool]") -> "tuple[socket.socket, str] | None":
    """A connection to the first hub address that answers, tried 0.1 s apart, and all again while it is `wanted`."""
    while time.monotonic() < deadline and hubs and wanted():
        waiting = selectors.DefaultSelector()
        todo, until = list(hubs), min(deadline, time.monotonic() + 3)
        while time.monotonic() < until and (todo or waiting.get_map()):
            if todo and not _begin(todo.pop(0), waiting) and (todo or not waiting.get_map()):
                continue  # no way to that address, which is known at once
            for key, _ in waiting.select(0.1 if todo else max(0.0, until - time.monotonic())):
                found = key.fileobj
                waiting.unregister(found)
                if found.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) == 0:  # type: ignore[union-attr]
                    _close_all(waiting)
                    return found, key.data  # type: ignore[return-value]
                found.close()  # type: ignore[union-attr]
        _close_all(waiting)
        time.sleep(0.2)
    return None


def _begin(hub: "str", waiting: "selectors.BaseSelector") -> "bool":
    """Whether a connection is under way."""
    address, _, port = hub.rpartition(":")
    made = socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET)
    made.setblocking(False)
    made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    made.setsockopt(socket.IPPROTO_TCP, getattr(socket, "TCP_USER_TIMEOUT", 18), HUB_SILENT_MS)
    if made.connect_ex((address.strip("[]"), int(port))) in (0, 11, 36, 115):  # EAGAIN, EINPROGRESS
        waiting.register(made, selectors.EVENT_WRITE, hub)
        return True
    made.close()
    return False


def _close_all(waiting: "selectors.BaseSelector") -> "None":
    for key in list(waiting.get_map().values()):
        key.fileobj.close()  # type: ignore[union-attr]
    waiting.close()


def hold_port() -> "tuple[int, list[socket.socket]]":
    """A free port, bound on all addresses of both families and kept, so that nobody else is given it.

    The sockets have SO_REUSEADDR and do not listen: a program that sets SO_REUSEADDR itself can bind and listen there
    (socket(7)), while neither an automatic choice of a port nor a bind without the option ever gets it.
    """
    for _ in range(100):
        held = []  # type: list[socket.socket]
        port = 0
        try:
            for family, wildcard in ((socket.AF_INET, "0.0.0.0"), (socket.AF_INET6, "::")):
                if family == socket.AF_INET6 and not os.path.exists("/proc/net/if_inet6"):
                    continue
                made = socket.socket(family, socket.SOCK_STREAM)
                held.append(made)
                made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                if family == socket.AF_INET6:
                    made.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
                made.bind((wildcard, port))
                port = made.getsockname()[1]
        except OSError:
            for one in held:
                one.close()
            continue
        return port, held
    raise OSError("no port is free on both IPv4 and IPv6")
