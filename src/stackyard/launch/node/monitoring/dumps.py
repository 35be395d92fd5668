"""Stacks that Python processes write themselves, by faulthandler, on the signal for which the probe has registered it.

The probe's file is unlinked: what has it open is found by the links of a process's descriptors. Forked processes share
the file of their parent, so one at a time writes to it. Part of the agent: any Python from 3.6 on, standard library
alone, few imports (see `stackyard.launch.node.agent`).
"""
# ruff: noqa: PTH115

import os
import time

from stackyard.launch.node.machine import listed
from stackyard.launch.node.processes import catches, send_signal

DUMP_S, STILL_S, DUMP_MOST = 3.0, 0.1, 1 << 18
NAME = ".stacks (deleted)"


class Dump:
    """The stacks of one process, which it writes now. `file` identifies the file: one dump at a time for each."""

    def __init__(self, pid: "int", number: "int", descriptor: "int") -> "None":
        """Open the file through the process's descriptor. Raises OSError."""
        self.pid, self._number = pid, number
        self._descriptor = os.open(f"/proc/{pid}/fd/{descriptor}", os.O_RDONLY)
        status = os.fstat(self._descriptor)
        self.file = status.st_dev, status.st_ino
        self._begin = self._size = 0
        self._until = self._still = 0.0

    def names(self, descriptor: "int") -> "bool":
        """Whether faulthandler writes to this descriptor: the file says so in its first line."""
        return os.pread(self._descriptor, 32, 0).startswith(b"fd %d\n" % descriptor)

    def start(self) -> "None":
        """Send the signal."""
        self._begin = self._size = os.fstat(self._descriptor).st_size
        self._until, self._still = time.monotonic() + DUMP_S, 0.0
        send_signal(self.pid, self._number)

    def text(self, now: "float") -> "str | None":
        """The stacks, once the file grows no more; empty if nothing came in time; None: not yet."""
        size = os.fstat(self._descriptor).st_size
        if size != self._size:
            self._size, self._still = size, now + STILL_S
        if now < self._until and (size == self._begin or now < self._still):
            return None
        return _without_probe(os.pread(self._descriptor, DUMP_MOST, self._begin).decode("utf-8", "replace"))

    def close(self) -> "None":
        """Close the file."""
        os.close(self._descriptor)


def dump_of(pid: "int", number: "int", directory: "str") -> "Dump | None":
    """A dump that can be started; None where the process has no probe, or uses the signal itself."""
    if not number or not catches(pid, number):
        return None
    for name in listed(f"/proc/{pid}/fd"):
        try:
            link = os.readlink(f"/proc/{pid}/fd/{name}")
            if link.endswith(NAME) and link.startswith(directory):
                dump = Dump(pid, number, int(name))
                if dump.names(int(name)):
                    return dump
                dump.close()
        except OSError:
            continue
    return None


def _without_probe(text: "str") -> "str":
    """The stacks without the thread in which the probe waits."""
    return "\n\n".join(part for part in text.split("\n\n") if "/probe/listen.py" not in part).strip()
