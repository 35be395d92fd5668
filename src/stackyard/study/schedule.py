"""The jobs of a study, and the order of the runs in each.

The unit of a size is the allocation: each repeat is a job of its own. The unit of a comparison is the pair: all
variants run in one job, in a drawn and balanced order. Either way a job begins with runs that do not count.
"""

from __future__ import annotations

from collections.abc import Iterator
from hashlib import sha256
from typing import Any

from stackyard.core.late import dataclass
from stackyard.study.request import NAME, StudyRequest
from stackyard.study.statistics.orders import Turn, turns

MOST_NUMBER = 10**9
"""Of nodes, allocations and repeats in a file."""


@dataclass(frozen=True)
class Point:
    """One run of a study.

    Attributes:
        id: its name, of its record and in messages: ``n0002-native-a01-r03``, ``w`` for a warm-up.
        repeat: counted from 1; 0 for a warm-up.
        allocation: the job, counted from 1 for each size.
        order: its place in the job, counted from 1.
    """

    id: str
    nodes: int
    variant: str
    repeat: int
    allocation: int
    order: int
    warmup: bool


@dataclass(frozen=True)
class JobPlan:
    """The runs of one allocation."""

    id: str
    nodes: int
    allocation: int
    points: tuple[Point, ...]

    def to_json(self) -> dict[str, Any]:
        """Its values: the points by variant, in their order."""
        return {"id": self.id, "nodes": self.nodes, "allocation": self.allocation,
                "points": [[point.variant, point.repeat, point.warmup] for point in self.points]}  # fmt: skip

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> JobPlan:
        """The jobs as they were stored. Raises KeyError, ValueError."""
        nodes, allocation = int(values["nodes"]), int(values["allocation"])
        runs = [(str(name), int(repeat)) for name, repeat, _ in values["points"]]
        for name, repeat in runs:  # they become names of files
            if not (NAME.fullmatch(name) and 0 <= repeat <= MOST_NUMBER):
                raise ValueError(f"not a run of a variant: {name!r:.100}, {repeat}")
        if not (0 < nodes <= MOST_NUMBER and 0 < allocation <= MOST_NUMBER):
            raise ValueError(f"not a size and an allocation: {nodes}, {allocation}")
        return _job(nodes, allocation, runs)


def planned(request: StudyRequest, seed: int, *, together: bool = False) -> Iterator[JobPlan]:
    """The jobs of a study, the smallest size first.

    Args:
        together: all runs of a size are in one allocation: as asked, or since there is only this one.
    """
    for nodes in sorted(request.nodes):
        if request.compares:
            for allocation in range(1, request.allocations + 1):
                yield _comparison(request, nodes, allocation, seed)
        elif together or request.pack:
            yield one_size(request, nodes, 1, range(1, request.repeats + 1))
        else:
            for repeat in range(1, request.repeats + 1):
                yield one_size(request, nodes, repeat, [repeat])


def one_size(
    request: StudyRequest, nodes: int, allocation: int, repeats: range | list[int], *, cold: bool = True
) -> JobPlan:
    """A job of a study with one variant: the warm-up runs, if the nodes need them, then these repeats."""
    (variant,) = request.all_variants
    runs = [0] * (request.warmup_runs if cold else 0) + list(repeats)
    return _job(nodes, allocation, [(variant, repeat) for repeat in runs])


def _comparison(request: StudyRequest, nodes: int, allocation: int, seed: int) -> JobPlan:
    own = int.from_bytes(sha256(f"{seed}/{nodes}/{allocation}".encode()).digest()[:8], "big")
    runs = turns(list(request.all_variants), request.repeats, own, warmups=request.warmup_runs)
    return _job(nodes, allocation, runs)


def _job(nodes: int, allocation: int, runs: list[Turn]) -> JobPlan:
    points, warm = [], 0
    for order, (variant, repeat) in enumerate(runs, 1):
        warm += not repeat
        number = f"r{repeat:02d}" if repeat else f"w{warm:02d}"
        name = f"n{nodes:04d}-{variant}-a{allocation:02d}-{number}"
        points.append(Point(name, nodes, variant, repeat, allocation, order, not repeat))
    return JobPlan(f"n{nodes:04d}-a{allocation:02d}", nodes, allocation, tuple(points))
