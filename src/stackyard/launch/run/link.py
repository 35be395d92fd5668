"""One agent's connection, on the hub's side."""

from __future__ import annotations

import socket
from typing import Any

from stackyard.launch.node.handshake import Host
from stackyard.launch.node.messages import Connection


class Link(Connection):
    """A connection from `peer`, to the hub's address `met`. `node` is -1 until an agent has sent hello.

    `since` and `heard` are the times, by the hub's clock, at which it was accepted and last heard.
    """

    def __init__(self, stream: socket.socket, peer: str, now: float, secret: str) -> None:
        super().__init__(stream)
        self.peer = peer
        self.met = str(stream.getsockname()[0])
        self.demand(Host(secret))
        self.since = self.heard = now
        self.node = -1
        self.host = ""
        self.hello: dict[str, Any] = {}
