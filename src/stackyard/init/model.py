"""What a scheduler tells of a cluster, and what is seen on one machine, each value with its origin."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import Any, NamedTuple, Protocol

from stackyard.core.errors import MissingError, StackyardError
from stackyard.core.late import dataclass
from stackyard.host.run.command import run, which

TIMEOUT_S = 4.0
"""For each question; they are few, and `init` is to end within five seconds on a cluster that answers."""


class Told(NamedTuple):
    """A value of a site.yaml and its origin: ``seen on n017``, ``told by Slurm``, ``assumed: ...``."""

    value: Any
    origin: str


class Ask:
    """Asks programs of a scheduler; what they could not tell is in `unanswered`, in sentences."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        self.environ = environ
        self.unanswered: list[str] = []

    def has(self, program: str) -> bool:
        """Whether a program is on PATH."""
        return which(program, self.environ) is not None

    def __call__(self, *argv: str, quiet: bool = False) -> str:
        """The output of a program, also of its stderr where that is all there is; empty if it fails or is missing.

        Args:
            quiet: a failure is an answer: older versions do not have the command.
        """
        try:
            result = run(argv, env=dict(self.environ), timeout_s=TIMEOUT_S, check=False)
        except MissingError:
            return ""
        except StackyardError as error:
            self.unanswered.append(error.message)
            return ""
        if result.returncode:
            last = (result.output.strip().splitlines() or [f"exited with status {result.returncode}"])[-1]
            if not quiet:
                self.unanswered.append(f"{shlex.join(argv)}: {last[:200]}")
            return ""
        return result.stdout or result.stderr


@dataclass(frozen=True)
class HostNode:
    """A node as its scheduler describes it.

    Attributes:
        arch: the kernel's name of the architecture; empty: not told.
        cores, all_cores: for jobs, and of the node.
        smt: hardware threads per core; 0: not told, `cores` may be threads.
        queues: the queues that send jobs to it; empty: not told.
        is_up: nodes that are down do not vote on what a kind of nodes is like.
    """

    host: str
    arch: str
    cores: int
    all_cores: int
    sockets: int
    smt: int
    memory_gib: float
    gpus: int = 0
    gpu_model: str = ""
    queues: tuple[str, ...] = ()
    features: tuple[str, ...] = ()
    is_up: bool = True


@dataclass(frozen=True)
class Queue:
    """A partition or queue. Limits: 0 is none; the time in minutes."""

    name: str
    is_default: bool = False
    is_up: bool = True
    is_exclusive: bool = False
    min_nodes: int = 1
    max_nodes: int = 0
    time_min: float = 0


@dataclass(frozen=True)
class Cluster:
    """All that a scheduler tells.

    Attributes:
        title: how the scheduler is called: ``Slurm``.
        settings: keys of `scheduler:` in site.yaml.
        threads: `HostNode.cores` are hardware threads, since the scheduler knows nothing else.
        runtimes: what its launcher has options for, each a value of `launch: container: runtime`.
        remarks: commented lines for `scheduler:`: what was told and has no key.
    """

    kind: str
    title: str
    name: str = ""
    nodes: Sequence[HostNode] = ()
    queues: Sequence[Queue] = ()
    settings: Mapping[str, Told] = field(default_factory=dict)
    threads: bool = False
    runtimes: Sequence[Told] = ()
    remarks: Sequence[str] = ()


class Reader(Protocol):
    """A scheduler that can be read: a module with these two functions."""

    def is_here(self, ask: Ask) -> bool:
        """Whether its programs are on this machine."""

    def read(self, ask: Ask) -> Cluster:
        """What it tells; what it does not is in ``ask.unanswered``."""
