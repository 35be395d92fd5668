"""JSON lines over one TCP connection per rank, between rank 0's coordinator and all ranks."""

from __future__ import annotations

import json
import selectors
import socket
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

LINE_LIMIT = 1 << 20
AFTER_LOSS_S = 5.0
LATE_S = 20.0


class Peer:
    """The coordinator's end of one rank's connection. `address` is where the rank's node was seen to come from."""

    def __init__(self, sock: socket.socket, address: str) -> None:
        self.sock, self.address = sock, address
        self.hello: dict[str, Any] = {}
        self.gone = False
        self._partial = b""

    @property
    def rank(self) -> int:
        """The rank it said it is."""
        return int(self.hello.get("rank", -1))

    @property
    def host(self) -> str:
        """The node it said it is on."""
        return str(self.hello.get("host", self.address))

    def send(self, message: dict[str, Any]) -> None:
        """Queue a line in the kernel; a rank that is gone is noticed when it is read from."""
        try:
            self.sock.sendall(json.dumps(message).encode() + b"\n")
        except OSError:
            self.gone = True

    def receive(self) -> list[dict[str, Any]]:
        """The whole lines that have arrived."""
        try:
            data = self.sock.recv(1 << 16)
        except OSError:
            data = b""
        if not data or len(self._partial) > LINE_LIMIT:
            self.gone = True
            return []
        *lines, self._partial = (self._partial + data).split(b"\n")
        return [message for line in lines for message in [_parsed(line)] if message is not None]


def _parsed(line: bytes) -> dict[str, Any] | None:
    try:
        message = json.loads(line)
    except ValueError:
        return None
    return message if isinstance(message, dict) else None


def _listening(port: int) -> socket.socket:
    """On all addresses of both families where the kernel has IPv6. SO_REUSEADDR: the port may be held for us, bound."""
    family = socket.AF_INET6 if Path("/proc/net/if_inet6").exists() else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    if family == socket.AF_INET6:
        listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
    listener.bind(("", port))
    listener.listen(4096)
    return listener


class Hub:
    """All connections of the coordinator; one thread, no locks. The file `stop`, once it is there, ends everything."""

    def __init__(self, port: int, token: str, stop: Path) -> None:
        self.token, self.stop = token, stop
        self._looked = 0.0
        self.waited_s = 0.0
        self.listener = _listening(port)
        self.selector = selectors.DefaultSelector()
        self.selector.register(self.listener, selectors.EVENT_READ)
        self.peers: dict[int, Peer] = {}
        self.twice: list[str] = []
        self.gone: set[int] = set()

    def gather(self, size: int, limit_s: float) -> None:
        """Wait until `size` different ranks have said hello, or until the time is up: `limit_s`, or, once half of them
        are there, four times as long as that took, at least 20 s.
        """
        began = time.monotonic()
        end, half = began + limit_s, False
        while len(self.peers) < size and time.monotonic() < end:
            self._turn(end, lambda peer, message: None)
            if not half and 2 * len(self.peers) >= size:
                half, now = True, time.monotonic()
                end = min(end, now + max(LATE_S, 4 * (now - began)))
        self.waited_s = time.monotonic() - began

    def ask(self, commands: dict[int, dict[str, Any]], limit_s: float) -> Answers:
        """Send each rank its command and wait for all answers, or until the time is up."""
        answers = Answers(commands)
        for rank, command in commands.items():
            self.peers[rank].send(command)
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

    def tell(self, ranks: Iterable[int], message: dict[str, Any]) -> None:
        """Send without waiting for an answer."""
        for rank in ranks:
            self.peers[rank].send(message)

    def _turn(self, end: float, take: Callable[[Peer, dict[str, Any]], None]) -> None:
        if time.monotonic() > self._looked + 1:
            self._looked = time.monotonic()
            if self.stop.exists():
                raise InterruptedError("told to stop")
        for key, _ in self.selector.select(max(0.0, min(0.5, end - time.monotonic()))):
            if key.data is None:
                sock, address = self.listener.accept()
                host = str(address[0])
                peer = Peer(sock, host[7:] if host.startswith("::ffff:") else host)
                self.selector.register(sock, selectors.EVENT_READ, peer)
                continue
            peer = key.data
            for message in peer.receive():
                self._hello(peer, message["hello"]) if "hello" in message else take(peer, message)
            if peer.gone:
                self.selector.unregister(peer.sock)
                self.gone.add(peer.rank)

    def _hello(self, peer: Peer, hello: dict[str, Any]) -> None:
        if hello.get("token") != self.token:
            peer.sock.close()
            peer.gone = True
            return
        peer.hello = hello
        if peer.rank in self.peers:
            self.twice.append(f"rank {peer.rank} on {self.peers[peer.rank].host} and on {peer.host}")
        self.peers[peer.rank] = peer


class Answers:
    """What came back: results and errors by rank, and how far each rank has come."""

    def __init__(self, asked: Iterable[int]) -> None:
        self.waiting: set[int] = set(asked)
        self.results: dict[int, dict[str, Any]] = {}
        self.errors: dict[int, str] = {}
        self.at: dict[int, str] = {}
        self.lost: list[int] = []

    @property
    def silent(self) -> list[int]:
        """Ranks that did not answer in time."""
        return sorted(self.waiting)

    def take(self, peer: Peer, message: dict[str, Any]) -> None:
        """Note one message of a rank."""
        if "at" in message:
            self.at[peer.rank] = str(message["at"])
        elif "error" in message:
            self.errors[peer.rank] = str(message["error"])
            self.waiting.discard(peer.rank)
        elif "ok" in message:
            self.results[peer.rank] = dict(message["ok"])
            self.waiting.discard(peer.rank)
