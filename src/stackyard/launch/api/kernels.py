"""A kernel on a compute node, on Jupyter's side: starts ``stackyard launch`` and relays the kernel's ports.

Jupyter connects to five ports of this machine, which it has chosen. The kernel listens on loopback ports of its node.
Each connection is relayed by one of our own, which proves knowledge of Jupyter's key (`node.kernel`). The key reaches
the node through the launch's standard input, over its own connections; it is never written to a file. When Jupyter ends
this process, the launch's standard input is closed, which ends the kernel.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import json
import signal
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from stackyard.core.errors import InputError, StackyardError, cause
from stackyard.launch.node import kernel
from stackyard.launch.node.interfaces import offered
from stackyard.launch.node.kernel import NONCE, PORTS, joined
from stackyard.launch.node.machine import addresses

_BOOT = "import json, sys; job = json.loads(sys.stdin.readline()); exec(compile(job['code'], 'kernel', 'exec'))"
_READY, _PIECE = b"stackyard-kernel ", 1 << 16


def run(connection_file: Path, launch: Sequence[str], interface: str = "", python: str = "python") -> int:
    """Run a kernel to its end; returns the exit status of the launch.

    Args:
        connection_file: Jupyter's, with the ports of this machine and the key.
        launch: the words of ``stackyard launch`` up to its program.
        interface: the network between nodes, as in the site's `launch.interface`.
        python: the Python with the kernel, by its path on the node.

    Raises:
        InputError: the connection file is not one, or its transport is not TCP.
        StackyardError: a port is taken.
    """
    return asyncio.run(_run(_connection(connection_file), [*launch, python], interface))


def _connection(file: Path) -> dict[str, Any]:
    try:
        connection: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
        if connection["transport"] != "tcp":
            raise ValueError(f"transport {connection['transport']!r} is not tcp")
        return {
            "key": str(connection["key"]),
            "ip": str(connection["ip"]),
            **{name: int(connection[name]) for name in PORTS},
        }
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InputError(
            f"cannot read the connection file {file}: {error}", hint="Jupyter writes and names it"
        ) from error


async def _run(connection: dict[str, Any], launch: Sequence[str], interface: str) -> int:
    words = [*launch, "-c", _BOOT]
    process = await asyncio.create_subprocess_exec(
        *words, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE
    )
    assert process.stdin is not None and process.stdout is not None
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGHUP):
        loop.add_signal_handler(number, process.terminate)
    loop.add_signal_handler(signal.SIGINT, lambda: None)  # Jupyter interrupts the kernel by a message
    code = Path(kernel.__file__).read_text(encoding="utf-8")
    told = {"key": connection["key"], "code": code, "from": offered(addresses(), interface)}
    process.stdin.write(json.dumps(told).encode() + b"\n")
    try:
        await _join_until_end(process.stdout, connection)
    except BaseException:
        with suppress(ProcessLookupError):
            process.terminate()
        raise
    finally:
        with suppress(BrokenPipeError, ConnectionResetError):
            process.stdin.close()
        await process.communicate()
    return await process.wait()


async def _join_until_end(output: asyncio.StreamReader, connection: dict[str, Any]) -> None:
    """Forward the launch's messages; once one names the kernel's address, join Jupyter's ports to it."""
    servers: list[asyncio.Server] = []
    while piece := await (output.read(_PIECE) if servers else _line(output)):
        if piece.startswith(_READY) and not servers:
            _, host, port = piece.decode().split()
            servers = [await _serve(connection, index, host, int(port)) for index in range(len(PORTS))]
        else:
            sys.stderr.buffer.write(piece)
            sys.stderr.flush()
    for server in servers:
        server.close()


async def _line(stream: asyncio.StreamReader) -> bytes:
    """The next line; of one that is longer than the stream's buffer a part; empty at the end."""
    try:
        return await stream.readuntil()
    except asyncio.LimitOverrunError as error:
        return await stream.readexactly(error.consumed)
    except asyncio.IncompleteReadError as error:
        return error.partial


async def _serve(connection: dict[str, Any], index: int, host: str, port: int) -> asyncio.Server:
    """Join one of Jupyter's ports to the kernel's."""

    async def join(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            node = await asyncio.open_connection(host, port)
            nonce = await node[0].readexactly(NONCE)
        except (OSError, asyncio.IncompleteReadError):
            writer.close()  # Jupyter connects again
            return
        chosen = bytes([index])
        node[1].write(chosen + hmac.new(connection["key"].encode(), nonce + chosen, hashlib.sha256).digest())
        await joined((reader, writer), node)

    try:
        return await asyncio.start_server(join, connection["ip"], connection[PORTS[index]])
    except OSError as error:
        raise StackyardError(f"cannot listen on port {connection[PORTS[index]]}: {cause(error)}") from error
