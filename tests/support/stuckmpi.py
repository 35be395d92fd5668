"""Launches of MPI ranks in containers, which on busy cores do not come out of MPI_Init once in a while.

Seen twice in some hundred launches, with MPICH 4.3.2 and 5.0.2, while other tests used both cores: all ranks run, none
gets further. The likely cause is shared memory that killed ranks of a job of the same number had left; jobs have
numbers of their own since. Such a launch is ended and tried again, and that is printed.
"""

from __future__ import annotations

import subprocess
from collections.abc import Callable

from support.cli import Done

TRIES = 3


def again(launch: Callable[[], Done]) -> Done:
    """What a launch leaves behind that ends within its time limit; the last attempt's limit counts."""
    for _ in range(TRIES - 1):
        try:
            return launch()
        except subprocess.TimeoutExpired as error:
            print(f"tried again: a launch timed out after {error.timeout:.0f} s in MPI_Init")
    return launch()
