"""One plain TCP stream between two nodes, for environments without torch. It is reported as `tcp`: it tests whether and
how fast nodes reach each other, but neither Gloo nor NCCL.
"""

from __future__ import annotations

import socket
import time
from typing import Any

CHUNK = 1 << 20


def listen() -> socket.socket:
    """A listening socket on a free port, on all interfaces."""
    sock = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    sock.bind(("", 0))
    sock.listen(1)
    return sock


def receive(listener: socket.socket, limit_s: float) -> dict[str, Any]:
    """Receive all data from one peer, and reply with the number of bytes. Raises OSError, also on a timeout."""
    with listener:
        listener.settimeout(limit_s)
        peer, _ = listener.accept()
    total, buffer = 0, bytearray(CHUNK)
    with peer:
        peer.settimeout(limit_s)
        while True:
            count = peer.recv_into(buffer)
            if not count:
                break
            total += count
        peer.sendall(b"%d\n" % total)
    return {"bytes": total}


def stream(address: str, port: int, seconds: float, limit_s: float) -> dict[str, Any]:
    """Send for `seconds`; the time is measured until the peer confirms the number of bytes. Raises OSError."""
    data = bytes(CHUNK)
    with socket.create_connection((address, port), timeout=limit_s) as sock:
        start, sent = time.perf_counter(), 0
        while time.perf_counter() - start < seconds:
            sock.sendall(data)
            sent += len(data)
        sock.shutdown(socket.SHUT_WR)
        with sock.makefile("rb") as answer:
            arrived = int(answer.readline() or b"0")
        taken = time.perf_counter() - start
    if arrived != sent:
        raise OSError(f"{sent} bytes sent, {arrived} received")
    return {"bytes": sent, "seconds": taken}
