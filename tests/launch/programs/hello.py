"""A job: every rank writes down who it is and meets rank 0 over TCP.

hello.py            ends well
hello.py 3 1        rank 1 ends with code 3
hello.py wait       all ranks stay until they are ended
hello.py again      the first time all ranks stay until SIGUSR1, and end with code 5; then they end well
"""

import json
import os
import pathlib
import signal
import socket
import sys
import time

NAMES = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "NODE_RANK", "MASTER_ADDR", "MASTER_PORT",
         "OMP_NUM_THREADS", "STACKYARD_HOST")  # fmt: skip


def main() -> int:
    me = {name: os.environ[name] for name in NAMES}
    me["host"] = socket.gethostname()
    rank, size = int(me["RANK"]), int(me["WORLD_SIZE"])
    me["met"] = meet(rank, size, (me["MASTER_ADDR"], int(me["MASTER_PORT"])))
    directory = pathlib.Path(os.environ["STACKYARD_STEP"]) / "ranks"
    directory.mkdir(exist_ok=True)
    (directory / f"{rank:03d}.json").write_text(json.dumps(me))
    if rank == 0:
        print(f"rank 0 met {', '.join(sorted(me['met']))}", flush=True)
    marker = pathlib.Path("stopped-once")
    if sys.argv[1:] == ["again"] and not marker.exists():
        signal.signal(signal.SIGUSR1, lambda *_: (marker.touch(), sys.exit(5)))
        time.sleep(600)
    if sys.argv[1:] == ["wait"]:
        time.sleep(600)
    if len(sys.argv) > 2 and rank == int(sys.argv[2]):
        print(f"rank {rank} gives up", flush=True)
        return int(sys.argv[1])
    return 0


def meet(rank, size, address):
    """Rank 0 hears from all others; they wait until it is there."""
    if rank:
        until = time.monotonic() + 240
        while True:
            try:
                with socket.create_connection(address, 5) as stream:
                    stream.sendall(f"{rank} on {socket.gethostname()}\n".encode())
                    return stream.recv(100).decode().split("\n")[:1]
            except ConnectionRefusedError:
                if time.monotonic() > until:
                    raise
                time.sleep(0.02)
    heard, streams = [], []
    with socket.create_server(address) as server:
        server.settimeout(240)
        while len(heard) < size - 1:
            stream, _ = server.accept()
            streams.append(stream)
            heard.append(stream.makefile().readline().strip())
    for stream in streams:
        stream.sendall(b"all are here\n")
        stream.close()
    return heard


sys.exit(main())
