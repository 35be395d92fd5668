"""What the launchers share: words that each carry a reason, lists of numbers, and questions about a layout. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from itertools import chain

from stackyard.errors import InputError
from stackyard.launch.layout.model import Layout, Slot
from stackyard.launch.plan.model import LaunchRequest, Reason


class Words:
    """A command line that grows word by word, each group with the reason for it."""

    def __init__(self, *command: str, reason: str) -> None:
        self._reasons = [Reason(command, reason)]

    def add(self, reason: str, *words: str) -> None:
        """Append words that belong together and what they buy, in one sentence without a full stop."""
        self._reasons.append(Reason(words, reason))

    def own(self, request: LaunchRequest) -> None:
        """Append the site's options for every launch line and those of this launch, as they are."""
        if request.scheduler.launcher_options:
            self.add("options of every launch line at this site", *request.scheduler.launcher_options)
        if request.args:
            self.add("asked for in this launch", *request.args)

    @property
    def words(self) -> tuple[str, ...]:
        """All words in their order."""
        return tuple(chain.from_iterable(reason.words for reason in self._reasons))

    @property
    def reasons(self) -> tuple[Reason, ...]:
        """The same words in groups, with reasons."""
        return tuple(self._reasons)


def ranges(numbers: Iterable[int]) -> str:
    """Numbers as a list of ranges, ``0-6,8``, in ascending order without repetition."""
    return ",".join(f"{a}-{b}" if b > a else str(a) for a, b in _runs(sorted(set(numbers))))


def mask(numbers: Iterable[int]) -> str:
    """Numbers as the bits of a hexadecimal mask: 1 to 3 are ``0xe``."""
    return hex(sum(1 << number for number in set(numbers)))


def _runs(ascending: Sequence[int]) -> list[tuple[int, int]]:
    runs: list[tuple[int, int]] = []
    for number in ascending:
        if runs and number == runs[-1][1] + 1:
            runs[-1] = (runs[-1][0], number)
        else:
            runs.append((number, number))
    return runs


def version_of(text: str) -> tuple[int, ...]:
    """A scheduler's version as numbers, ``23.11.4`` as (23, 11, 4); empty where it is not known."""
    return tuple(int(number) for number in re.findall(r"\d+", text))


def uniform(layout: Layout, launcher: str) -> tuple[Slot, ...]:
    """The slots that all hosts have. Raises InputError where hosts differ, which `launcher` has no options for."""
    if any(block.slots != layout.slots for block in layout.blocks):
        raise InputError(
            f"{launcher} cannot start ranks that are placed differently on different hosts",
            hint="use mpirun, whose rankfile names the place of every rank, or give all hosts the same ranks",
        )
    return layout.slots


def threads_of(layout: Layout, slot: Slot, smt: int | None = None) -> tuple[int, ...]:
    """The operating system's hardware threads of a rank, ascending; `smt` per core, or as many as the layout uses."""
    used = layout.smt if smt is None else smt
    return tuple(sorted({thread for core in slot.cores for thread in layout.node.os_threads(core, used)}))


def shares_cores(layout: Layout) -> bool:
    """Whether ranks of one node share a core."""
    cores = [core for slot in layout.slots for core in slot.cores]
    return len(set(cores)) < len(cores)


def used_gpus(layout: Layout) -> tuple[int, ...]:
    """The GPUs of a node that its ranks own, ascending."""
    return tuple(sorted({gpu for slot in layout.slots for gpu in slot.gpus}))


def need_hosts(request: LaunchRequest, launcher: str) -> tuple[str, ...]:
    """The layout's hosts. Raises InputError where they are not known but must be named."""
    if not request.layout.hosts:
        raise InputError(
            f"{launcher} must be told the names of the hosts, and they are not known yet",
            hint="launch inside an allocation, whose hosts are read from the scheduler",
        )
    return request.layout.hosts


def refuse_cyclic(layout: Layout, launcher: str) -> None:
    """Raise InputError where ranks are to be dealt over several hosts, which `launcher` has no option for."""
    if layout.distribution == "cyclic" and layout.nodes > 1:
        raise InputError(
            f"{launcher} cannot deal ranks over hosts",
            hint="use the block distribution, or a launcher that can: srun, mpirun, jsrun, flux",
        )
