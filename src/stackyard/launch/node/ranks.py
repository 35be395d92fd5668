"""One rank as its agent sees it: its shim, processes and log.

Part of the agent: any Python from 3.6 on, standard library alone, few imports (see `stackyard.launch.node.agent`).
"""
# ruff: noqa: PTH116, PTH123

import contextlib
import os
import time

from stackyard.launch.node.processes import alive, catches, children, descendants, send_signal, stat

TAIL_LINES = 40
"""Lines of a failed rank's log that go to the hub."""
READ_MOST = 1 << 18
"""Bytes read from a log at a time, and kept for the hub at most before reading goes on."""


class Rank:
    """One task of this node: its shim, the processes below it, and its log."""

    def __init__(self, task: "int", local: "int", pid: "int", log: "str", streamed: "bool") -> "None":
        self.task, self.local, self.pid, self.log, self.streamed = task, local, pid, log, streamed
        status = stat(pid)
        self.born = status[2] if status else 0
        self.code = None  # type: int | None
        self.below = {}  # type: dict[int, int]
        self.size = self.told_size = self.read_to = 0
        self.rest, self.rest_since = b"", 0.0

    def look(self) -> "None":
        """Read the length of the log."""
        with contextlib.suppress(OSError):
            self.size = os.stat(self.log).st_size

    def text(self, everything: "bool" = False) -> "str":
        """New output in whole lines; a line without an end (a progress bar) after half a second, or at the end."""
        if self.size <= self.read_to and not self.rest:
            return ""
        if self.size > self.read_to:
            with open(self.log, "rb") as stream:
                stream.seek(self.read_to)
                new = stream.read(READ_MOST)
            self.read_to += len(new)
            self.rest, self.rest_since = self.rest + new, time.monotonic()
        cut = self.rest.rfind(b"\n") + 1
        if everything or time.monotonic() - self.rest_since > 0.5 or len(self.rest) >= READ_MOST:
            cut = len(self.rest)
        text, self.rest = self.rest[:cut], self.rest[cut:]
        return text.decode("utf-8", "replace")

    def tail(self) -> "list[str]":
        """The last lines of the log."""
        try:
            with open(self.log, "rb") as stream:
                stream.seek(max(0, os.fstat(stream.fileno()).st_size - 65536))
                return stream.read().decode("utf-8", "replace").splitlines()[-TAIL_LINES:]
        except OSError:
            return []

    def shim_alive(self) -> "bool":
        """Whether the shell that the launcher started still runs."""
        return alive(self.pid, self.born)

    def refresh(self) -> "None":
        """Update the list of processes below the shim, so that they are found after the shim was killed."""
        self.below = {pid: born for pid, born in self.below.items() if alive(pid, born)}
        for pid, born in descendants(self.pid) if self.shim_alive() else ():
            self.below[pid] = born

    def tell(self, number: "int") -> "int":
        """Send a warning such as SIGUSR1 to the topmost processes that handle it; it would kill the others."""
        queue, count = children(self.pid), 0
        while queue:
            pid = queue.pop(0)
            if catches(pid, number):
                send_signal(pid, number)
                count += 1
            else:
                queue.extend(children(pid))
        return count
