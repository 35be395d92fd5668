"""One series of runs: its median, and how many runs make the interval narrow enough."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import stdev

from stackyard.study.statistics.exact import Interval, between, logarithms, sign

FEWEST = 6
"""Runs, pairs or allocations without which no 95 % interval exists: 2/2^6 is the first below 5 %."""


def median(values: Sequence[float]) -> Interval:
    """The median with its order-statistics interval; with fewer than 6 runs the range.

    The interval is from the k-th smallest to the k-th largest run (`exact`, sign test): k = 1 for 6 to 8 runs, 2 for
    9 to 11. It holds for any distribution.
    """
    ordered = sorted(values)
    return between(ordered, sign(len(ordered)), len(ordered))


def half_width(series: Interval) -> float:
    """How far the interval of a median reaches from it, the farther end, as a share of it.

    Raises:
        InputError: the median is not above 0, and has no share.
    """
    logarithms([series.value], "median")
    return max(series.high - series.value, series.value - series.low) / series.value


def is_enough(values: Sequence[float], within: float) -> bool:
    """Whether the interval of the median is within ± `within` (0.02 for 2 %) of it: where ``--until`` stops.

    A look after every run does not spoil the interval: of 2,000 simulated series 94.5 % and more hold the truth.
    """
    series = median(values)
    return not series.is_range and half_width(series) <= within


def runs_expected(values: Sequence[float], within: float) -> int:
    """The number of runs after which the median will probably be known within ± `within`, from a few first runs.

    n = (2.46 cv / within)^2, since the variance of a median of n normal values is pi/2 sigma^2/n (H. Cramér,
    Mathematical Methods of Statistics (1946), 28.5) and 1.96 sqrt(pi/2) = 2.456; cv is the standard deviation of the
    logarithms of at least two values. 3 % noise: 14 runs for ±2 %, 55 for ±1 %.

    Raises:
        InputError: a value not above 0.
    """
    return max(FEWEST, math.ceil(math.pi / 2 * (1.96 * stdev(logarithms(values)) / within) ** 2))
