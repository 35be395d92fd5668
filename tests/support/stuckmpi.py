"""Launches of MPI ranks in containers, which on busy cores do not come out of MPI_Init once in a while.

Seen with MPICH 4.3.2 and 5.0.2, three times in some thousand launches: all ranks run, none gets further. The cause is
not known, so what the ranks do then is shown. Such a launch is tried again, and then the whole test (`foreign`) on a
cluster of its own; one that stops anywhere else fails at once.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from threading import Timer

from support.cli import Done

TRIES = 2
LATE_S = 90
"""A launch takes seconds: ranks that are in MPI_Init after so long are stuck."""
STUCK = "ranks stuck in MPI_Init"

ONE_KERNEL = {"UCX_TLS": "self,tcp"}
"""For launches with one rank per node: the nodes of a test cluster share a kernel and its memory, which UCX takes for
one machine; with this it goes over the network, as between real nodes."""


def again(launch: Callable[[], Done], place: Path, late_s: float = LATE_S) -> Done:
    """What a launch from `place` leaves behind whose ranks come out of MPI_Init.

    Raises:
        AssertionError: they did not; with the functions that they were in after `late_s` seconds, when they were ended.
    """
    for left in reversed(range(TRIES)):
        stacks: list[str] = []
        timer = Timer(late_s, lambda: stacks.extend(_ended(place)))  # noqa: B023
        timer.start()
        try:
            return launch()
        except (AssertionError, subprocess.TimeoutExpired) as error:
            if not stacks:
                raise
            said = "\n".join((f"{STUCK} for {late_s:g} s", *stacks))
            if not left:
                raise AssertionError(said) from error
            print(f"tried again: {said}")
        finally:
            timer.cancel()
    raise AssertionError("unreachable")


def _ended(place: Path) -> list[str]:
    """End the ranks that work below `place` if one is in MPI_Init; the functions that each was in."""
    found = dict(_stacks(place))
    if not any("MPI_Init" in stack for stack in found.values()):
        return []
    for pid in found:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    return [f"process {pid}:\n{stack}" for pid, stack in found.items()]


def _stacks(place: Path) -> Iterator[tuple[int, str]]:
    """Each process with an MPI library below `place`, and the functions that it is in, by gdb."""
    for directory in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            inside = Path(os.readlink(directory / "cwd")).is_relative_to(place)
            if inside and "/libmpi" in (directory / "maps").read_text():
                argv = ["gdb", "-p", directory.name, "-batch", "-ex", "bt 30"]
                shown = subprocess.run(argv, capture_output=True, text=True, timeout=240, check=False).stdout
                yield int(directory.name), "\n".join(line for line in shown.splitlines() if line[:1] == "#")
