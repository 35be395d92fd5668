"""Results of a preflight: measurements, verdicts, stages, the report. Plain frozen values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from stackyard.core.findings import counted

Outcome = Literal["passed", "slow", "odd", "failed", "skipped"]
WORST: tuple[Outcome, ...] = ("failed", "slow", "odd", "passed")
TITLES = {
    "identity": "all ranks", "hosts": "equal nodes", "libraries": "libraries, CPU and memory",
    "gpus": "GPUs", "gloo": "all ranks over Gloo", "node": "all-reduce within each node",
    "pairs": "all-reduce between neighbours", "all": "all-reduce over all nodes", "mpi": "all-reduce over MPI",
    "tcp": "plain TCP between neighbours",
}  # fmt: skip


@dataclass(frozen=True)
class Measurement:
    """One measured value. `hosts` took part in it; empty: the whole job. `detail` has bytes, ranks, backend, times."""

    name: str
    value: float
    unit: str
    hosts: tuple[str, ...] = ()
    detail: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Verdict:
    """The assessment of one measurement; `message` names the value of comparison."""

    name: str
    hosts: tuple[str, ...]
    outcome: Outcome
    message: str


@dataclass(frozen=True)
class Stage:
    """One stage of one trial. `reason` is why it failed or was skipped."""

    name: str
    outcome: Outcome
    reason: str = ""
    seconds: float = 0.0
    measurements: tuple[Measurement, ...] = ()
    verdicts: tuple[Verdict, ...] = ()

    @property
    def good(self) -> bool:
        """Whether this stage permits the program to start."""
        return self.outcome in ("passed", "odd", "skipped")


@dataclass(frozen=True)
class PreflightReport:
    """The result of a preflight.

    Attributes:
        hosts: the hosts for the program; empty if the preflight failed.
        spare: good hosts that are not needed.
        bad: excluded hosts, with the reason.
        stages: of the last trial.
        notes: retries and searches, in order.
        differences: of kernel and the like, which are tolerated.
        steps: the number of starts of ranks.
    """

    passed: bool
    hosts: tuple[str, ...]
    spare: tuple[str, ...] = ()
    bad: Mapping[str, str] = field(default_factory=dict)
    stages: tuple[Stage, ...] = ()
    notes: tuple[str, ...] = ()
    differences: tuple[str, ...] = ()
    steps: int = 0
    seconds: float = 0.0

    def to_json(self) -> dict[str, Any]:
        """Plain JSON values, for preflight.json."""
        return {"format": 1, **asdict(self)}

    def summary(self) -> list[str]:
        """Lines to show: one per stage, then the excluded hosts and why."""
        lines = [_line(stage) for stage in self.stages]
        lines += [f"difference (tolerated): {text}" for text in self.differences[:5]]
        lines += [f"{verdict.outcome}: {verdict.message}" for stage in self.stages for verdict in _notable(stage)[:5]]
        lines += list(self.notes)
        lines += [f"excluded: {host}: {reason}" for host, reason in self.bad.items()]
        word = "passed" if self.passed else "failed"
        used = f" on {counted(len(self.hosts), 'node')}" if self.passed else ""
        return [*lines, f"preflight {word}{used} ({self.seconds:.1f} s)"]


def _line(stage: Stage) -> str:
    title = TITLES.get(stage.name, stage.name)
    numbers = ", ".join(_range(name, stage.measurements) for name in dict.fromkeys(m.name for m in stage.measurements))
    detail = "; ".join(part for part in (stage.reason, numbers) if part)
    return f"{title}: {stage.outcome}{f' ({detail})' if detail else ''}"


def _range(name: str, measurements: Sequence[Measurement]) -> str:
    mine = [m for m in measurements if m.name == name]
    low, high = (f"{value:.3g}" for value in (min(m.value for m in mine), max(m.value for m in mine)))
    value = low if low == high else f"{low} to {high}"
    return f"{value} {name}" if name == mine[0].unit else f"{name} {value} {mine[0].unit}"


def _notable(stage: Stage) -> list[Verdict]:
    return [verdict for verdict in stage.verdicts if verdict.outcome in ("slow", "odd", "failed")]
