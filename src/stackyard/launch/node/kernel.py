"""The node's side of a Jupyter kernel that `stackyard launch` started: the kernel, and a relay to its ports.

Standard library only: its text is sent to the rank, whose Python is the revision's, and run there. It gets `job`:
Jupyter's key, and the addresses of Jupyter's machine. The kernel listens on the loopback of its node. The relay listens
on the node's address towards that machine, admits clients that answer a challenge with that key, and joins each
connection to one port of the kernel.
"""

import asyncio
import hashlib
import hmac
import json
import os
import socket
import sys
import tempfile
from contextlib import suppress

TYPE_CHECKING = False
if TYPE_CHECKING:
    from asyncio import StreamReader, StreamWriter
    from typing import Any

PORTS = ("shell_port", "iopub_port", "stdin_port", "control_port", "hb_port")
NONCE, WAIT_S, WAITING = 32, 10, 64


def free_ports() -> "dict[str, int]":
    """Free loopback ports, one for each port of a kernel."""
    taken = [socket.socket() for _ in PORTS]
    for listener in taken:
        listener.bind(("127.0.0.1", 0))
    ports = {name: listener.getsockname()[1] for name, listener in zip(PORTS, taken)}  # noqa: B905 - runs on Python 3.8
    for listener in taken:
        listener.close()
    return ports


def address_towards(others: "list[str]") -> "str":
    """The address of this machine on the route to another one, given by its addresses, best first.

    On that machine itself it is the loopback address. Nothing is sent: the kernel only looks up the route.
    """
    for other in others:
        family = socket.AF_INET6 if ":" in other else socket.AF_INET
        with socket.socket(family, socket.SOCK_DGRAM) as probe, suppress(OSError):
            probe.connect((other, 9))
            address = probe.getsockname()[0]
            return "127.0.0.1" if address == other else address
    return "127.0.0.1"


async def relay(reader: "StreamReader", writer: "StreamWriter") -> None:
    """Copy bytes until one side ends."""
    with suppress(OSError):
        while True:
            data = await reader.read(1 << 16)
            if not data:
                break
            writer.write(data)
            await writer.drain()
    with suppress(OSError):
        writer.close()


async def joined(one: "tuple[StreamReader, StreamWriter]", other: "tuple[StreamReader, StreamWriter]") -> None:
    """Relay between two connections, in both directions."""
    await asyncio.gather(relay(one[0], other[1]), relay(other[0], one[1]))


class Door:
    """Admits clients that have the key."""

    def __init__(self, key: str, ports: "dict[str, int]") -> None:
        self.key, self.ports, self.waiting = key.encode(), ports, 0

    async def enter(self, reader: "StreamReader", writer: "StreamWriter") -> None:
        """Serve one connection: challenge, answer with a port's index, then bytes."""
        number = await self.number(reader, writer)
        if number is None:
            writer.close()
            return
        try:
            kernel = await asyncio.open_connection("127.0.0.1", self.ports[PORTS[number]])
        except OSError:
            writer.close()
            return
        await joined((reader, writer), kernel)

    async def number(self, reader: "StreamReader", writer: "StreamWriter") -> "int | None":
        """The requested port; None: the answer is wrong or late, or too many clients wait."""
        if self.waiting >= WAITING:
            return None
        self.waiting += 1
        try:
            nonce = os.urandom(NONCE)
            writer.write(nonce)
            answer = await asyncio.wait_for(reader.readexactly(1 + NONCE), WAIT_S)
        except (OSError, asyncio.TimeoutError, asyncio.IncompleteReadError):
            return None
        finally:
            self.waiting -= 1
        digest = hmac.new(self.key, nonce + answer[:1], hashlib.sha256).digest()
        return answer[0] if hmac.compare_digest(digest, answer[1:]) and answer[0] < len(PORTS) else None


async def ended(stream: "StreamReader") -> None:
    """Return once standard input is closed: the process that started this has ended."""
    while await stream.read(1 << 12):
        pass


async def main(job: "dict[str, Any]") -> int:
    """Run the kernel to its end; returns its exit status."""
    ports = free_ports()
    handle, file = tempfile.mkstemp(prefix="kernel-", suffix=".json")  # readable by this user alone
    with os.fdopen(handle, "w") as stream:
        json.dump({**ports, "ip": "127.0.0.1", "transport": "tcp", "signature_scheme": "hmac-sha256",
                   "key": job["key"]}, stream)  # fmt: skip
    words = [sys.executable, "-Xfrozen_modules=off", "-m", "ipykernel_launcher", "-f", file]
    kernel = await asyncio.create_subprocess_exec(*words, stdin=asyncio.subprocess.DEVNULL)
    server = await asyncio.start_server(Door(job["key"], ports).enter, address_towards(job["from"]), 0)
    print("stackyard-kernel", *server.sockets[0].getsockname()[:2], flush=True)
    reader = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    left, over = asyncio.ensure_future(ended(reader)), asyncio.ensure_future(kernel.wait())
    try:
        await asyncio.wait({left, over}, return_when=asyncio.FIRST_COMPLETED)
        if not over.done():
            kernel.terminate()
            with suppress(asyncio.TimeoutError):
                await asyncio.wait_for(asyncio.shield(over), WAIT_S)
        if not over.done():
            kernel.kill()
        return await over
    finally:
        os.unlink(file)  # noqa: PTH108


if "job" in globals():
    sys.exit(asyncio.run(main(globals()["job"])) and 1)
