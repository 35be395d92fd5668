"""Copies files to this node before its ranks start: its staging directory, and its position in the tree of nodes.

The hub tells each node its source and its number of receivers. Data is passed on as it arrives, so each level of the
tree delays it by a few chunks only. `StageDirectory` is where the files go; `Stage` does the work in threads, none of
which the agent's loop waits for. Part of the agent of a job with staged files: any Python from 3.6 on, standard library
alone (see `stackyard.launch.node.agent`).
"""
# ruff: noqa: PTH118

import _thread
import collections
import contextlib
import os
import queue
import select
import socket
import time

from stackyard.launch.node.handshake import READY, admit
from stackyard.launch.node.interfaces import offered
from stackyard.launch.node.machine import addresses
from stackyard.launch.node.messages import Connection
from stackyard.launch.node.sockets import accept, listen
from stackyard.launch.node.staging.pack import CHUNK, Packer, StagingError, key_of
from stackyard.launch.node.staging.stagedir import StageDirectory
from stackyard.launch.node.staging.unpack import Unpacker
from stackyard.launch.node.uplink import find

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any

AHEAD = 8
"""Chunks that wait for one child, or for the disk, before the node reads on."""
PROVE_S = 10.0
STRANGERS = 64
"""Connections at most that have not proved yet that they are an agent's."""
REPORT_S = 1.0
LOOK_S = 0.1
LOST = "lost the node that passes the files on"
SETTLE_S = 5.0
"""How long the end waits for the thread that writes, before it removes what was written."""


class Stage:
    """The agent's interface to staging. `ready` becomes readable when `report` has a message for the hub."""

    def __init__(self, told: "dict[str, Any]", secret: "str", host: "str", start_s: "float") -> "None":
        self._told, self._secret, self._start_s = told, secret, start_s
        self._names = [os.fsencode(name) for name, _ in told["items"]]
        self._found = collections.deque()  # type: collections.deque[tuple[str, Any]]
        self.ready, self._wake = os.pipe()
        for end in (self.ready, self._wake):
            os.set_blocking(end, False)
        self._directory = StageDirectory(told["base"], told["key"], host)
        self._sockets = []  # type: list[socket.socket]
        self._over = self._writing = False
        self._sinks = []  # type: list[_Sink]
        self._ticked = 0.0
        self.keeps = False
        self.may_leave = not told["again"]

    @property
    def variables(self) -> "dict[str, str]":
        """The staging variables for the ranks of this node."""
        return {"STACKYARD_STAGE": self._directory.files}

    def hello(self, alone: "bool") -> "dict[str, Any]":
        """The facts from which the hub plans the tree. If other nodes may connect, this listens from now on."""
        try:
            self._directory.claim()
            port = 0
            if not alone:
                port, self._sockets = listen(offered(addresses(), self._told["interface"]), STRANGERS)
            return {"have": self._directory.complete, "port": port, "place": self._directory.path}
        except StagingError as error:
            return {"why": str(error)}
        except OSError as error:
            return {"why": "cannot prepare for what is staged: " + (error.strerror or str(error))}

    def begin(self, value: "dict[str, Any]") -> "None":
        """Carry out the hub's plan: ``from``: addresses of another node, or none; ``children``: number of receivers."""
        _thread.start_new_thread(self._run, (value["from"], value["children"], value["needs"]))

    def report(self, send: "Callable[[str, Any], None]") -> "None":
        """Send pending messages to the hub."""
        with contextlib.suppress(BlockingIOError):
            os.read(self.ready, 65536)
        while self._found:
            send(*self._found.popleft())

    def leave(self, keeps: "bool") -> "None":
        """Handle the end of the job on all nodes; `keeps`: the next attempt uses the files."""
        self.keeps, self.may_leave = keeps, True

    def close(self) -> "None":
        """Stop, and remove the staged files unless the next attempt uses them."""
        self._over = True
        for one in self._sockets:
            one.close()
        until = time.monotonic() + SETTLE_S
        while self._writing and time.monotonic() < until:
            time.sleep(0.02)
        self._directory.release(self.keeps and self._directory.complete)

    # in the thread

    def _tell(self, kind: "str", value: "dict[str, Any]") -> "None":
        self._found.append((kind, value))
        with contextlib.suppress(BlockingIOError):
            os.write(self._wake, b".")

    def _run(self, parents: "list[str]", children: "int", needs: "bool") -> "None":
        try:
            sinks = self._children(children)  # first, since to look at a million files takes its time
            self._pass_on(self._source(parents), sinks, needs)
        except Exception as error:
            self._fail(error)

    def _fail(self, error: "Exception") -> "None":
        """Report why this node cannot continue. An OSError here concerns the node's own disk."""
        if isinstance(error, OSError):
            why = error.strerror or str(error)
            error = StagingError(f"cannot write in {self._directory.path}: {why}", of_node=True)
        elif not isinstance(error, StagingError):
            error = StagingError("internal error: " + repr(error))
        if not self._over:
            told = {"why": str(error), "consequence": error.is_consequence, "of_node": error.of_node}
            self._tell("unstaged", told)
            self._over = True
        for sink in self._sinks:
            sink.end()

    def _source(self, parents: "list[str]") -> "Iterator[bytes]":
        """The stream: from another node, from an earlier attempt's files, or from the shared file system."""
        if parents:
            return _received(self._connect(parents), lambda: self._over)
        directory = os.fsencode(self._directory.files)
        items = [(os.fsencode(name), os.fsencode(path)) for name, path in self._told["items"]]
        if self._directory.complete:
            items = [(name, os.path.join(directory, name)) for name in self._names]
        packer = Packer(items, self._secret)
        packer.survey(self._tick)
        self._tell("staging", {"total": packer.total, "files": packer.files})
        return packer.chunks()

    def _tick(self) -> "None":
        """Report activity from time to time, until bytes can be counted."""
        now = time.monotonic()
        if now > self._ticked + REPORT_S:
            self._ticked = now
            self._tell("staging", {"bytes": 0})

    def _connect(self, parents: "list[str]") -> "socket.socket":
        said = []  # type: list[str]
        until = time.monotonic() + self._start_s
        uplink = find(parents, key_of(self._secret), until, lambda: not self._over, said.append, "an agent")
        if uplink is None:
            why = "".join("; " + text for text in said)
            raise StagingError("cannot connect to the node that passes the files on, at " + ", ".join(parents) + why)
        try:
            uplink.socket.setblocking(True)
            uplink.socket.sendall(READY)
        except OSError as error:
            raise _lost(error) from None
        return uplink.socket

    def _children(self, count: "int") -> "list[_Sink]":
        """A sink for each receiving node; waits until all have connected."""
        door = _Door(key_of(self._secret))
        while len(door.proved) < count and not self._over:
            for listening in select.select(self._sockets, [], [], LOOK_S)[0]:
                with contextlib.suppress(OSError):
                    for connection, _ in accept(listening):
                        door.open(connection)
        return [_Sink(connection.sendall, connection.close) for connection in list(door.proved)]

    def _pass_on(self, source: "Iterator[bytes]", sinks: "list[_Sink]", needs: "bool") -> "None":
        self._sinks = sinks
        if needs:
            self._write(sinks)
        for chunk in source:
            for sink in sinks:
                sink.put(chunk, lambda: self._over)
            if self._over:
                break
        for sink in sinks:
            sink.end()

    def _write(self, sinks: "list[_Sink]") -> "None":
        """Write to this node's own disk, in a separate thread."""
        self._directory.sweep()
        writer = Unpacker(self._directory.partial(), self._names, self._secret)
        reported = [time.monotonic()]

        def feed(chunk: "bytes") -> "None":
            writer.feed(chunk)
            if writer.done:
                self._directory.finish()
                self._tell("staged", {})
            elif time.monotonic() > reported[0] + REPORT_S:
                reported[0] = time.monotonic()
                self._tell("staging", {"bytes": writer.written})

        def close() -> "None":
            writer.close()
            if not writer.done:
                self._fail(StagingError(LOST, is_consequence=True))
            self._writing = False

        self._writing = True
        sinks.append(_Sink(feed, close, self._fail))


