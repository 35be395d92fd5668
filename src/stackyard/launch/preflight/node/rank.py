"""One rank of the preflight: connects to the coordinator and executes its commands. ``start.py <step directory>``."""

from __future__ import annotations

import importlib.util
import json
import os
import queue
import resource
import socket
import sys
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from ...node import sockets
from ...node.handshake import introduce
from ...node.messages import Connection
from . import collective, probe, tcp
from .groups import bracketed

GONE = 74
OTHER_FILES = 256
"""What rank 0 may open besides one connection per rank: libraries, strangers' connections."""


class Identity:
    """The identity of this rank, as set by the shim. Raises KeyError, ValueError for an incomplete set."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        self.rank, self.size = int(environ["RANK"]), int(environ["WORLD_SIZE"])
        self.local_rank = int(environ["LOCAL_RANK"])
        self.address, self.port = environ["MASTER_ADDR"], int(environ["MASTER_PORT"])
        self.host = os.uname().nodename


class Member:
    """The rank's end of the connection, with a thread that receives commands.

    The thread notices a lost connection even while this rank hangs in a collective operation, and then exits at once.
    """

    def __init__(self, who: Identity, secret: str, limit_s: float, stop: Path) -> None:
        self.who = who
        self.connection = Connection(_connect(who, limit_s, stop))
        why = introduce(self.connection, secret, limit_s)
        if why:
            raise SystemExit(f"preflight: what listens at {who.address}:{who.port} is not rank 0: {why}")
        self.connection.socket.settimeout(None)
        self._sending = threading.Lock()
        self.commands: queue.Queue[dict[str, Any]] = queue.Queue()
        self.torch: Any = None
        self.port: list[socket.socket] = []
        self.held: dict[str, socket.socket] = {}
        self.send({"hello": {"rank": who.rank, "size": who.size, "local_rank": who.local_rank, "host": who.host,
                             "pid": os.getpid(), "python": sys.version.split()[0]}})  # fmt: skip
        threading.Thread(target=self._read, daemon=True).start()

    def send(self, message: dict[str, Any]) -> None:
        """Send one message to the coordinator."""
        with self._sending:
            self.connection.send(message)

    def serve(self) -> int:
        """Carry out commands until ``end``; returns its code as the rank's exit status."""
        while True:
            command = self.commands.get()
            if command["do"] == "end":
                return int(command["code"])
            try:
                self.send({"ok": _ACTIONS[command["do"]](self, command)})
            except Exception as error:
                text = str(error).strip() or type(error).__name__
                print(f"{command['do']}: {text}", file=sys.stderr, flush=True)
                self.send({"error": f"{type(error).__name__}: {text.splitlines()[0][:300]}"})

    def _read(self) -> None:
        """Receive commands until ``end``, after which rank 0 may close the connection."""
        while True:
            messages = self.connection.receive()
            if messages is None:
                os._exit(GONE)
            for command in messages:
                self._receive(command)
                if command["do"] == "end":
                    return

    def _receive(self, command: dict[str, Any]) -> None:
        """Pass a command to the main thread; urgent commands are carried out at once."""
        if command["do"] == "clock":
            self.send({"ok": {"time": time.time()}})
        elif command["do"] == "end" and command.get("now"):
            os._exit(int(command["code"]))
        else:
            self.commands.put(command)


def _connect(who: Identity, limit_s: float, stop: Path) -> socket.socket:
    """Try to connect until rank 0 answers, the time is up, or the file `stop` appears."""
    target = f"{bracketed(who.address)}:{who.port}"
    reply = sockets.connect([target], time.monotonic() + limit_s, lambda: not stop.exists())
    if reply is None:
        why = "stopped" if stop.exists() else f"timed out after {limit_s:g} s connecting to rank 0 at {target}"
        raise SystemExit(f"preflight: {why}")
    stream, _ = reply
    stream.setblocking(True)
    stream.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    return stream


def _facts(member: Member, command: dict[str, Any]) -> dict[str, Any]:
    return probe.facts()


def _libraries(member: Member, command: dict[str, Any]) -> dict[str, Any]:
    """Import torch; a failed import is a fact, not an error."""
    began, mpi4py = time.perf_counter(), importlib.util.find_spec("mpi4py") is not None
    try:
        import torch  # type: ignore[import-not-found,unused-ignore]
    except Exception as error:
        return {"torch": "", "why": f"{type(error).__name__}: {error}", "gpus": 0, "mpi4py": mpi4py}
    member.torch = torch
    gpus = torch.cuda.device_count() if torch.cuda.is_available() else 0
    return {
        "torch": str(torch.__version__),
        "seconds": time.perf_counter() - began,
        "gpus": gpus,
        "mpi4py": mpi4py,
        "gloo": torch.distributed.is_available() and torch.distributed.is_gloo_available()
        if hasattr(torch.distributed, "is_gloo_available")
        else torch.distributed.is_available(),
        "nccl": torch.distributed.is_available() and torch.distributed.is_nccl_available(),
    }


