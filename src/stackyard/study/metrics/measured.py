"""What was measured of one run, as plain frozen values for its record."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any, Literal

from stackyard.core.late import dataclass

Kind = Literal["rate", "time"]
Better = Literal["higher", "lower"]
OverRanks = Literal["", "first", "sum", "mean", "slowest"]


@dataclass(frozen=True)
class Quantity:
    """What a number means.

    Attributes:
        kind: ``rate``, something per second, or ``time``.
        over_ranks: what is made of the values of several ranks; empty: unknown, so they have to be equal.
    """

    name: str
    unit: str = ""
    kind: Kind = "rate"
    better: Better = "higher"
    over_ranks: OverRanks = ""


@dataclass(frozen=True)
class Spread:
    """How the values of one rank differ, in the unit of the metric; those of warm-up steps are left out.

    Attributes:
        steps: all steps that the rank reported, those of the warm-up too.
        warmup: how many of them were left out.
        first: the first value, which holds compilation and cold caches.
        p5, p95, p99: the values below which 5, 95 and 99 % of the others are, by nearest rank.
    """

    steps: int
    warmup: int
    first: float
    median: float
    p5: float
    p95: float
    p99: float


@dataclass(frozen=True)
class Value:
    """One metric of one run.

    Attributes:
        over_ranks: how the ranks' values were made one: ``first`` where one rank printed it, or all the same.
        ranks: how many ranks printed it.
        source: the format that it was read by; ``declared`` for a pattern.
        slowest_rank: the rank that was slowest; -1 if one printed it.
        slowest_by: how much longer than the median rank it took, as a share; 0.02 is 2 %.
    """

    name: str
    value: float
    unit: str
    kind: Kind
    better: Better
    over_ranks: OverRanks
    ranks: int
    source: str
    spread: Spread | None = None
    slowest_rank: int = -1
    slowest_by: float = 0

    def __str__(self) -> str:
        return f"{self.value:.5g} {self.unit}".rstrip()


@dataclass(frozen=True)
class Memory:
    """The most that one rank used, as its agent saw it; `gpu_peak_bytes` is 0 where no GPU was seen."""

    peak_bytes: int
    rank: int
    gpu_peak_bytes: int = 0


@dataclass(frozen=True)
class Energy:
    """The energy of all nodes of a run, or of its GPUs. `joules` is None if not measured; `source` says how, or why."""

    joules: float | None
    source: str


@dataclass(frozen=True)
class Measured:
    """All that was measured of one run.

    Attributes:
        values: the declared metrics in their order; without any those that are known, the most telling first.
        problems: ``NAME: why it has no value, and what to do``.
        memory: None where it was not measured.
        energy: that of whole nodes.
        gpu_energy: that of the GPUs alone, a part of the other; None of a run without GPUs.
        notes: what a reader of the numbers should know.
    """

    values: tuple[Value, ...]
    problems: tuple[str, ...]
    memory: Memory | None
    energy: Energy
    notes: tuple[str, ...]
    gpu_energy: Energy | None = None

    def to_json(self) -> dict[str, Any]:
        """Plain values for a record."""
        return asdict(self)
