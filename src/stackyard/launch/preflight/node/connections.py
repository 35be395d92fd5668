"""The coordinator's connections to all ranks: hellos, commands, and the answers to them."""

from __future__ import annotations

import selectors
import socket
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from ...node.handshake import Host
from ...node.messages import Connection
from ...node.sockets import accept, listen

AFTER_LOSS_S = 5.0
"""How long other answers are waited for once the connection to a rank is lost."""
LATE_S = 20.0
"""The least time for the second half of the ranks to connect, once the first half has."""
BACKLOG = 4096
FINISH_S = 1.0
STRANGERS = 64
"""How many more connections than ranks may be unauthenticated; then the oldest is closed for a new one."""


class RankConnection(Connection):
    """The coordinator's end of a rank's connection. `address` is the address of the rank's node."""

    def __init__(self, stream: socket.socket, address: str, secret: str) -> None:
        super().__init__(stream)
        self.address = address
        self.demand(Host(secret))
        self.hello: dict[str, Any] = {}

    @property
    def rank(self) -> int:
        """The reported rank; -1 before."""
        return int(self.hello.get("rank", -1))

    @property
    def host(self) -> str:
        """The reported node."""
        return str(self.hello.get("host", self.address))


class Connections:
    """All connections to ranks; one thread, no locks. When the file `stop` appears, InterruptedError is raised."""

    def __init__(self, address: str, port: int, secret: str, stop: Path, size: int) -> None:
        self.secret, self.stop, self.most = secret, stop, size + STRANGERS
        self._looked = 0.0
        self.waited_s = 0.0
        self.selector = selectors.DefaultSelector()
        _, self.listening = listen([address], BACKLOG, port)
        for one in self.listening:
            self.selector.register(one, selectors.EVENT_READ)
        self.by_rank: dict[int, RankConnection] = {}
        self._unproved: dict[RankConnection, None] = {}
        self.twice: list[str] = []
        self.gone: set[int] = set()

    def gather(self, size: int, limit_s: float) -> None:
        """Wait until `size` different ranks have said hello, or until a time limit.

        The limit is `limit_s`, or, once half of the ranks are connected, four times as long as that took, at least 20
        s.
        """
        began = time.monotonic()
        end, half = began + limit_s, False
        while len(self.by_rank) < size and time.monotonic() < end:
            self._turn(end, lambda rank, message: None)
            if not half and 2 * len(self.by_rank) >= size:
                half, now = True, time.monotonic()
                end = min(end, now + max(LATE_S, 4 * (now - began)))
        self.waited_s = time.monotonic() - began

    def ask(self, commands: dict[int, dict[str, Any]], limit_s: float) -> Answers:
        """Send each rank its command and wait for all answers, or until the time is up.

        Rank 0 gets its command last: it is in the process of this coordinator, whose thread does not run while that
        one starts MPI (mpi4py keeps Python's lock in MPI_Init), and MPI starts only when all ranks have their command.
        """
        answers = Answers(commands)
        for rank in sorted(commands, reverse=True):
            self.by_rank[rank].send(commands[rank])
        end = time.monotonic() + limit_s
        while time.monotonic() < end:
            lost = answers.waiting & self.gone
            if lost and not answers.lost:
                end = min(end, time.monotonic() + AFTER_LOSS_S)
            answers.lost = sorted(lost)
            if len(answers.waiting) == len(lost):
                break
            self._turn(end, answers.take)
        return answers

    def finish(self, message: dict[str, Any]) -> None:
        """Send all ranks their last message; rank 0, which is in this process, last."""
        for rank in sorted(self.by_rank, reverse=True):
            self.by_rank[rank].queue(message)
            self.by_rank[rank].finish(FINISH_S)

    def _turn(self, end: float, take: Callable[[int, dict[str, Any]], None]) -> None:
        if time.monotonic() > self._looked + 1:
            self._looked = time.monotonic()
            if self.stop.exists():
                raise InterruptedError("stopped")
        for key, mask in self.selector.select(max(0.0, min(0.5, end - time.monotonic()))):
            if key.data is None:
                self._accept(key.fileobj)
            elif mask & selectors.EVENT_READ:
                self._read(key.data, take)
        for connection in self.by_rank.values():
            if connection.waiting:
                connection.flush()

    def _accept(self, listening: Any) -> None:
        for stream, address in accept(listening):
            connection = RankConnection(stream, address, self.secret)
            self.selector.register(stream, selectors.EVENT_READ, connection)
            self._unproved[connection] = None
            if len(self._unproved) > self.most:
                self._close(next(iter(self._unproved)))

    def _read(self, connection: RankConnection, take: Callable[[int, dict[str, Any]], None]) -> None:
        messages = connection.receive()
        for message in messages or ():
            if connection.hello:
                take(connection.rank, message)
            elif not (self._hello(connection, message) if connection.proved else connection.prove(message)):
                messages = None
                break
        if messages is None:
            self._close(connection)

    def _close(self, connection: RankConnection) -> None:
        self._unproved.pop(connection, None)
        self.selector.unregister(connection.socket)
        connection.close()
        if connection.hello:
            self.gone.add(connection.rank)

    def _hello(self, connection: RankConnection, message: dict[str, Any]) -> bool:
        """Whether a rank of this step has said hello."""
        hello = message.get("hello")
        if not isinstance(hello, dict):
            return False
        connection.hello = hello
        self._unproved.pop(connection, None)
        if connection.rank in self.by_rank:
            first = self.by_rank[connection.rank]
            self.twice.append(f"rank {connection.rank} on {first.host} and on {connection.host}")
        self.by_rank[connection.rank] = connection
        return True


class Answers:
    """The answers: results and errors by rank, and the progress of each rank."""

    def __init__(self, ranks: Iterable[int]) -> None:
        self.waiting: set[int] = set(ranks)
        self.results: dict[int, dict[str, Any]] = {}
        self.errors: dict[int, str] = {}
        self.at: dict[int, str] = {}
        self.lost: list[int] = []

    @property
    def silent(self) -> list[int]:
        """Ranks that did not answer in time."""
        return sorted(self.waiting)

    def take(self, rank: int, message: dict[str, Any]) -> None:
        """Handle one message of a rank."""
        if "at" in message:
            self.at[rank] = str(message["at"])
        elif "error" in message:
            self.errors[rank] = str(message["error"])
            self.waiting.discard(rank)
        elif "ok" in message:
            self.results[rank] = dict(message["ok"])
            self.waiting.discard(rank)
