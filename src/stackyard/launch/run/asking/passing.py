"""The hub's part of `stackyard profile`: requests to the ranks' probes are passed to the agents, and the answers back.

The connection is admitted as an agent's is (`stackyard.launch.run.door`): it proves that it knows the step's secret,
which only the run's owner can read.

    to the hub      {"ask": {"request": {..}, "only": {"task": [pids]}}}        `only`: or null, for all processes
    from the hub    {"answered": {"host", "answers": [{"task", "pid", "answer"}]}}      once for each node
                    {"done": true}, or {"refused": "why"}
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

from stackyard.launch.run.door import Door
from stackyard.launch.run.link import Link

MOST = 8
"""Connections at a time."""


class Asking:
    """The open requests. `send` sends a message to all agents; `flush` as much to one connection as it takes now."""

    def __init__(self, door: Door, send: Callable[[str, Any], None], flush: Callable[[Link], None]) -> None:
        self._door, self._send, self._flush = door, send, flush
        self._numbers = itertools.count(1)
        self._open: dict[int, tuple[Link, int]] = {}
        self._links: dict[Link, None] = {}

    def begin(self, link: Link, value: dict[str, Any], nodes: int) -> None:
        """Pass a request on; `nodes`: how many agents are connected; 0: the ranks do not run."""
        self._door.forget(link)
        self._links[link] = None
        if not nodes or len(self._links) > MOST:
            self._tell(link, {"refused": "its ranks are not running" if not nodes else "too many requests"})
            return
        number = next(self._numbers)
        self._open[number] = link, nodes
        self._send("probe", {"number": number, "request": dict(value["request"]), "only": value.get("only")})

    def heard(self, agent: Link, value: dict[str, Any]) -> None:
        """Pass an agent's answers on; nothing if the connection that asked is closed."""
        number = int(value["number"])
        link, left = self._open.pop(number, (None, 0))
        if link is None:
            return
        self._tell(link, {"answered": {"host": agent.host, "answers": value["answers"]}})
        if left > 1:
            self._open[number] = link, left - 1
        else:
            self._tell(link, {"done": True})

    def forget(self, link: Link) -> None:
        """Forget a connection that is closed."""
        self._links.pop(link, None)
        self._open = {number: one for number, one in self._open.items() if one[0] is not link}

    def close(self) -> None:
        """Close all connections."""
        for link in self._links:
            link.close()

    def _tell(self, link: Link, message: dict[str, Any]) -> None:
        if link.socket.fileno() >= 0:
            link.queue(message)
            self._flush(link)
