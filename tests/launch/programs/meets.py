"""A rank that is connected to others in one way, or not at all; then it sleeps: meets.py HOW [SECONDS [PORT]]."""

import os
import socket
import sys
import time

rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
port, kept = int(os.environ["MASTER_PORT"]), []


def serve(family: int, address: str, number: int, count: int) -> None:
    here = socket.socket(family)
    here.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    if family == socket.AF_INET6:
        here.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, int(address == "::1"))
    here.bind((address, number))
    here.listen(64)
    kept.extend(here.accept()[0] for _ in range(count))


def connect(address: str, number: int) -> None:
    for _ in range(1200):
        try:
            kept.append(socket.create_connection((address, number)))
            return
        except OSError:
            time.sleep(0.05)
    sys.exit("not reached")


def meet(family: int = socket.AF_INET, bound: str = "", address: str = "127.0.0.1") -> None:
    serve(family, bound, port, size - 1) if rank == 0 else connect(address, port)


def fork() -> None:
    """What connects is a child of a child."""
    read, write = os.pipe()
    for _ in range(2):
        if os.fork():
            os.read(read, 1)
            time.sleep(seconds)
            os._exit(0)
    meet()
    os.write(write, b"..")


def itself() -> None:
    """A world of one: a store of its own, to which it connects."""
    here = socket.create_server(("127.0.0.1", 0))
    kept.extend((socket.create_connection(here.getsockname()), here.accept()[0], here))


def late() -> None:
    """It meets the others at its end, between two looks."""
    time.sleep(seconds)
    meet()
    if rank:
        kept.pop().close()
    else:
        for one in kept:
            one.recv(1)
            one.close()
    os._exit(0)


how, seconds = sys.argv[1], float(sys.argv[2])
if how == "store":
    meet()
elif how == "some" and rank < 2:
    size = 2
    meet()
elif how == "ipv6":
    meet(socket.AF_INET6, "::1", "::1")
elif how == "mapped":
    meet(socket.AF_INET6, "::")
elif how == "server":
    connect("127.0.0.1", int(sys.argv[3]))
elif how in ("fork", "itself", "late"):
    {"fork": fork, "itself": itself, "late": late}[how]()
time.sleep(seconds)
