"""Shared by the launchers: words with reasons, lists of numbers, and properties of a layout."""

from __future__ import annotations

import re
from collections.abc import Iterable
from itertools import chain

from stackyard.core.errors import InputError
from stackyard.launch.layout.model import Layout, Slot
from stackyard.launch.plan import schedulers
from stackyard.launch.plan.model import LaunchRequest, Reason

SHIM = "{step}/rank.sh"
"""What a launch line starts; after its last words it is added by `run`."""


def finds_nodes(request: LaunchRequest, launcher: str) -> bool:
    """Whether an MPI launcher finds the nodes of the job by itself."""
    return launcher in schedulers.get(request.scheduler.kind or "none").finds_nodes


class Words:
    """A command line under construction; each group of words has a reason."""

    def __init__(self, *command: str, reason: str) -> None:
        self._reasons = [Reason(command, reason)]

    def add(self, reason: str, *words: str) -> None:
        """Append words that belong together, with the reason for them: one sentence without a full stop."""
        self._reasons.append(Reason(words, reason))

    def next_nodes(self) -> None:
        """Append the shim for the nodes so far, and the colon before the words for the next nodes."""
        self.add("what they start, and then the nodes with other ranks, of the same MPI_COMM_WORLD", SHIM, ":")

    def own(self, request: LaunchRequest) -> None:
        """Append the launcher options of the site and of this launch, unchanged."""
        if request.scheduler.launcher_options:
            self.add("launcher options of this site", *request.scheduler.launcher_options)
        if request.args:
            self.add("given for this launch", *request.args)

    @property
    def words(self) -> tuple[str, ...]:
        """All words in order."""
        return tuple(chain.from_iterable(reason.words for reason in self._reasons))

    @property
    def reasons(self) -> tuple[Reason, ...]:
        """The same words in groups, with reasons."""
        return tuple(self._reasons)


def mask(numbers: Iterable[int]) -> str:
    """Numbers as the bits of a hexadecimal mask: 1 to 3 are ``0xe``."""
    return hex(sum(1 << number for number in set(numbers)))


def version_of(text: str) -> tuple[int, ...]:
    """A scheduler's version as numbers, ``23.11.4`` as (23, 11, 4); empty if unknown."""
    return tuple(int(number) for number in re.findall(r"\d+", text))


def uniform(layout: Layout, launcher: str) -> tuple[Slot, ...]:
    """The slots of every host. Raises InputError if hosts differ, which `launcher` has no options for."""
    if any(block.slots != layout.slots for block in layout.blocks):
        raise InputError(
            f"{launcher} cannot place ranks differently on different hosts",
            hint="use mpirun, which places every rank by rankfile, or use the same layout on all hosts",
        )
    return layout.slots


def threads_of(layout: Layout, slot: Slot, smt: int | None = None) -> tuple[int, ...]:
    """The operating system's hardware threads of a rank, ascending; `smt` per core, or as many as the layout uses."""
    used = layout.smt if smt is None else smt
    return tuple(sorted({thread for core in slot.cores for thread in layout.node.os_threads(core, used)}))


def shares_cores(layout: Layout) -> bool:
    """Whether ranks of one node share a core."""
    blocks = [[core for slot in block.slots for core in slot.cores] for block in layout.blocks]
    return any(len(set(cores)) < len(cores) for cores in blocks)


def equal(layout: Layout) -> bool:
    """Whether all ranks of a node have the same number of cores and of GPUs."""
    return len({(len(slot.cores), len(slot.gpus)) for slot in layout.slots}) == 1


def common_threads(layout: Layout, launcher: str) -> tuple[tuple[int, ...], ...]:
    """The hardware threads of each local rank, if they are the same on all hosts with that rank.

    Raises InputError where they differ, for a `launcher` that binds by local rank alone.
    """
    most = max((block.slots for block in layout.blocks), key=len)
    for block in layout.blocks:
        if any(slot.cores != most[index].cores for index, slot in enumerate(block.slots)):
            raise InputError(
                f"{launcher} binds local rank i of every node to the same cores, but the nodes of the roles differ",
                hint="give the first ranks of each node the same cores_per_rank, or use --launcher mpirun or srun",
            )
    return tuple(threads_of(layout, slot) for slot in most)


def used_gpus(layout: Layout) -> tuple[int, ...]:
    """The GPUs of a node that its ranks own, ascending."""
    return tuple(sorted({gpu for slot in layout.slots for gpu in slot.gpus}))


def need_hosts(request: LaunchRequest, launcher: str) -> tuple[str, ...]:
    """The layout's hosts. Raises InputError if they are unknown."""
    if not request.layout.hosts:
        raise InputError(
            f"{launcher} requires hostnames, which are not known yet",
            hint="launch inside an allocation: its hosts are read from the scheduler",
        )
    return request.layout.hosts


def refuse_cyclic(layout: Layout, launcher: str) -> None:
    """Raise InputError for a cyclic distribution over several hosts, which `launcher` has no option for."""
    if layout.distribution == "cyclic" and layout.nodes > 1:
        raise InputError(
            f"{launcher} does not support the cyclic distribution",
            hint="use the block distribution, or one of the launchers srun, mpirun, jsrun, flux",
        )
