"""The hub's admission of connections: each must prove that it is an agent of this launch.

Any process that reaches the port may connect, so unproved connections are limited: in number, in time, and to one short
message.
"""

from __future__ import annotations

import selectors
import socket
import time
from collections.abc import Iterator
from typing import Any

from stackyard.launch.node.sockets import accept
from stackyard.launch.node.step import StepFile
from stackyard.launch.run.link import Link

STRANGERS = 64
"""How many more connections than nodes are missing may wait here; then the oldest is closed for a new one."""
HELLO_S = 10.0
"""Time limit for a connection to prove what it is, and to say hello."""


class Door:
    """Accepts connections for the hub's selector, and closes those that do not prove themselves."""

    def __init__(self, selector: selectors.BaseSelector, sockets: list[socket.socket], file: StepFile) -> None:
        self._selector, self._file = selector, file
        self._waiting: dict[Link, None] = {}
        self._refused = 0
        self._errors: dict[str, int] = {}
        for one in sockets:
            selector.register(one, selectors.EVENT_READ, None)

    def accept(self, listening: Any, nodes: int) -> None:
        """Accept the waiting connections; `nodes` have said hello so far."""
        try:
            for stream, address in accept(listening):
                link = Link(stream, address, time.monotonic(), self._file.secret)
                self._waiting[link] = None
                self._selector.register(stream, selectors.EVENT_READ, link)
                if len(self._waiting) > self._file.nodes - nodes + STRANGERS:
                    self._refuse(next(iter(self._waiting)))
        except OSError as error:
            text = error.strerror or str(error)
            self._errors[text] = self._errors.get(text, 0) + 1

    def prove(self, link: Link, message: dict[str, Any]) -> bool:
        """Whether the first message of a connection is the proof; otherwise close the connection."""
        if link.prove(message):
            return True
        self._refuse(link)
        return False

    def forget(self, link: Link) -> None:
        """Forget a connection that has said hello, or is closed."""
        self._waiting.pop(link, None)

    def close_idle(self, now: float) -> None:
        """Close the connections that have not said hello in time."""
        for link in [one for one in self._waiting if now > one.since + HELLO_S]:
            self._refuse(link)

    def close(self) -> None:
        """Close all connections that have not said hello."""
        for link in self._waiting:
            link.close()

    def said(self) -> Iterator[str]:
        """Messages for the user at the end, one for each kind of event."""
        if self._refused:
            yield f"{self._refused} connection{'s' * (self._refused > 1)} refused: not from this launch"
        for text, count in self._errors.items():
            yield f"cannot accept a connection ({count} times): {text}"

    def _refuse(self, link: Link) -> None:
        self._refused += 1
        self._waiting.pop(link, None)
        self._selector.unregister(link.socket)
        link.close()
