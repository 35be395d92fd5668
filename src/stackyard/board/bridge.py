"""A script that starts a tool in a network namespace of its own, and bridges a UNIX socket to its port there.

    python bridge.py SOCKET PORT COMMAND...

A port of 127.0.0.1 is open to every account of a node. That of a tool in its own network namespace (user_namespaces(7))
can only be reached from within it, and from outside through SOCKET. It has no network but its loopback device.

SOCKET is made once the tool answers. The exit status is the tool's. Without a namespace standard error has `REFUSED`
and the reason.
Standard library only.
"""

import asyncio
import ctypes
import fcntl
import os
import signal
import socket
import struct
import sys
from contextlib import closing, suppress

REFUSED = "no network of its own: "
_NEWUSER, _NEWNET = 0x10000000, 0x40000000
_PR_SET_PDEATHSIG, _SIOCSIFFLAGS, _IFF_UP = 1, 0x8914, 0x1
_LOOPBACK = "127.0.0.1"
_libc = ctypes.CDLL(None, use_errno=True)


def separate() -> None:
    """Leave the node's network. Root needs no user namespace for it, and keeps its rights on files.

    Raises:
        OSError: the kernel or the machine's policy refuses.
    """
    uid, gid = os.getuid(), os.getgid()
    if _libc.unshare(_NEWNET) != 0:
        if _libc.unshare(_NEWUSER | _NEWNET) != 0:
            raise OSError(ctypes.get_errno(), f"user and network namespace: {os.strerror(ctypes.get_errno())}")
        for name, text in (("setgroups", "deny"), ("uid_map", f"{uid} {uid} 1"), ("gid_map", f"{gid} {gid} 1")):
            with open(f"/proc/self/{name}", "w", encoding="ascii") as stream:  # noqa: PTH123 - quick
                stream.write(text)
    with socket.socket() as device:
        fcntl.ioctl(device, _SIOCSIFFLAGS, struct.pack("16sh14x", b"lo", _IFF_UP))


def end_with_parent() -> None:
    """Have this process killed when its parent ends; a new user namespace forgets it."""
    _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


async def pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Copy one direction to its end, and end it there too. Raises OSError: a side is gone."""
    while data := await reader.read(1 << 16):
        writer.write(data)
        await writer.drain()
    writer.write_eof()


async def serve(path: str, port: int, command: list[str]) -> int:
    """Run the tool, and once it answers the socket; returns the tool's exit status."""

    async def bridge(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError), closing(writer):  # OSError: the tool does not answer, or a side is gone
            there, to_there = await asyncio.open_connection(_LOOPBACK, port)
            with closing(to_there):
                await asyncio.gather(pump(reader, to_there), pump(there, writer))

    tool = await asyncio.create_subprocess_exec(*command, preexec_fn=end_with_parent)
    ended = asyncio.ensure_future(tool.wait())
    while not ended.done():
        try:
            (await asyncio.open_connection(_LOOPBACK, port))[1].close()
            os.umask(0o177)
            await asyncio.start_unix_server(bridge, path)
            break
        except OSError:
            await asyncio.wait([ended], timeout=0.1)
    code = await ended
    return code if code >= 0 else 128 - code


def main() -> None:
    """Leave the network, start the tool, serve."""
    try:
        separate()
    except OSError as error:
        sys.exit(f"{REFUSED}{error.strerror}")
    end_with_parent()
    sys.exit(asyncio.run(serve(sys.argv[1], int(sys.argv[2]), sys.argv[3:])))


if __name__ == "__main__":
    main()
