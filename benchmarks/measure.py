"""Ratios of paired measurements.

Two things are timed in turn, pair by pair, in alternating order, and the median of the pairs' ratios counts: what else
the machine does meanwhile slows both of a pair, so it mostly cancels.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

T = TypeVar("T")


@dataclass(frozen=True)
class Figure:
    """One measured ratio.

    Attributes:
        name: what was measured.
        against: what it was compared with.
        ratios: one per pair, `name` over `against`.
        target: the ratio to reach.
        at_least: whether the ratio is to be at least the target (a speed-up, `against` over `name`) and not at most.
        absolute: medians of both sides with their unit, for orientation.
        note: what a reader should know.
    """

    name: str
    against: str
    ratios: tuple[float, ...]
    target: float | None
    at_least: bool = False
    absolute: str = ""
    note: str = ""

    @property
    def ratio(self) -> float:
        """The median of the pairs."""
        return statistics.median(self.ratios)

    @property
    def spread(self) -> tuple[float, float]:
        """The quartiles of the pairs' ratios; of fewer than four pairs the lowest and the highest."""
        if len(self.ratios) < 4:
            return min(self.ratios), max(self.ratios)
        low, _, high = statistics.quantiles(self.ratios, n=4, method="inclusive")
        return low, high

    @property
    def reached(self) -> bool | None:
        """Whether the target was reached; None for a figure without one."""
        if self.target is None:
            return None
        return self.ratio >= self.target if self.at_least else self.ratio <= self.target

    def to_json(self) -> dict[str, Any]:
        """The figure as JSON values."""
        return {
            "name": self.name,
            "against": self.against,
            "ratio": round(self.ratio, 4),
            "spread": [round(value, 4) for value in self.spread],
            "pairs": len(self.ratios),
            "target": self.target,
            "at_least": self.at_least,
            "reached": self.reached,
            "absolute": self.absolute,
            "note": self.note,
        }


def figure_of(
    name: str,
    against: str,
    pairs: Sequence[tuple[float, float]],
    target: float | None,
    *,
    at_least: bool = False,
    note: str = "",
    unit: str = "ms",
) -> Figure:
    """A figure from pairs of (ours, theirs) in seconds (or any unit, with `unit` empty)."""
    ratios = tuple(theirs / ours if at_least else ours / theirs for ours, theirs in pairs)
    ours, theirs = (statistics.median(side) for side in zip(*pairs, strict=True))
    return Figure(name, against, ratios, target, at_least, f"{shown(ours, unit)} : {shown(theirs, unit)}", note)


def shown(value: float, unit: str) -> str:
    """A value for people: seconds as ms or s, a number (#) as it is, bytes as MiB."""
    if unit == "ms":
        return f"{value * 1000:.0f} ms"
    if unit == "s":
        return f"{value:.1f} s"
    if unit == "#":
        return f"{value:,.0f}"
    return f"{value / 2**20:.1f} MiB"


def alternate(ours: Callable[[], T], theirs: Callable[[], T], count: int, warm_up: int = 1) -> list[tuple[T, T]]:
    """Call both `count` times in alternating order and return the pairs of what they return."""
    for _ in range(warm_up):
        ours()
        theirs()
    pairs = []
    for number in range(count):
        if number % 2:
            second, first = theirs(), ours()
        else:
            first, second = ours(), theirs()
        pairs.append((first, second))
    return pairs


def seconds(argv: Sequence[str | os.PathLike[str]], *, env: Mapping[str, str] | None = None) -> float:
    """The wall time of a command, which must succeed."""
    started = time.perf_counter()
    done = subprocess.run([os.fspath(word) for word in argv], env=env, capture_output=True, text=True, check=False)
    taken = time.perf_counter() - started
    if done.returncode != 0:
        command = " ".join(map(str, argv))
        raise SystemExit(f"{command} exited with status {done.returncode}\n{done.stdout}\n{done.stderr}")
    return taken


def disk_bytes(directory: Path) -> int:
    """What a tree takes on disk, every inode counted once."""
    seen: dict[tuple[int, int], int] = {}
    for root, directories, files in os.walk(directory):
        for name in (*directories, *files):
            status = os.lstat(f"{root}/{name}")
            seen[status.st_dev, status.st_ino] = status.st_blocks * 512
    return sum(seen.values())
