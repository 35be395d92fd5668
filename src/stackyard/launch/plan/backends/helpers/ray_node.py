"""One node of a Ray cluster: ``python ray_node.py --cpus=C --gpus=G --nodes=N -- PROGRAM ...``, run on every node.

Node 0 starts Ray's head on MASTER_PORT and listens on STACKYARD_PORT_1; every other node connects there, receives a
message when the head is up, joins, and stays until a message that the program has exited. No delay is fixed,
and no ``ray stop``, which would also stop the Ray of other jobs on the node. Run by the stack's python; Ray is
imported only on node 0, to count the joined nodes.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from types import FrameType

JOIN_S = 120.0
"""Seconds within which all nodes must join."""
STOP_S = 15.0
"""Seconds that Ray's processes get to exit."""


class Node:
    """This node's Ray processes and temporary directory (a short path: socket paths are limited to 107 bytes).

    Ray's workers leave the session of ``ray start``, so all have a variable that identifies them.
    """

    def __init__(self, cpus: int, gpus: int) -> None:
        self.resources = [f"--num-cpus={cpus}", f"--num-gpus={gpus}", "--disable-usage-stats", "--block"]
        self.directory = tempfile.mkdtemp(prefix="ray-", dir=os.environ.get("STACKYARD_TMP") or "/tmp")
        self.mark = f"STACKYARD_RAY_NODE={socket.gethostname()}:{os.getpid()}:{time.time_ns()}"
        self.directories = [self.directory]
        self.process: subprocess.Popen[bytes] | None = None

    def start(self, *options: str) -> None:
        """Start ``ray start --block``; its output goes to a file that is shown if it fails."""
        ray = Path(sys.executable).parent / "ray"
        words = [str(ray) if ray.exists() else "ray", "start", *options, *self.resources]
        name, value = self.mark.split("=", 1)
        self.log = Path(self.directory, "start.log").open("w+b")  # noqa: SIM115
        self.process = subprocess.Popen(
            words, stdin=subprocess.DEVNULL, stdout=self.log, stderr=self.log, start_new_session=True,
            env={**os.environ, name: value},
        )  # fmt: skip

    def check(self) -> None:
        """Raise RuntimeError if Ray has exited."""
        if self.process is not None and self.process.poll() is not None:
            self.log.seek(0)
            said = self.log.read().decode("utf-8", "replace").strip()
            raise RuntimeError(f"ray start exited with status {self.process.returncode}:\n{said}")

    def stop(self) -> None:
        """Terminate Ray on this node and remove its files."""
        if self.process is not None:
            self.process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(STOP_S)
            end = time.monotonic() + STOP_S
            while (left := marked(self.mark.encode())) and time.monotonic() < end:
                for pid in left:
                    with contextlib.suppress(OSError):
                        os.kill(pid, signal.SIGKILL)
                self.process.poll()
                time.sleep(0.05)
        for directory in self.directories:
            shutil.rmtree(directory, ignore_errors=True)


def marked(mark: bytes) -> list[int]:
    """This user's running processes with a variable in their environment."""
    pids = []
    for directory in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            if directory.name.isdigit() and mark in (directory / "environ").read_bytes():
                pids.append(int(directory.name))
    return pids


def until(met: Callable[[], bool], node: Node, what: str) -> None:
    """Poll every 50 ms until a condition is met; raise RuntimeError after `JOIN_S` or if Ray on this node exits."""
    end = time.monotonic() + JOIN_S
    while not met():
        node.check()
        if time.monotonic() > end:
            raise RuntimeError(f"{what} within {JOIN_S:g} s")
        time.sleep(0.05)


def head(node: Node, nodes: int, program: list[str], address: str, port: int, control: int) -> int:
    """Node 0: start Ray's head, wait for the others, run the program, notify the others. Returns its exit status."""
    listener = socket.create_server(("", control), backlog=nodes)
    listener.settimeout(0.05)
    node.start("--head", f"--port={port}", f"--node-ip-address={address}", f"--temp-dir={node.directory}",
               "--include-dashboard=false")  # fmt: skip
    until(lambda: _answers(address, port), node, f"Ray's head did not answer on {address}:{port}")
    others: list[socket.socket] = []
    try:
        until(lambda: len(_accept(listener, others)) == nodes - 1, node, f"not all of {nodes} nodes came")
        for other in others:
            other.sendall(f"join {node.directory}\n".encode())
        _wait_joined(node, nodes, f"{address}:{port}")
        print(f"stackyard: Ray runs on {nodes} nodes at {address}:{port}", flush=True)
        return _drive(node, program, f"{address}:{port}", others)
    finally:
        for other in others:
            _tell_end(other)


