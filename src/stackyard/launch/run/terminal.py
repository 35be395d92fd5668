"""Your terminal, or your standard input, for one rank: the side to which `stackyard.launch.node.terminal` connects.

It is a separate connection that involves neither the hub nor an agent. From the rank's connection to its end, Ctrl-C
goes to the rank; before and after, the terminal is yours.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import select
import signal
import socket
import sys
import termios
import threading
from collections.abc import Iterator
from typing import Literal

from stackyard.core.errors import InputError
from stackyard.launch.node.handshake import admit
from stackyard.launch.node.machine import addresses
from stackyard.launch.node.messages import Connection, encode
from stackyard.launch.node.sockets import accept, listen
from stackyard.launch.records.paths import StepPaths
from stackyard.launch.run.addresses import hub_addresses, with_port
from stackyard.yard.write.atomic import write_json

END = b"\x1c"
"""Ctrl-\\ ends the job."""
PROVE_S, LOOK_S = 10.0, 0.2
STRANGERS = 64
"""Connections at most that have not proved yet that they are the rank's."""


@contextlib.contextmanager
def for_rank(
    step: StepPaths, rank: int, kind: Literal["tty", "pipe"], *, interface: str, alone: bool, limit_s: float
) -> Iterator[None]:
    """Connect standard input (and with ``tty`` the terminal) to the rank within the ``with`` block.

    Args:
        alone: whether all ranks run on this machine.
        limit_s: how long the rank tries to connect.

    Raises:
        InputError: ``tty``, and standard input and output are not a terminal.
    """
    if kind == "tty" and not (os.isatty(0) and os.isatty(1)):
        hint = f"run it in a terminal, or use --stdin {rank} for input from a file or a pipe"
        raise InputError("--debug-rank: standard input and output are not a terminal", hint=hint)
    port, sockets = listen(hub_addresses(addresses(), interface, alone=alone), 1)
    secret = secrets.token_hex(32)
    size = os.get_terminal_size(0) if kind == "tty" else os.terminal_size((80, 24))  # whatever $COLUMNS says
    told = {"hubs": with_port(hub_addresses(addresses(), interface, alone=alone), port), "secret": secret,
            "limit_s": limit_s, "size": [size.lines, size.columns]}  # fmt: skip
    step.root.mkdir(parents=True, exist_ok=True)
    write_json(step.terminal, told, mode=0o600)
    server = _Server(sockets, secret, rank, kind, size)
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    try:
        yield
    finally:
        server.close()
        thread.join()
        step.terminal.unlink(missing_ok=True)
        for one in sockets:
            one.close()


class _Server:
    """Accepts the connection of the rank, and forwards bytes. Each connection has a thread until it is proved."""

    def __init__(self, sockets: list[socket.socket], secret: str, rank: int, kind: str, size: os.terminal_size) -> None:
        self._sockets, self._secret, self._rank, self._kind = sockets, secret, rank, kind
        self._told = size
        self._before: list[int | list[bytes | int]] | None = None
        self._one, self._proving = threading.Lock(), threading.Semaphore(STRANGERS)
        self._over = False

    def close(self) -> None:
        """End after all output is shown, and restore the terminal."""
        self._over = True
        self._one.acquire(timeout=PROVE_S)
        self._give_back()

    def run(self) -> None:
        """Serve one connection after the other: an attempt after a restart has a new one."""
        while not self._over:
            for listening in select.select(self._sockets, [], [], LOOK_S)[0]:
                with contextlib.suppress(OSError):
                    for connection, _ in accept(listening):
                        self._begin(connection)

    def _begin(self, connection: socket.socket) -> None:
        if not self._proving.acquire(blocking=False):
            connection.close()
            return
        threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        with contextlib.closing(connection), contextlib.suppress(OSError):
            try:
                proved = self._is_rank(connection)
            finally:
                self._proving.release()
            if proved:
                with self._one:
                    self._serve_rank(connection)

    def _serve_rank(self, connection: socket.socket) -> None:
        connection.setblocking(True)
        if self._kind == "tty":
            self._take_over()
        try:
            self._relay(connection)
        finally:
            self._give_back()

    def _is_rank(self, connection: socket.socket) -> bool:
        """Whether the other end proves within a few seconds that it belongs to this launch."""
        return admit(Connection(connection), self._secret, PROVE_S)

    def _relay(self, connection: socket.socket) -> None:
        ends: list[int | socket.socket] = [0, connection]
        size = self._told
        while True:
            size = self._follow(connection, size) if self._kind == "tty" and 0 in ends else size
            ready = select.select(ends, [], [], LOOK_S)[0]
            if self._over and connection not in ready:
                return
            if connection in ready:
                data = connection.recv(1 << 16)
                if not data:
                    return
                _write(data)
            if 0 in ready and not self._from_you(connection):
                ends.remove(0)

    def _follow(self, connection: socket.socket, known: os.terminal_size) -> os.terminal_size:
        """Send the rank the size of your terminal after a change. SIGWINCH reaches only the main thread."""
        with contextlib.suppress(OSError):
            size = os.get_terminal_size(0)
            if size != known:
                connection.sendall(encode({"size": [size.lines, size.columns]}))
            return size
        return known

    def _from_you(self, connection: socket.socket) -> bool:
        """Forward input; False at its end."""
        data = os.read(0, 1 << 16)
        if self._kind == "tty" and END in data:
            os.kill(os.getpid(), signal.SIGINT)
            return True
        if data:
            connection.sendall(encode({"keys": data.decode("latin-1")}) if self._kind == "tty" else data)
        else:
            connection.shutdown(socket.SHUT_WR)
        return bool(data)

    def _take_over(self) -> None:
        """Forward every key as it is typed, including Ctrl-C. The terminal's output mode is not changed."""
        self._before = termios.tcgetattr(0)
        changed = termios.tcgetattr(0)
        changed[0] &= ~(termios.IXON | termios.ICRNL)
        changed[3] &= ~(termios.ICANON | termios.ECHO | termios.ISIG | termios.IEXTEN)
        termios.tcsetattr(0, termios.TCSADRAIN, changed)
        sys.stderr.write(f"rank {self._rank} has this terminal: Ctrl-C goes to it, Ctrl-\\ ends the job\n")
        sys.stderr.flush()

    def _give_back(self) -> None:
        """Restore the terminal."""
        before, self._before = self._before, None
        if before is not None:
            termios.tcsetattr(0, termios.TCSADRAIN, before)


def _write(data: bytes) -> None:
    while data:
        data = data[os.write(1, data) :]
