"""The agent's connection to the hub, or to another agent: established, authenticated, kept alive.

A thread sends the heartbeat. It accesses no file, so a stalled file system does not make a node look lost. `threading`
is not imported, because that would take too long. Part of the agent: any Python from 3.6 on, standard library alone,
few imports (see `stackyard.launch.node.agent`).
"""

import _thread
import os
import time

from stackyard.launch.node.handshake import introduce
from stackyard.launch.node.messages import Connection
from stackyard.launch.node.sockets import connect

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

GREET_S = 5.0
"""Time limit for what answers at an address to prove that it is the hub."""


class Uplink:
    """An authenticated connection to the hub. `why` has the reason of its end; empty before."""

    def __init__(self, connection: "Connection", name: "str") -> "None":
        self.socket, self.name = connection.socket, name
        self._connection = connection
        self._lock = _thread.allocate_lock()
        self._open = True

    @property
    def why(self) -> "str":
        """Why the connection has failed or was closed; empty before."""
        return self._connection.why

    @property
    def waiting(self) -> "int":
        """The number of unsent bytes."""
        return self._connection.waiting

    def send(self, *messages: "dict[str, Any]") -> "None":
        """Queue messages, and send as much as the hub accepts now."""
        with self._lock:
            for message in messages:
                self._connection.queue(message)
            self._connection.flush()

    def receive(self) -> "list[dict[str, Any]] | None":
        """The messages that have arrived, or None when the connection has ended."""
        return self._connection.receive()

    def keep_alive(self, every_s: "float") -> "None":
        """Send a heartbeat every `every_s` seconds, from a separate thread, until the connection is closed."""
        _thread.start_new_thread(self._beat, (every_s,))

    def _beat(self, every_s: "float") -> "None":
        while True:
            time.sleep(every_s)
            with self._lock:
                if not self._open:
                    return
                if not self._connection.waiting:
                    self._connection.queue({"beat": {}})
                self._connection.flush()

    def finish(self, limit_s: "float") -> "None":
        """Send all queued messages, waiting at most `limit_s` for the hub."""
        with self._lock:
            self._connection.finish(limit_s)

    def close(self) -> "None":
        """Close the socket."""
        with self._lock:
            self._open = False
            self._connection.close()


def find(
    hubs: "list[str]", secret: "str", deadline: "float", is_wanted: "Callable[[], bool]", log: "Callable[[str], None]",
    who: "str" = "the hub",
) -> "Uplink | None":  # fmt: skip
    """The first of `hubs` (``address:port``) that authenticates itself; None after `deadline`, or once not `is_wanted`.

    `log` is called for listeners that are not `who`. A listener that does not know the secret is not tried again. One
    that does not answer, or closes the connection, is: it may be a hub with too many connections at once.
    """
    left = list(hubs)
    while left:
        reply = connect(left, deadline, is_wanted)
        if reply is None:
            return None
        stream, name = reply
        connection = Connection(stream)
        why = introduce(connection, secret, min(deadline - time.monotonic(), GREET_S))
        if not why:
            stream.setblocking(False)
            return Uplink(connection, name)
        connection.close()
        log(f"{name} is not {who} of this launch: {why}")
        left.remove(name)
        if why == connection.why and not connection.invalid:
            left.append(name)
            time.sleep(0.1 + os.urandom(1)[0] / 640.0)  # not all agents at the same time
    return None
