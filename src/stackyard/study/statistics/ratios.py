"""Two variants compared by pairs of runs, or by allocations where it has to hold elsewhere; two studies, unpaired."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from stackyard.core.late import dataclass
from stackyard.study.statistics.exact import ONE_IN, Interval, between, exponential, logarithms, rank_sum, signed_rank
from stackyard.study.statistics.series import FEWEST

DIFFERENT, NOT_SHOWN, NO_VERDICT = "different", "no difference shown", "no verdict"
Pair = tuple[float, float]
"""The values of the first and of the second variant, which ran next to each other."""
Both = tuple[Sequence[float], Sequence[float]]
"""The values of the first and of the second study, each from an allocation of its own."""


@dataclass(frozen=True)
class Comparison:
    """The second of two variants divided by the first, and what may be said of it.

    Attributes:
        ratio: exp of the Hodges-Lehmann estimate of the log ratios, with Wilcoxon's exact interval, which is not
            corrected for other comparisons; with fewer than 6 observations the range.
        p: the exact two-sided probability of a ratio as far from 1 between equal variants; not corrected.
        verdict: one of `DIFFERENT`, `NOT_SHOWN` and `NO_VERDICT`.
        together: how many comparisons the verdict was made with (Holm).
        needed: how many observations that number needs.
        unit: what is counted: ``pair``, or ``allocation`` where each is one observation.
    """

    ratio: Interval
    p: float
    verdict: str
    together: int = 1
    needed: int = FEWEST
    unit: str = "pair"

    @property
    def seen_above(self) -> float:
        """The difference above which a true one would have been seen, as a share; 0.05 is 5 %.

        The farther end of the interval: a larger true difference is outside it, for 95 % of studies.
        """
        return max(self.ratio.high, 1 / self.ratio.low) - 1

    @property
    def scope(self) -> str:
        """What the verdict holds for."""
        return "allocations like these" if self.unit == "allocation" else "these nodes"

    @property
    def text(self) -> str:
        """The verdict in words."""
        count = f"{self.ratio.n} {self.unit}{'s' * (self.ratio.n != 1)}"
        if self.ratio.is_range:
            return f"range of {count}; no verdict"
        if self.verdict == NO_VERDICT:
            return f"{count}; no verdict: {self.together} comparisons need {self.needed}"
        if self.verdict == DIFFERENT:
            return f"{DIFFERENT} on {self.scope}"
        if self.ratio.low == self.ratio.high == 1:
            return f"{NOT_SHOWN} on {self.scope}: all values are equal as printed"
        above = f"above {100 * self.seen_above:.2g} % would have been seen"
        if not self.ratio.holds(1):
            return f"{NOT_SHOWN} by {self.together} comparisons together; {above}"
        return f"{NOT_SHOWN} on {self.scope}; {above}"


def compare_all(pairs: Mapping[str, Sequence[Pair]], alone: str = "pair") -> dict[str, Comparison]:
    """Compare several sizes or variants by pairs of runs; "different" if the interval excludes 1, by all together.

    The estimate is the median of the n(n+1)/2 means of two log ratios, one with itself too (J. L. Hodges and E. L.
    Lehmann, Annals of Mathematical Statistics 34 (1963) 598); the interval is Wilcoxon's, from the same means, and p
    counts those on each side of 0, which for values without ties is the signed-rank test.

    Args:
        alone: what one observation is called, in `Comparison.unit`.

    Raises:
        InputError: a value is not above 0.
    """
    needed = pairs_needed(len(pairs))
    ratios = {name: _ratio(observations) for name, observations in pairs.items()}
    return _judged(ratios, {name: len(each) >= needed for name, each in pairs.items()}, needed, alone)


def _judged(
    ratios: Mapping[str, tuple[Interval, float]], is_enough: Mapping[str, bool], needed: int, unit: str
) -> dict[str, Comparison]:
    """Ratios and their p with verdicts that hold together (S. Holm, Scand. J. Statist. 6 (1979) 65).

    A comparison of fewer observations than their number needs gets no verdict, and is counted with the others.
    """
    differ = holm({name: p for name, (_, p) in ratios.items()})
    verdicts = {name: DIFFERENT if differ[name] else NOT_SHOWN for name in ratios if is_enough[name]}
    return {name: Comparison(ratio, p, verdicts.get(name, NO_VERDICT), len(ratios), needed, unit)
            for name, (ratio, p) in ratios.items()}  # fmt: skip


def _ratio(pairs: Sequence[Pair]) -> tuple[Interval, float]:
    first = logarithms([pair[0] for pair in pairs], "the first variant in pair")
    second = logarithms([pair[1] for pair in pairs], "the second variant in pair")
    logs = [b - a for a, b in zip(first, second, strict=True)]
    means = sorted((one + other) / 2 for i, one in enumerate(logs) for other in logs[i:])
    counted = signed_rank(len(logs))
    fewest = min(sum(mean <= 0 for mean in means), sum(mean >= 0 for mean in means))
    logs_ratio = between(means, counted, len(logs))
    if logs_ratio.is_range:  # the range of the pairs, and no mean of them
        logs_ratio = Interval(logs_ratio.value, min(logs), max(logs), len(logs))
    return exponential(logs_ratio), counted.p(fewest)


def compare_across(allocations: Mapping[str, Mapping[str, Sequence[Pair]]]) -> dict[str, Comparison]:
    """Compare across allocations: the mean log ratio of each is one observation, and 6 are the least for a verdict.

    Nodes differ, and a variant may suit some better: with an effect of 2 % of that kind, eight pairs in one allocation
    call 29 % of equal variants different.

    Args:
        allocations: by the name of the comparison, and by that of the allocation, the pairs.

    Raises:
        InputError: a value is not above 0.
    """
    means = {
        name: [(1.0, math.exp(_mean_log(pairs))) for pairs in by_allocation.values()]
        for name, by_allocation in allocations.items()
    }
    return compare_all(means, "allocation")


def _mean_log(pairs: Sequence[Pair]) -> float:
    first, second = logarithms([pair[0] for pair in pairs]), logarithms([pair[1] for pair in pairs])
    return math.fsum(b - a for a, b in zip(first, second, strict=True)) / len(first)


def holm(p_values: Mapping[str, float]) -> dict[str, bool]:
    """Which of several differences hold together, with at most 5 % of studies that have a false one.

    The smallest p must be below 5 % by the number of comparisons, the next by one less, up to the first that is not.
    """
    differ = dict.fromkeys(p_values, False)
    for rank, name in enumerate(sorted(p_values, key=lambda name: p_values[name])):
        if p_values[name] * (len(p_values) - rank) * ONE_IN > 1:
            break
        differ[name] = True
    return differ


def pairs_needed(comparisons: int) -> int:
    """The pairs that each of several comparisons needs: the fewest whose smallest p, 2/2^n, Holm's first step takes.

    1 comparison: 6; 2 and 3: 7; 4 to 6: 8; 8: 9; 25: 10.
    """
    return max(FEWEST, (2 * max(comparisons, 1) * ONE_IN - 1).bit_length())


def ratio(first: Sequence[float], second: Sequence[float]) -> Interval:
    """The second of two series of runs divided by the first: exp of the two-sample Hodges-Lehmann estimate.

    That is the median of all n*m log differences, with the interval of Mann and Whitney's exact distribution (E. L.
    Lehmann, Annals of Mathematical Statistics 34 (1963) 1507). Where no 95 % interval exists (3 against 3) the range
    of the differences. Both series need the allocation as their unit: six runs in one cover the truth in 28 to 61 %.

    Raises:
        InputError: a value is not above 0.
    """
    logs, others = logarithms(first), logarithms(second)
    differences = sorted(other - one for one in logs for other in others)
    return exponential(between(differences, rank_sum(len(logs), len(others)), min(len(logs), len(others))))


def compare_unpaired(series: Mapping[str, Both]) -> dict[str, Comparison]:
    """The second of two series divided by the first, as Mann and Whitney's test tells.

    Raises:
        InputError: more runs than can be counted, or a value that is not above 0.
    """
    ratios = {name: (ratio(*both), _p(*both)) for name, both in series.items()}
    is_enough = {name: _is_enough(len(first), len(second), len(series)) for name, (first, second) in series.items()}
    return _judged(ratios, is_enough, runs_needed(len(series)), "allocation")


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
