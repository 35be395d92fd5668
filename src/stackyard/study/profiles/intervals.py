"""Times in which something was going on: unions of intervals, and how long which of them held at once."""

from __future__ import annotations

import math
from array import array
from collections.abc import Iterator, Mapping, Sequence
from heapq import merge
from typing import TypeAlias

MOST = 2_000_000
"""Intervals of one kind that are kept: those that begin first."""
Window: TypeAlias = tuple[float, float]


class Union:
    """A union of intervals in microseconds, added in any order.

    Attributes:
        until: from here on it is not known, since there were too many intervals.
    """

    def __init__(self) -> None:
        self._starts, self._ends = array("d"), array("d")
        self.until = math.inf

    def add(self, start: float, end: float) -> None:
        """Add an interval."""
        if start >= self.until:
            return
        if self._ends and self._starts[-1] <= start <= self._ends[-1]:
            self._ends[-1] = max(end, self._ends[-1])
            return
        self._starts.append(start)
        self._ends.append(end)
        if len(self._starts) > MOST:
            self._join()
            if len(self._starts) > MOST // 2:
                self.until = self._starts[MOST // 2]
                del self._starts[MOST // 2 :], self._ends[MOST // 2 :]

    def _join(self) -> None:
        count = len(self._starts)
        is_sorted = all(self._starts[at - 1] <= self._starts[at] for at in range(1, count))
        starts, ends = array("d"), array("d")
        for at in range(count) if is_sorted else sorted(range(count), key=self._starts.__getitem__):
            if ends and self._starts[at] <= ends[-1]:
                ends[-1] = max(ends[-1], self._ends[at])
            else:
                starts.append(self._starts[at])
                ends.append(self._ends[at])
        self._starts, self._ends = starts, ends

    def __iter__(self) -> Iterator[Window]:
        """The intervals, sorted and disjoint."""
        self._join()
        return zip(self._starts, self._ends, strict=True)

    def __bool__(self) -> bool:
        return bool(self._starts)

    @property
    def span(self) -> Window:
        """From the first start to the last end."""
        return min(self._starts), max(self._ends)


def together(kinds: Mapping[int, Union], windows: Sequence[Window]) -> list[dict[int, float]]:
    """For each window the microseconds in which each combination of kinds held.

    Args:
        kinds: the unions by their bit (1, 2, 4 ...); the keys of the result are sums of bits, 0 where none held.
        windows: sorted and disjoint.
    """
    found: list[dict[int, float]] = [{} for _ in windows]
    changes = [_changes(union, bit) for bit, union in kinds.items()]
    marks = sorted(mark for number, (start, end) in enumerate(windows) for mark in ((start, number), (end, -1)))
    held, number, now = 0, -1, 0.0
    for at, bit, window in merge(*changes, ((at, 0, window) for at, window in marks)):
        if number >= 0 and at > now:
            found[number][held] = found[number].get(held, 0.0) + at - now
        now, held = at, held ^ bit
        if not bit:
            number = window
    return found


def _changes(union: Union, bit: int) -> Iterator[tuple[float, int, int]]:
    for start, end in union:
        yield start, bit, 0
        yield end, bit, 0
