"""Two variants compared by pairs of runs, alone or with others; across allocations where it has to hold elsewhere."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from stackyard.core.late import dataclass
from stackyard.study.statistics.exact import ONE_IN, Interval, between, exponential, logarithms, signed_rank
from stackyard.study.statistics.series import FEWEST

DIFFERENT, NOT_SHOWN, NO_VERDICT = "different", "no difference shown", "no verdict"

_VERDICTS = {(True, True): DIFFERENT, (True, False): NOT_SHOWN, (False, True): NO_VERDICT, (False, False): NO_VERDICT}
"""By whether there are enough observations, and whether they differ."""
Pair = tuple[float, float]
"""The values of the first and of the second variant, which ran next to each other."""


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


def compare(pairs: Sequence[Pair]) -> Comparison:
    """Compare two variants by pairs of runs; "different" if the interval excludes 1.

    The estimate is the median of the n(n+1)/2 means of two log ratios, one with itself too (J. L. Hodges and E. L.
    Lehmann, Annals of Mathematical Statistics 34 (1963) 598); the interval is Wilcoxon's, from the same means, and p
    counts those on each side of 0, which for values without ties is the signed-rank test.

    Raises:
        InputError: no pairs, or a value that is not a finite number above 0.
    """
    return compare_all({"": pairs})[""]


def compare_all(pairs: Mapping[str, Sequence[Pair]], alone: str = "pair") -> dict[str, Comparison]:
    """Compare several sizes or variants, with verdicts that hold together (S. Holm, Scand. J. Statist. 6 (1979) 65).

    A comparison with fewer pairs than their number needs gets no verdict, and is counted with the others.

    Args:
        alone: what one observation is called, in `Comparison.unit`.
    """
    needed = pairs_needed(len(pairs))
    ratios = {name: _ratio(observations) for name, observations in pairs.items()}
    differ = holm({name: p for name, (_, p) in ratios.items()})
    return {
        name: Comparison(ratio, p, _VERDICTS[ratio.n >= needed, differ[name]], len(pairs), needed, alone)
        for name, (ratio, p) in ratios.items()
    }


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
        InputError: an allocation without pairs, or a value that is not a finite number above 0.
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
