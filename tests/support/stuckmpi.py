"""Launches of MPI ranks in containers, which on busy cores do not come out of MPI_Init once in a while.

Seen with MPICH 4.3.2 and 5.0.2, three times in some thousand launches: all ranks run, none gets further. The cause is
not known, so what the ranks do then is shown. Such a launch is tried again, and then the whole test (`foreign`) on a
cluster of its own; one that stops anywhere else fails at once.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from threading import Timer

from support.cli import Done

TRIES = 2
LATE_S = 60
"""After so long the stacks of the ranks are looked at: a launch takes seconds, and its time limit is twice this."""
STUCK = "ranks stuck in MPI_Init"

ONE_KERNEL = {"UCX_TLS": "self,tcp"}
"""For launches with one rank per node: the nodes of a test cluster share a kernel and its memory, which UCX takes for
one machine; with this it goes over the network, as between real nodes."""


def again(launch: Callable[[], Done], place: Path, late_s: float = LATE_S) -> Done:
    """What a launch from `place` leaves behind that ends within its time limit.

    Raises:
        AssertionError: it did not; with the functions that its ranks were in after `late_s` seconds.
    """
    for left in reversed(range(TRIES)):
        stacks: list[str] = []
        timer = Timer(late_s, lambda: stacks.extend(_stacks(place)))  # noqa: B023
        timer.start()
        try:
            return launch()
        except subprocess.TimeoutExpired as error:
            why = STUCK if any("MPI_Init" in each for each in stacks) else "a launch did not end"
            said = "\n".join((f"{why}, ended after {error.timeout:.0f} s", *stacks))
            if why != STUCK or not left:
                raise AssertionError(said) from error
            print(f"tried again: {said}")
        finally:
            timer.cancel()
    raise AssertionError("unreachable")


def _stacks(place: Path) -> Iterator[str]:
    """The functions that each process with an MPI library below `place` is in, by gdb."""
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            inside = Path(os.readlink(folder / "cwd")).is_relative_to(place)
            if inside and "/libmpi" in (folder / "maps").read_text():
                argv = ["gdb", "-p", folder.name, "-batch", "-ex", "bt 30"]
                shown = subprocess.run(argv, capture_output=True, text=True, timeout=240, check=False).stdout
                yield "\n".join((f"process {folder.name}:", *(line for line in shown.splitlines() if line[:1] == "#")))
