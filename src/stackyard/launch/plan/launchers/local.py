"""Ranks on this machine, without any launcher: `stackyard.launch.node.spawn` starts and binds them."""

from __future__ import annotations

import sys
from pathlib import Path

from stackyard.errors import InputError
from stackyard.launch.plan.launchers.words import Words, ranges, threads_of
from stackyard.launch.plan.model import LaunchLine, LaunchRequest

SPAWN = Path(__file__).resolve().parents[2] / "node" / "spawn.py"


class Local:
    """Ranks as children of a small program on this machine."""

    name = "local"

    def line(self, request: LaunchRequest) -> LaunchLine:
        """The small program with the CPUs of every rank. Raises InputError for more than one node."""
        layout = request.layout
        if layout.nodes != 1:
            raise InputError(
                f"the ranks are on {layout.nodes} nodes, and without a launcher they can only start on this one",
                hint="launch inside an allocation, or name a launcher: --launcher mpirun with hosts",
            )
        words = Words(
            sys.executable, "-I", "-S", str(SPAWN), reason="starts the ranks here, as children of one process"
        )
        for slot in layout.slots:
            words.add(f"where rank {slot.local_rank} stays", "--cpus", ranges(threads_of(layout, slot)))
        words.own(request)
        words.add("what follows is started once for each --cpus", "--")
        return LaunchLine(words.words, "stackyard", words.reasons)
