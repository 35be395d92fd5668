"""Exact null distributions of the three rank statistics, counted in integers, and the order statistics they select.

Each interval goes from the k-th smallest to the k-th largest of a sorted list of values; k is the largest for which
the interval holds 95 % or more. The lists are the runs themselves (sign test), the means of every two pairs (Wilcoxon's
signed-rank test) and the differences of every two runs (Mann and Whitney's test).

Source: M. Hollander, D. A. Wolfe and E. Chicken, Nonparametric Statistical Methods, 3rd edition (2014), 3.1 and 3.3
(signed rank), 3.4 and 3.6 (sign), 4.1 and 4.3 (rank sum). With ties the closed intervals hold 95 % all the more, and a
test that counts every tie against a difference agrees with its interval.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from itertools import accumulate
from math import comb, exp, log
from statistics import median

from stackyard.core.errors import InputError
from stackyard.core.late import dataclass

ONE_IN = 20
"""One interval in so many may miss the truth: 5 %."""
MOST_RUNS = 300
"""Runs whose distribution is counted; it takes a second for that many."""


@dataclass(frozen=True)
class Interval:
    """An estimate with its interval, or with a range where no 95 % interval exists.

    Attributes:
        low, high: the ends of the interval; of a range, the least and the largest value.
        n: the number of observations.
        confidence: the least probability, 0.95 or more, that the interval holds the truth; 0 for a range.
    """

    value: float
    low: float
    high: float
    n: int
    confidence: float = 0

    @property
    def is_range(self) -> bool:
        """Whether `low` and `high` are a range, which says nothing of the truth."""
        return not self.confidence

    def holds(self, value: float) -> bool:
        """Whether a value is within the ends."""
        return self.low <= value <= self.high


@dataclass(frozen=True)
class Counted:
    """A distribution of a count 0, 1, 2 ...

    Attributes:
        below: for each count, how many of the equally likely cases have this count or less.
        cases: all cases.
    """

    below: tuple[int, ...]
    cases: int

    @property
    def k(self) -> int:
        """Which value from each end bounds the interval, counted from 1; 0 where none has 95 %."""
        return sum(1 for cases in self.below if 2 * ONE_IN * cases <= self.cases)

    @property
    def confidence(self) -> float:
        """The exact probability that this interval holds the truth; 0 without one."""
        return float(1 - 2 * self.below[self.k - 1] / self.cases) if self.k else 0

    def p(self, count: int) -> float:
        """The two-sided probability of this count, or of one as far out."""
        return min(1.0, 2 * self.below[min(count, len(self.below) - 1)] / self.cases)


@cache
def sign(n: int) -> Counted:
    """How many of n runs are below the median: binomial."""
    return Counted(tuple(accumulate(comb(n, i) for i in range(n + 1))), 2**n)


@cache
def signed_rank(n: int) -> Counted:
    """The sum of the ranks of the positive ones among n differences: subsets of 1..n by their sum."""
    _refuse_too_many(n)
    ways = [1] + [0] * (n * (n + 1) // 2)
    for rank in range(1, n + 1):
        for total in range(rank * (rank + 1) // 2, rank - 1, -1):
            ways[total] += ways[total - rank]
    return Counted(tuple(accumulate(ways)), 2**n)


@cache
def rank_sum(n: int, m: int) -> Counted:
    """How many of n*m differences are positive: the coefficients of the Gaussian binomial."""
    _refuse_too_many(n + m)
    most = n * m
    ways = [1] + [0] * most
    for i in range(1, m + 1):
        for total in range(most, n + i - 1, -1):  # times 1 - x^(n+i)
            ways[total] -= ways[total - n - i]
        for total in range(i, most + 1):  # by 1 - x^i
            ways[total] += ways[total - i]
    return Counted(tuple(accumulate(ways)), comb(n + m, n))


def _refuse_too_many(n: int) -> None:
    if n > MOST_RUNS:
        hint = "compare fewer runs, or the median of each allocation"
        raise InputError(f"cannot compare {n} runs: their distribution is counted for {MOST_RUNS} at most", hint=hint)


def between(ordered: Sequence[float], counted: Counted, n: int) -> Interval:
    """The middle of sorted values, and those that bound the interval; without 95 % the range."""
    end = max(counted.k, 1)
    return Interval(median(ordered), ordered[end - 1], ordered[-end], n, counted.confidence)


def exponential(logs: Interval) -> Interval:
    """An interval of logarithms as one of ratios."""
    return Interval(exp(logs.value), exp(logs.low), exp(logs.high), logs.n, logs.confidence)


def logarithms(values: Sequence[float], what: str = "run") -> list[float]:
    """The natural logarithms of values above 0.

    Raises:
        InputError: one is not above 0.
    """
    for number, value in enumerate(values, 1):
        if not value > 0:
            hint = "name a metric whose values are above 0, such as a rate or a time"
            raise InputError(
                f"cannot form a ratio with {what} {number}: its value is {value:g}, not above 0", hint=hint
            )
    return [log(value) for value in values]
