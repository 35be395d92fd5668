"""Messages between the processes of a launch: one JSON object a line over TCP, both ways.

The hub, the agents and the ranks of the preflight send and receive with this. It is part of the agent (any Python from
3.6 on, standard library alone, few imports: see `stackyard.launch.node.agent`), and imports nothing else of Stackyard,
since `stackyard.launch.preflight.trial.install` copies it to where `stackyard` cannot be imported.
"""

import json

TYPE_CHECKING = False
if TYPE_CHECKING:
    import socket
    from typing import Any

    from stackyard.launch.node.handshake import Host

LINE_LIMIT = 8 << 20
"""Bytes of the longest line that is accepted from a sender that has authenticated itself."""
UNAUTHENTICATED_LIMIT = 1 << 10
"""The same before that."""
READ_BYTES = 1 << 18


def encode(message: "dict[str, Any]") -> "bytes":
    """A message as one line."""
    return json.dumps(message).encode() + b"\n"


class Decoder:
    """Joins received pieces of bytes, and parses complete lines."""

    def __init__(self, limit: "int" = UNAUTHENTICATED_LIMIT) -> "None":
        self.limit = limit
        self._partial = bytearray()

    def feed(self, data: "bytes") -> "list[dict[str, Any]]":
        """The messages that are complete with `data`.

        Raises:
            ValueError: a line is longer than `limit` (checked before it is parsed), not JSON, or not an object.
        """
        self._partial += data
        *lines, self._partial = self._partial.split(b"\n")
        if max(map(len, [*lines, self._partial])) > self.limit:
            raise ValueError(f"line longer than {self.limit} bytes")
        return [_parsed(line) for line in lines]


def _parsed(line: "bytearray") -> "dict[str, Any]":
    try:
        message = json.loads(line.decode())
    except RecursionError:
        raise ValueError("nested too deeply") from None
    if not isinstance(message, dict):
        raise ValueError("not a JSON object")
    return message


class Connection:
    """One end of a connection, with its unsent messages.

    On a non-blocking socket `receive` and `send` return at once; on a blocking one they wait. `why` is empty until the
    connection fails or is closed by the other end; then it has the reason.
    """

    def __init__(self, stream: "socket.socket", limit: "int" = UNAUTHENTICATED_LIMIT) -> "None":
        self.socket = stream
        self.why = ""
        self.invalid = False
        self._host = None  # type: Host | None
        self._decoder = Decoder(limit)
        self._outbox = bytearray()

    @property
    def waiting(self) -> "int":
        """The number of unsent bytes."""
        return len(self._outbox)

    def demand(self, host: "Host") -> "None":
        """Require the other end to prove that it knows the secret; see `stackyard.launch.node.handshake`."""
        self._host = host
        self.send(host.challenge())

    @property
    def proved(self) -> "bool":
        """Whether the other end has given the proof, if one is required."""
        return self._host is None

    def prove(self, message: "dict[str, Any]") -> "bool":
        """Whether this first message is the proof; if so, it is answered, and long messages are accepted."""
        welcome = None if self._host is None else self._host.welcome(message)
        if welcome is None:
            return False
        self._host = None
        self.trust()
        self.send(welcome)
        return True

    def trust(self) -> "None":
        """Accept long lines from now on: the sender has authenticated itself."""
        self._decoder.limit = LINE_LIMIT

    def receive(self) -> "list[dict[str, Any]] | None":
        """The messages that have arrived, or None if the connection has ended or the data is invalid."""
        try:
            data = self.socket.recv(READ_BYTES)
            if data:
                return self._decoder.feed(data)
            self.why = "connection closed"
        except BlockingIOError:
            return []
        except OSError as error:
            self.why = error.strerror or str(error)
        except ValueError as error:
            self.why, self.invalid = f"invalid message: {error}", True
        return None

    def queue(self, message: "dict[str, Any]") -> "None":
        """Add a message to those that `flush` sends."""
        self._outbox += encode(message)

    def send(self, message: "dict[str, Any]") -> "None":
        """Queue a message, and send as much as the other end accepts now."""
        self.queue(message)
        self.flush()

    def flush(self) -> "None":
        """Send queued messages, as far as the other end accepts them. A failure is stored in `why`."""
        try:
            while self._outbox:
                del self._outbox[: self.socket.send(self._outbox)]
        except BlockingIOError:
            return
        except OSError as error:
            self.why = self.why or error.strerror or str(error)
            self._outbox.clear()

    def finish(self, limit_s: "float") -> "None":
        """Send all queued messages, waiting at most `limit_s` for the other end."""
        self.socket.settimeout(limit_s)
        self.flush()

    def close(self) -> "None":
        """Close the socket."""
        self.socket.close()
