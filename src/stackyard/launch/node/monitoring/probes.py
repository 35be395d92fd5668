"""Asks the probes in the ranks' processes (`stackyard.launch.probe`) without blocking the loop.

Part of the agent: any Python from 3.6 on, standard library alone, few imports (see `stackyard.launch.node.agent`).
"""
# ruff: noqa: PTH110, PTH118

import json
import os
import socket
import time

from stackyard.launch.node.machine import slurp
from stackyard.launch.node.processes import descendants

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from typing import Any

    from stackyard.launch.node.ranks import Rank

ANSWER_S, ANSWER_MOST = 20.0, 4 << 20
PROCESSES_MOST = 64
"""Processes of one rank that are asked, or whose stacks are kept."""


class Question:
    """One request to one process."""

    def __init__(self, key: "Any", slot: "dict[str, Any]", stream: "socket.socket") -> "None":
        self.key, self.slot, self.pid, self.stream = key, slot, slot["pid"], stream
        self.until, self.text = time.monotonic() + ANSWER_S, b""

    def answer(self, now: "float") -> "dict[str, Any] | None":
        """The answer, or why there is none; None: it may still come."""
        try:
            more = self.stream.recv(1 << 16)
            self.text += more
            if more and not self.text.endswith(b"\n") and len(self.text) < ANSWER_MOST:
                return None
            return dict(json.loads(self.text.decode("utf-8", "replace")))
        except BlockingIOError:
            if now < self.until:
                return None
            return {"ok": False, "error": f"process {self.pid} has not answered within {ANSWER_S:g} s"}
        except (OSError, ValueError, TypeError) as error:
            return {"ok": False, "error": f"process {self.pid}: {error}"}


class Probes:
    """The open questions. Each has a key; its answers come together, once there are all."""

    def __init__(self, directory: "str") -> "None":
        self.directory = os.path.join(directory, "probe")
        self._open = []  # type: list[Question]
        self._answers = {}  # type: dict[Any, list[dict[str, Any]]]

    @property
    def open(self) -> "bool":
        """Whether answers are awaited, or wait to be taken."""
        return bool(self._answers)

    def ask(self, key: "Any", ranks: "Iterable[Rank]", request: "dict[str, Any]", only: "Any" = None) -> "None":
        """Send a request to the probes of these ranks' processes; `only`: to the numbers that it has for each task."""
        self._answers[key] = []
        for rank in ranks:
            for pid in [pid for pid, _ in descendants(rank.pid)][:PROCESSES_MOST]:
                if only is None or pid in only.get(str(rank.task), ()):
                    self._send(key, rank.task, pid, json.dumps(request).encode() + b"\n")

    def step(self) -> "Iterator[tuple[Any, list[dict[str, Any]]]]":
        """Make progress without blocking; yields the key and the answers of each complete question."""
        if not self._answers:
            return
        now = time.monotonic()
        for one in list(self._open):
            answer = one.answer(now)
            if answer is not None:
                one.stream.close()
                self._open.remove(one)
                one.slot["answer"] = answer
        for key in [key for key in self._answers if not any(one.key == key for one in self._open)]:
            yield key, self._answers.pop(key)

    def _send(self, key: "Any", task: "int", pid: "int", line: "bytes") -> "None":
        name = f"{own_pid(pid)}.sock"
        if not os.path.exists(os.path.join(self.directory, name)):
            return
        slot = {"task": task, "pid": pid, "answer": {}}
        self._answers[key].append(slot)
        stream = socket.socket(socket.AF_UNIX)
        stream.setblocking(False)
        directory = os.open(self.directory, os.O_RDONLY)
        try:
            stream.connect(f"/proc/self/fd/{directory}/{name}")  # a socket's address has 107 bytes
            stream.send(line)
            self._open.append(Question(key, slot, stream))
        except OSError as error:
            stream.close()
            slot["answer"] = {"ok": False, "error": f"process {pid}: {error.strerror}"}
        finally:
            os.close(directory)


def own_pid(pid: "int") -> "int":
    """The number of a process in its own namespace, as it knows itself (NSpid, Linux 4.1)."""
    lines = slurp(f"/proc/{pid}/status").splitlines()
    return next((int(line.split()[-1]) for line in lines if line.startswith("NSpid:")), pid)
