"""One agent's connection, as the hub sees it."""

from __future__ import annotations

import socket
from typing import Any

from stackyard.launch.node.handshake import Host
from stackyard.launch.node.messages import Connection


class Link(Connection):
    """A connection from `peer`, to the hub's address `met`. `node` is -1 until an agent has sent hello.

    `since` and `heard` are the times, by the hub's clock, at which it was accepted and last heard.
    """

    def __init__(self, made: socket.socket, peer: str, now: float, secret: str) -> None:
        super().__init__(made)
        self.peer = peer
        self.met = str(made.getsockname()[0])
        self._handshake: Host | None = Host(secret)
        self.send(self._handshake.challenge())
        self.since = self.heard = now
        self.node = -1
        self.host = ""
        self.hello: dict[str, Any] = {}

    @property
    def proved(self) -> bool:
        """Whether the other end has proved that it knows the step's secret."""
        return self._handshake is None

    def prove(self, message: dict[str, Any]) -> bool:
        """Whether this first message is the proof; the answer is sent, and long messages are accepted from now on."""
        welcome = self._handshake.welcome(message) if self._handshake else None
        if welcome is None:
            return False
        self._handshake = None
        self.trust()
        self.send(welcome)
        return True
