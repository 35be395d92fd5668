"""Two studies compared: runs of each that are not paired, size by size, with verdicts that hold together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from stackyard.study.statistics.exact import ONE_IN, rank_sum
from stackyard.study.statistics.ratios import DIFFERENT, NO_VERDICT, NOT_SHOWN, Comparison, holm
from stackyard.study.statistics.scaling import ratio

Both = tuple[Sequence[float], Sequence[float]]
"""The values of the first and of the second study, each from an allocation of its own."""


def compare_unpaired(series: Mapping[str, Both]) -> dict[str, Comparison]:
    """The second of two series divided by the first; "different" as Mann and Whitney's test and Holm's order tell.

    A comparison of fewer runs than their number needs gets no verdict, and is counted with the others.

    Raises:
        InputError: no runs, more than can be counted, or a value that is not a finite number above 0.
    """
    ratios = {name: ratio(*both) for name, both in series.items()}
    p_values = {name: _p(*both) for name, both in series.items()}
    differ, together = holm(p_values), len(series)
    found = {}
    for name, (first, second) in series.items():
        can = _is_enough(len(first), len(second), together)
        verdict = NO_VERDICT if not can else DIFFERENT if differ[name] else NOT_SHOWN
        needed = runs_needed(together)
        found[name] = Comparison(ratios[name], p_values[name], verdict, together, needed, "allocation")
    return found


def runs_needed(comparisons: int) -> int:
    """The runs of each of two series that a number of comparisons needs: 1: 4; 2 to 6: 5; 7 to 23: 6."""
    return next(n for n in range(2, 100) if _is_enough(n, n, comparisons))


def _is_enough(n: int, m: int, comparisons: int) -> bool:
    """Whether the smallest p of n and m runs passes the first step of Holm's order."""
    counted = rank_sum(n, m)
    return counted.below[0] * 2 * comparisons * ONE_IN <= counted.cases


def _p(first: Sequence[float], second: Sequence[float]) -> float:
    """The two-sided probability; a tie counts against a difference."""
    signs = [(other > one) - (other < one) for one in first for other in second]
    return rank_sum(len(first), len(second)).p(min(sum(sign <= 0 for sign in signs), sum(sign >= 0 for sign in signs)))