def _speed(member: Member, command: dict[str, Any]) -> dict[str, Any]:
    seconds = float(command["seconds"])
    rows = [*probe.cpu_speed(member.torch, seconds), probe.memory_speed(seconds)]
    clock = probe.clock_ghz()
    if clock:
        rows.append({"name": "clock", "value": clock, "unit": "GHz"})
    return {"measured": rows}


def _gpu(member: Member, command: dict[str, Any]) -> dict[str, Any]:
    device = device_of(member.torch.cuda.device_count(), member.who.local_rank, os.environ)
    return {"measured": [probe.gpu_speed(member.torch, device, float(command["seconds"]))]}


def device_of(visible: int, local_rank: int, environ: Mapping[str, str]) -> int:
    """The index of a rank's own GPU among the visible ones: set by the shim, the only one, or by its local rank.

    Raises:
        ValueError: none of the visible GPUs is its own.
    """
    said = environ.get("STACKYARD_DEVICE", "")
    if said.isdigit() and int(said) < visible:
        return int(said)
    if visible == 1:
        return 0
    if local_rank < visible:
        return local_rank
    raise ValueError(f"GPU mismatch: local rank {local_rank} sees {visible} GPUs, none of them its own")


def _port(member: Member, command: dict[str, Any]) -> dict[str, Any]:
    """Hold a free port, as agents do for MASTER_PORT: torch can listen there, and no other process is given it."""
    port, member.port = sockets.hold_port()
    return {"port": port}


def _allreduce(member: Member, command: dict[str, Any]) -> dict[str, Any]:
    spec = dict(command["task"])
    if spec.pop("gpu"):
        spec["device"] = device_of(member.torch.cuda.device_count(), member.who.local_rank, os.environ)
    task = collective.Task(**spec)

    def at(text: str) -> None:
        member.send({"at": text})

    if task.backend == "mpi":
        return collective.over_mpi(task, at)
    return collective.over_torch(member.torch, task, at)


def _listen(member: Member, command: dict[str, Any]) -> dict[str, Any]:
    member.held["tcp"] = tcp.listen()
    return {"port": member.held["tcp"].getsockname()[1]}


def _receive(member: Member, command: dict[str, Any]) -> dict[str, Any]:
    return tcp.receive(member.held.pop("tcp"), float(command["limit_s"]))


def _stream(member: Member, command: dict[str, Any]) -> dict[str, Any]:
    return tcp.stream(command["address"], int(command["port"]), float(command["seconds"]), float(command["limit_s"]))


_ACTIONS: dict[str, Callable[[Member, dict[str, Any]], dict[str, Any]]] = {
    "facts": _facts, "libraries": _libraries, "speed": _speed, "gpu": _gpu, "port": _port,
    "allreduce": _allreduce, "listen": _listen, "receive": _receive, "stream": _stream,
}  # fmt: skip


def main() -> None:
    """Run this rank, and in rank 0 the coordinator. The exit status is 0 when all stages were run."""
    directory = Path(sys.argv[1])
    spec = json.loads((directory / "spec.json").read_text(encoding="utf-8"))
    try:
        who = Identity(os.environ)
    except (KeyError, ValueError) as error:
        raise SystemExit(f"preflight: the launcher has not set the identity of this rank: {error!r}") from error
    if who.rank == 0:
        _many_files(who.size)
        from . import coordinator

        threading.Thread(
            target=coordinator.run, args=(directory, spec, who.address, who.port, who.size), daemon=True
        ).start()
    code = Member(who, spec["secret"], float(spec["limits"]["start"]), directory / "stop").serve()
    sys.stdout.flush()
    sys.exit(code)


def _many_files(ranks: int) -> None:
    """Raise the limit of open files to the hard limit: there is one connection per rank.

    Raises:
        SystemExit: the hard limit is too low for so many ranks.
    """
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    if hard != resource.RLIM_INFINITY and hard < ranks + OTHER_FILES:
        raise SystemExit(
            f"preflight: too many open files: {ranks} ranks need {ranks + OTHER_FILES} on the node of rank 0, where "
            f"the hard limit is {hard}\nhint: raise it there (ulimit -Hn), or check fewer ranks"
        )