def _tell_end(other: socket.socket) -> None:
    with contextlib.suppress(OSError):
        other.setblocking(True)
        other.sendall(b"end\n")
        other.close()


def _answers(address: str, port: int) -> bool:
    try:
        socket.create_connection((address, port), 1).close()
    except OSError:
        return False
    return True


def _accept(listener: socket.socket, others: list[socket.socket]) -> list[socket.socket]:
    with contextlib.suppress(OSError):
        others.append(listener.accept()[0])
    return others


def _wait_joined(node: Node, nodes: int, address: str) -> None:
    import ray  # type: ignore[import-not-found]

    ray.init(address=address, logging_level="ERROR", log_to_driver=False)
    until(lambda: sum(bool(n["Alive"]) for n in ray.nodes()) >= nodes, node, f"not all of {nodes} nodes joined Ray")
    ray.shutdown()


def _drive(node: Node, program: list[str], address: str, others: list[socket.socket]) -> int:
    """Run the program; terminate it if Ray exits on this or another node."""
    driver = subprocess.Popen(program, env={**os.environ, "RAY_ADDRESS": address}, stdin=subprocess.DEVNULL)

    def forward(number: int, _: FrameType | None) -> None:
        driver.send_signal(number)

    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1, signal.SIGUSR2):
        signal.signal(number, forward)
    for other in others:
        other.setblocking(False)
    while True:
        try:
            code = driver.wait(0.2)
            return code if code >= 0 else 128 - code
        except subprocess.TimeoutExpired:
            pass
        try:
            node.check()
            if any(_left(other) for other in others):
                raise RuntimeError("a node left the Ray cluster")
        except RuntimeError:
            driver.kill()
            driver.wait()
            raise


def _left(other: socket.socket) -> bool:
    try:
        return not other.recv(1)
    except BlockingIOError:
        return False
    except OSError:
        return True


def worker(node: Node, address: str, port: int, control: int) -> int:
    """Every other node: join and leave on node 0's message. 0, or 1 if the connection is lost."""
    sockets: list[socket.socket] = []

    def connected() -> bool:
        try:
            sockets.append(socket.create_connection((address, control), 5))
        except OSError:
            return False
        return True

    until(connected, node, f"node 0 did not answer on {address}:{control}")
    line = sockets[0]
    line.settimeout(JOIN_S)
    word, _, directory = _word(line).partition(" ")
    if word != "join":
        raise RuntimeError("node 0 exited before Ray started")
    node.directories.append(directory)
    own = line.getsockname()[0]
    node.start(f"--address={address}:{port}", f"--node-ip-address={own}")
    line.settimeout(0.2)
    while True:
        node.check()
        try:
            word = _word(line)
        except OSError:
            continue
        if word == "end":
            return 0
        raise RuntimeError("lost connection to node 0")


def _word(line: socket.socket) -> str:
    try:
        return line.recv(4096).decode().strip()
    except ConnectionError:
        return ""


def main(arguments: list[str]) -> int:
    """Run this node's part; returns the program's exit status on node 0, else 0 or 1."""
    cut = arguments.index("--")
    parser = argparse.ArgumentParser()
    for name in ("--cpus", "--gpus", "--nodes"):
        parser.add_argument(name, type=int, required=True)
    options = parser.parse_args(arguments[:cut])
    program = arguments[cut + 1 :]
    address, port = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
    control = int(os.environ["STACKYARD_PORT_1"])
    node = Node(options.cpus, options.gpus)
    signal.signal(signal.SIGTERM, _leave)
    try:
        if os.environ["NODE_RANK"] == "0":
            return head(node, options.nodes, program, address, port, control)
        return worker(node, address, port, control)
    except RuntimeError as error:
        print(f"stackyard: {error}", file=sys.stderr, flush=True)
        return 1
    finally:
        node.stop()


def _leave(number: int, _: FrameType | None) -> None:
    raise SystemExit(128 + number)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
