"""Ranks on this machine, without any launcher: `stackyard.launch.node.spawn` starts and binds them."""

from __future__ import annotations

import sys
from pathlib import Path

from stackyard.core.errors import InputError
from stackyard.host.machine.ranges import ranges
from stackyard.launch.plan.launchers.words import Words, threads_of
from stackyard.launch.plan.model import LaunchLine, LaunchRequest

SPAWN = Path(__file__).resolve().parents[2] / "node" / "spawn.py"


class Local:
    """Ranks as child processes of a small program on this machine."""

    name = "local"

    def line(self, request: LaunchRequest) -> LaunchLine:
        """The launch line, with the CPUs of every rank. Raises InputError for more than one node."""
        layout = request.layout
        if layout.nodes != 1:
            raise InputError(
                f"cannot start ranks on {layout.nodes} nodes without a launcher",
                hint="launch inside an allocation, or choose a launcher: --launcher mpirun with hosts",
            )
        words = Words(
            sys.executable, "-I", "-S", str(SPAWN), reason="starts the ranks on this machine as child processes"
        )
        for slot in layout.slots:
            words.add(f"binds rank {slot.local_rank}", "--cpus", ranges(threads_of(layout, slot)))
        words.own(request)
        words.add("the program to start once per --cpus option", "--")
        return LaunchLine(words.words, "stackyard", words.reasons)
