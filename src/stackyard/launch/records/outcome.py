"""What came of a step: who ran where, what failed first and why, and the listener that is told meanwhile."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any, Literal, Protocol

State = Literal["done", "failed", "cancelled", "node-lost", "no-start", "hung"]


@dataclass(frozen=True)
class Placement:
    """Where a task really was: `cpus` are the hardware threads it may use; `gpus` the visibility variable's value."""

    task: int
    host: str
    pid: int
    cpus: tuple[int, ...] = ()
    gpus: str = ""


@dataclass(frozen=True)
class Cause:
    """A known cause that matched what was seen. `rule` names the row of the table."""

    rule: str
    cause: str
    remedy: str


@dataclass(frozen=True)
class Failure:
    """The first task (or node) that went wrong. `code` is 128 + signal after a signal; `task` -1 is the node."""

    task: int
    host: str
    code: int
    tail: tuple[str, ...] = ()
    cause: Cause | None = None
    message: str = ""


@dataclass(frozen=True)
class StepResult:
    """How a step ended. `code` is what `stackyard launch` ends with: 0, or the first failure's own code.

    `seconds` has ``nodes`` (all agents there), ``first_output`` and ``total``, measured from the start of the launcher.
    """

    state: State
    code: int
    first: Failure | None = None
    placements: tuple[Placement, ...] = ()
    hosts: tuple[str, ...] = ()
    seconds: dict[str, float] = field(default_factory=dict)
    launcher_output: str = ""
    failed_tasks: int = 0

    def to_json(self) -> dict[str, Any]:
        """Plain JSON values."""
        return asdict(self)


class Listener(Protocol):
    """Is told what happens while a step runs; every method returns at once and never raises."""

    def phase(self, name: str, detail: str = "") -> None:
        """``queued``, ``nodes``, ``preflight``, ``first output``, ``running``, ``ending`` ..."""

    def nodes(self, there: int, expected: int) -> None:
        """How many nodes have reported."""

    def output(self, task: int, text: str) -> None:
        """Output of a rank, whole lines where possible."""

    def event(self, kind: str, data: dict[str, Any]) -> None:
        """For events.jsonl: ``phase``, ``exit``, ``node-lost``, ``hang``, ``signal``."""

    def notice(self, text: str) -> None:
        """One sentence that the user should read now."""
