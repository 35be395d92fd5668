"""The hub's side of one agent's connection: lines in, lines out, and when it was heard last."""

from __future__ import annotations

import json
import socket
from typing import Any

LONGEST = 8 << 20
"""Bytes without a newline after which a sender is taken for something else than an agent."""
LONGEST_STRANGER = 1 << 16


class Link:
    """One connection. `node` is -1 until it has said hello with the step's token."""

    def __init__(self, connection: socket.socket, peer: str, now: float) -> None:
        self.socket = connection
        self.peer = peer
        self.since = self.heard = now
        self.node = -1
        self.host = ""
        self.hello: dict[str, Any] = {}
        self.leaving = False
        self.why = ""
        self._inbox = bytearray()
        self._outbox = bytearray()

    @property
    def waiting(self) -> bool:
        """Whether something is still to be sent."""
        return bool(self._outbox)

    def receive(self, now: float) -> list[dict[str, Any]] | None:
        """The messages that have arrived, or None when the other side is gone or talks nonsense (`why` says which)."""
        try:
            data = self.socket.recv(1 << 18)
        except BlockingIOError:
            return []
        except OSError as error:
            self.why = error.strerror or str(error)
            return None
        if not data:
            self.why = "the connection was closed"
            return None
        self.heard = now
        self._inbox += data
        *lines, rest = self._inbox.split(b"\n")
        self._inbox = rest
        try:
            if len(rest) > (LONGEST if self.hello else LONGEST_STRANGER):
                raise ValueError("a line that does not end")
            messages = [json.loads(line) for line in lines]
            if not all(isinstance(one, dict) for one in messages):
                raise ValueError("not an object")
        except ValueError as error:
            self.why = f"it does not speak as agents do: {error}"
            return None
        return messages

    def say(self, kind: str, value: Any) -> None:
        """Send a message as far as the other side takes it now; `flush` sends the rest."""
        self._outbox += json.dumps({kind: value}).encode() + b"\n"
        self.flush()

    def flush(self) -> None:
        """Send what is left; an error is noticed by the next `receive`."""
        try:
            while self._outbox:
                del self._outbox[: self.socket.send(self._outbox)]
        except BlockingIOError:
            return
        except OSError:
            self._outbox.clear()
