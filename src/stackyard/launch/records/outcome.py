"""The outcome of a step: the place of each task, the first failure and its cause; and listeners to its progress."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import asdict, field
from pathlib import Path
from typing import Any, Literal

from stackyard.core.late import dataclass
from stackyard.core.progress import Listener

State = Literal["done", "failed", "cancelled", "node-lost", "no-start", "hung"]


@dataclass(frozen=True)
class Placement:
    """The actual place of a task: `cpus` are its hardware threads, `gpus` the visibility variable's value."""

    task: int
    host: str
    pid: int
    cpus: tuple[int, ...] = ()
    gpus: str = ""


@dataclass(frozen=True)
class RankUsage:
    """The resources that a task used, as sampled by its agent (every second or less often).

    Attributes:
        peak_bytes: the sum over its processes of the largest resident size of each; pages that several processes share
            count for each of them. 0: it ended before the first sample.
        largest_bytes: the peak of the largest process.
        processes: the number at the peak.
        gpu_peak_bytes: the peak of its own GPUs, or of all GPUs that its agent sees if its own are unknown.
        gpu_use_percent: mean use of these GPUs; -1: not known.
        mpi: the MPI library that it had loaded, by its path inside, in an image with the host's; empty: none was found.
        mpi_is_host: whether that is the host's file.
    """

    task: int
    host: str
    peak_bytes: int = 0
    largest_bytes: int = 0
    processes: int = 0
    gpu_peak_bytes: int = 0
    gpu_total_bytes: int = 0
    gpu_use_percent: int = -1
    mpi: str = ""
    mpi_is_host: bool = False


@dataclass(frozen=True)
class GpuEnergy:
    """The energy of the GPUs of a step, from before its ranks ran until after they had ended.

    Attributes:
        joules: of all of them together; None: not measured.
        gpus: their number.
        source: the counters; or why it was not measured.
        notes: what else it counts: other users of these GPUs.
    """

    joules: float | None
    gpus: int
    source: str
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Cause:
    """A known cause that matched the failure. `rule` names the row of the table."""

    rule: str
    cause: str
    remedy: str


@dataclass(frozen=True)
class Failure:
    """The first task (or node) that failed. `code` is 128 + signal after a signal; `task` -1 is the node."""

    task: int
    host: str
    code: int
    tail: tuple[str, ...] = ()
    cause: Cause | None = None
    message: str = ""


@dataclass(frozen=True)
class StagedFiles:
    """The files copied to the nodes before the ranks started.

    Attributes:
        size: bytes copied to each of these nodes; `files`: the number of files. 0 if all had them from an earlier
            attempt.
        nodes: the number of receiving nodes, without those that had the files from an earlier attempt.
        seconds: from the first request to a node until the last one had everything.
        source: the node that read the files.
        place: the directory on that node.
        summary: all of this in one line.
    """

    size: int
    files: int
    nodes: int
    seconds: float
    source: str
    place: str
    summary: str

    def to_json(self) -> dict[str, Any]:
        """Plain JSON values."""
        return asdict(self)


@dataclass(frozen=True)
class StepResult:
    """The result of a step. `code` is the exit status of `stackyard launch`: 0, or that of the first failure.

    `seconds` has ``nodes`` (all agents there), ``first_output`` and ``total``, measured from the start of the launcher.
    `warned`: SIGUSR1 was received, the scheduler's warning before the time limit. `lost`: the nodes that were lost.
    """

    state: State
    code: int
    first: Failure | None = None
    placements: tuple[Placement, ...] = ()
    hosts: tuple[str, ...] = ()
    seconds: dict[str, float] = field(default_factory=dict)
    launcher_output: str = ""
    failed_tasks: int = 0
    warned: bool = False
    usage: tuple[RankUsage, ...] = ()
    staged: StagedFiles | None = None
    lost: tuple[str, ...] = ()
    gpu_energy: GpuEnergy | None = None

    def to_json(self) -> dict[str, Any]:
        """Plain JSON values."""
        return asdict(self)


class ForwardingListener(Listener):
    """A listener that forwards every call through `_all`."""

    def phase(self, name: str, detail: str = "") -> None:
        """Forward it."""
        self._all("phase", name, detail)

    def nodes(self, there: int, expected: int) -> None:
        """Forward it."""
        self._all("nodes", there, expected)

    def output(self, task: int, text: str) -> None:
        """Forward it."""
        self._all("output", task, text)

    def event(self, kind: str, data: dict[str, Any]) -> None:
        """Forward it."""
        self._all("event", kind, data)

    def notice(self, text: str) -> None:
        """Forward it."""
        self._all("notice", text)

    def stack(self, file: Path, text: str) -> None:
        """Forward it."""
        self._all("stack", file, text)

    def flush(self) -> None:
        """Forward it."""
        self._all("flush")

    def _all(self, what: str, *arguments: Any) -> None:
        raise NotImplementedError


class ListenerGroup(ForwardingListener):
    """Several listeners as one. An error of one affects neither the others nor the caller."""

    def __init__(self, *listeners: Listener) -> None:
        self.each = listeners

    def _all(self, what: str, *arguments: Any) -> None:
        for one in self.each:
            with suppress(Exception):
                getattr(one, what)(*arguments)