class _Door:
    """Admits nodes that prove that they belong to this launch; each handshake has a thread and a time limit."""

    def __init__(self, key: "str") -> "None":
        self.proved = collections.deque()  # type: collections.deque[socket.socket]
        self._key, self._waiting = key, set()  # type: str, set[socket.socket]

    def open(self, connection: "socket.socket") -> "None":
        """Handle a new connection."""
        if len(self._waiting) >= STRANGERS:
            connection.close()
            return
        self._waiting.add(connection)
        _thread.start_new_thread(self._prove, (connection,))

    def _prove(self, connection: "socket.socket") -> "None":
        proved = False
        with contextlib.suppress(OSError):
            proved = admit(Connection(connection), self._key, PROVE_S)
            connection.settimeout(None)
        if proved:
            self.proved.append(connection)
        else:
            connection.close()
        self._waiting.discard(connection)


class _Sink:
    """A receiver of the stream with its own thread and speed: another node, or this node's disk."""

    def __init__(
        self, take: "Callable[[bytes], Any]", close: "Callable[[], None]",
        failed: "Callable[[Exception], None] | None" = None,
    ) -> "None":  # fmt: skip
        self._take, self._close, self._failed = take, close, failed
        self._queue = queue.Queue(AHEAD)  # type: queue.Queue[bytes]
        self._dead = self._ended = False
        _thread.start_new_thread(self._run, ())

    def put(self, chunk: "bytes", is_over: "Callable[[], bool]") -> "None":
        """Pass a chunk on, when there is room; a failed sink ignores it."""
        while not (self._dead or is_over()):
            try:
                return self._queue.put(chunk, True, LOOK_S)
            except queue.Full:
                continue

    def end(self) -> "None":
        """End the stream."""
        self._ended = True

    def _run(self) -> "None":
        try:
            for chunk in self._chunks():
                self._take(chunk)
        except Exception as error:
            if self._failed is not None:  # else it is a node that is gone: the hub finds out by itself
                self._failed(error)
        finally:
            self._dead = True
            self._close()

    def _chunks(self) -> "Iterator[bytes]":
        while True:
            try:
                yield self._queue.get(True, LOOK_S)
            except queue.Empty:
                if self._ended and self._queue.empty():
                    return


def _received(connection: "socket.socket", is_over: "Callable[[], bool]") -> "Iterator[bytes]":
    """The stream from another node, to its end."""
    with contextlib.closing(connection):
        while not is_over():
            if not select.select([connection], [], [], LOOK_S)[0]:
                continue
            try:
                data = connection.recv(CHUNK)
            except OSError as error:
                raise _lost(error) from None
            if not data:
                return
            yield data


def _lost(error: "OSError") -> "StagingError":
    return StagingError(f"{LOST}: {error.strerror}", is_consequence=True)
