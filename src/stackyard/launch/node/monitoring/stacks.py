"""Stack traces of hanging ranks: from py-spy, from the process itself, else the kernel's view of it.

Part of the agent: any Python from 3.6 on, standard library alone, few imports (see `stackyard.launch.node.agent`).
"""
# ruff: noqa: PTH108, PTH115, PTH118, PTH119, PTH123

import os
import time

from stackyard.launch.node.machine import slurp
from stackyard.launch.node.monitoring.dumps import dump_of
from stackyard.launch.node.monitoring.probes import PROCESSES_MOST, Probes
from stackyard.launch.node.processes import descendants
from stackyard.launch.node.ranks import Rank

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    from stackyard.launch.node.monitoring.dumps import Dump  # noqa: F401 - in comments

PY_SPY = (
    "the process does not write its stacks itself (python -I, launch.probe: false, or a program that uses the signal), "
    "and py-spy not found: add py-spy to the stack, or put it on PATH of the node that launches"
)
NONE_CAME = (
    "the process wrote none: it uses the signal itself (launch.probe_signal), or its kernel call cannot be interrupted"
)
SPIES_MOST = 4
FEW = 32
"""Above so many processes of this node, py-spy would take longer than the hub waits."""
TEXT_MOST = 4 << 20


class Stacks:
    """Collects the stack traces of the ranks' processes without blocking the loop, and where they are in collectives.

    Args:
        directory: the node's own; `number`: the signal on which processes with the probe write their stacks; 0: none.
        recorder: where the probes write PyTorch's flight recorder, with ``{rank}``.
    """

    def __init__(self, directory: "str", py_spy: "str", number: "int", probes: "Probes", recorder: "str") -> "None":
        self.directory, self.py_spy, self.number = directory, py_spy, number
        self.probes, self.recorder = probes, recorder
        self.waiting = []  # type: list[tuple[Rank, int]]
        self.running = []  # type: list[tuple[Rank, int, Any, str, float]]
        self.dumps = {}  # type: dict[tuple[int, int], tuple[Rank, Dump]]
        self.failed = {}  # type: dict[int, str]
        self.parts = {}  # type: dict[int, list[str]]
        self.open = {}  # type: dict[int, int]
        self.recorders = {}  # type: dict[int, list[dict[str, Any]]]

    def begin(self, rank: "Rank") -> "None":
        """Start with all processes of one rank."""
        pids = [pid for pid, _ in descendants(rank.pid)][:PROCESSES_MOST]
        self.parts[rank.task], self.open[rank.task] = [], max(1, len(pids)) + 1
        self.waiting.extend((rank, pid) for pid in pids or [rank.pid])
        self.probes.ask(("recorder", rank.task), [rank], {"do": "recorder", "output": self.recorder})

    def recorded(self, task: "int", answers: "list[dict[str, Any]]") -> "None":
        """The answers to the request for the flight recorders of a rank."""
        if task in self.open:
            self.recorders[task] = [one["answer"] for one in answers if one["answer"].get("ok")]
            self.open[task] -= 1

    def step(self) -> "Iterator[dict[str, Any]]":
        """Make progress without blocking; yields the message about every completed rank."""
        few = len(self.waiting) <= FEW
        for rank, pid in self.waiting[:]:
            self._begin(rank, pid, few)
        for one in list(self.running):
            self._look(one)
        for file, (rank, dump) in list(self.dumps.items()):
            text = dump.text(time.monotonic())
            if text is not None:
                dump.close()
                del self.dumps[file]
                self._add(rank, f"{head(dump.pid)}\n{text}\n" if text else kernel_view(dump.pid, NONE_CAME))
        for task in [task for task, count in self.open.items() if count == 0]:
            del self.open[task]
            text = "\n".join(self.parts.pop(task))[:TEXT_MOST]
            yield {"task": task, "text": text, "recorders": self.recorders.pop(task, [])}

    def _begin(self, rank: "Rank", pid: "int", few: "bool") -> "None":
        """Begin with a process, unless too many are at work already, or one with the same file."""
        if self.py_spy and is_python(pid) and few and pid not in self.failed:
            if len(self.running) < SPIES_MOST:
                self.waiting.remove((rank, pid))
                self.running.append(self._spy(rank, pid))
            return
        why = self.failed.get(pid, PY_SPY if is_python(pid) else "not Python")
        dump = dump_of(pid, self.number, self.directory)
        if dump is not None and dump.file in self.dumps:
            dump.close()
            return
        self.waiting.remove((rank, pid))
        if dump is not None:
            dump.start()
            self.dumps[dump.file] = rank, dump
        else:  # the kernel's stack of an interpreter says nothing about its program
            self._add(rank, kernel_view(pid, why, frames=why == "not Python"))

    def _add(self, rank: "Rank", text: "str") -> "None":
        self.parts[rank.task].append(text)
        self.open[rank.task] -= 1

    def _spy(self, rank: "Rank", pid: "int") -> "tuple[Rank, int, Any, str, float]":
        import subprocess

        path = os.path.join(self.directory, f"stacks.{pid}")
        with open(path, "wb") as out:
            process = subprocess.Popen(
                [self.py_spy, "dump", "--pid", str(pid)], stdin=subprocess.DEVNULL, stdout=out, stderr=out
            )
        return rank, pid, process, path, time.monotonic() + 20

    def _look(self, one: "tuple[Rank, int, Any, str, float]") -> "None":
        rank, pid, process, path, deadline = one
        if process.poll() is None and time.monotonic() < deadline:
            return
        if process.poll() is None:
            process.kill()
        self.running.remove(one)
        code, text = process.wait(), slurp(path, 1 << 20)
        os.unlink(path)
        if code == 0:
            self._add(rank, text)
        else:  # ptrace(2) is not permitted, or a Python that it does not know
            self.failed[pid] = "py-spy: " + " ".join(text.split())
            self.waiting.append((rank, pid))


def is_python(pid: "int") -> "bool":
    """Whether a process runs a Python interpreter."""
    try:
        return os.path.basename(os.readlink(f"/proc/{pid}/exe")).startswith("python")
    except OSError:
        return False


def head(pid: "int") -> "str":
    """The line above the stacks of a process, as py-spy writes it."""
    command = slurp(f"/proc/{pid}/cmdline").replace("\0", " ").strip()
    return f"Process {pid}: {command}"


def kernel_view(pid: "int", why: "str", frames: "bool" = True) -> "str":
    """The kernel's view of a process (state, memory, kernel stack), and why it has no stack trace. Read-only."""
    status = [x for x in slurp(f"/proc/{pid}/status").splitlines() if x.startswith(("State", "Threads", "VmRSS"))]
    stack = slurp(f"/proc/{pid}/stack").strip() or "(kernel stack not readable)"
    waits = slurp(f"/proc/{pid}/wchan").strip() or "?"
    top = f"{head(pid)}\n(no stack trace: {why})"
    return "\n".join([top, *status, f"waits in: {waits}", *([stack] if frames else []), ""])
