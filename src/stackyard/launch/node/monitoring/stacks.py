"""Stack traces of hanging ranks: from py-spy, or the kernel's view where py-spy is not available.

Part of the agent: any Python from 3.6 on, standard library alone, few imports (see `stackyard.launch.node.agent`).
"""
# ruff: noqa: PTH108, PTH115, PTH118, PTH119, PTH123

import os
import time

from stackyard.launch.node.machine import slurp
from stackyard.launch.node.processes import descendants
from stackyard.launch.node.ranks import Rank

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any


PY_SPY = "py-spy not found: add py-spy to the stack, or put it on PATH of the node that launches"


class Stacks:
    """Collects the stack traces of the ranks' processes without blocking the loop, a few at a time."""

    def __init__(self, directory: "str", py_spy: "str") -> "None":
        self.directory, self.py_spy = directory, py_spy
        self.waiting = []  # type: list[tuple[Rank, int]]
        self.running = []  # type: list[tuple[Rank, int, Any, str, float]]
        self.parts = {}  # type: dict[int, list[str]]
        self.open = {}  # type: dict[int, int]

    def begin(self, rank: "Rank") -> "None":
        """Start with all processes of one rank."""
        pids = [pid for pid, _ in descendants(rank.pid)][:64]
        self.parts[rank.task], self.open[rank.task] = [], max(1, len(pids))
        self.waiting.extend((rank, pid) for pid in pids or [rank.pid])

    def step(self) -> "Iterator[tuple[int, str]]":
        """Make progress without blocking; yields (task, text) of every completed rank."""
        while self.waiting and len(self.running) < 4:
            rank, pid = self.waiting.pop(0)
            if self.py_spy and is_python(pid):
                self.running.append(self._spy(rank, pid))
            else:  # the kernel's stack of an interpreter says nothing about its program
                text = kernel_view(pid, PY_SPY, frames=False) if is_python(pid) else kernel_view(pid, "not Python")
                self.parts[rank.task].append(text)
                self.open[rank.task] -= 1
        for one in list(self.running):
            rank, pid, process, path, deadline = one
            if process.poll() is None and time.monotonic() < deadline:
                continue
            if process.poll() is None:
                process.kill()
            self.running.remove(one)
            self.open[rank.task] -= 1
            self.parts[rank.task].append(self._read(pid, process.wait(), path))
        for task in [task for task, count in self.open.items() if count == 0]:
            del self.open[task]
            yield task, "\n".join(self.parts.pop(task))

    def _spy(self, rank: "Rank", pid: "int") -> "tuple[Rank, int, Any, str, float]":
        import subprocess

        path = os.path.join(self.directory, f"stacks.{pid}")
        with open(path, "wb") as out:
            process = subprocess.Popen(
                [self.py_spy, "dump", "--pid", str(pid)], stdin=subprocess.DEVNULL, stdout=out, stderr=out
            )
        return rank, pid, process, path, time.monotonic() + 20

    def _read(self, pid: "int", code: "int", path: "str") -> "str":
        text = slurp(path, 1 << 20)
        os.unlink(path)
        return text if code == 0 else kernel_view(pid, "py-spy: " + " ".join(text.split()))


def is_python(pid: "int") -> "bool":
    """Whether a process runs a Python interpreter."""
    try:
        return os.path.basename(os.readlink(f"/proc/{pid}/exe")).startswith("python")
    except OSError:
        return False


def kernel_view(pid: "int", why: "str", frames: "bool" = True) -> "str":
    """The kernel's view of a process (state, memory, kernel stack), and why it has no stack trace. Read-only."""
    command = slurp(f"/proc/{pid}/cmdline").replace("\0", " ").strip()
    status = [x for x in slurp(f"/proc/{pid}/status").splitlines() if x.startswith(("State", "Threads", "VmRSS"))]
    stack = slurp(f"/proc/{pid}/stack").strip() or "(kernel stack not readable)"
    waits = slurp(f"/proc/{pid}/wchan").strip() or "?"
    head = f"Process {pid}: {command}\n(no stack trace: {why})"
    return "\n".join([head, *status, f"waits in: {waits}", *([stack] if frames else []), ""])
