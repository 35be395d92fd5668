"""One number of the many that a rank printed, and one of the numbers of many ranks."""

from __future__ import annotations

import math
from array import array
from collections.abc import Mapping
from itertools import accumulate, compress
from operator import mul, truediv
from statistics import median

from stackyard.core.findings import counted
from stackyard.core.late import dataclass
from stackyard.study.metrics.measured import Quantity, Spread, Value

MOST = 1 << 20
"""Values of one metric that are kept of one rank: 24 MiB."""
WARMUP_STEPS, WARMUP_SHARE = 10, 0.1


class NoValueError(Exception):
    """Why a metric has no value, for `Measured.problems`."""


class Series:
    """The values of one metric that one rank printed, in order.

    Attributes:
        final: the program has made one number of its steps itself, and the last one printed counts.
        smoothed: the values are no single steps, so that their spread says nothing.
        bad: values that are not numbers from 1e-30 to 1e30.
        unread: values beyond `MOST`.
    """

    def __init__(self, *, final: bool = False, smoothed: bool = False) -> None:
        self.final, self.smoothed, self.bad, self.unread = final, smoothed, 0, 0
        self.values, self.steps, self.seconds = array("d"), array("d"), array("d")

    def add(self, value: float, steps: float = 1, seconds: float = math.nan) -> None:
        """Add a value for so many steps, which took so many seconds each."""
        if not 1e-30 <= value <= 1e30:
            self.bad += 1
            value = math.nan
        if self.final:
            self.values[:] = array("d", [value])
        elif len(self.values) >= MOST:
            self.unread += 1
        else:
            self.values.append(value)
            self.steps.append(min(steps, 1e15))
            self.seconds.append(seconds if 1e-30 <= seconds <= 1e30 else math.nan)


@dataclass(frozen=True)
class Summary:
    """One rank's value of one metric."""

    value: float
    spread: Spread | None = None


def summarise(series: Series, kind: str, warmup: int | None = None) -> Summary:
    """One rank's value: samples divided by time, or the median time, after the warm-up.

    A rate is the samples of all steps divided by their time, where the time of each step is known: the mean weighted by
    time. Else the harmonic mean, since steps have equally many samples. One number alone is taken as it is.

    Args:
        warmup: steps that are left out; None: 10 or 10 %, whichever is more.

    Raises:
        NoValueError: no number, or all of them within the warm-up.
    """
    if series.bad == len(series.values) or (series.final and series.bad and math.isnan(series.values[-1])):
        raise NoValueError("it is not a finite number above 0")
    if series.final or len(series.values) == 1:
        return Summary(series.values[-1])
    total = math.ceil(sum(series.steps))
    skipped = max(WARMUP_STEPS, math.ceil(WARMUP_SHARE * total)) if warmup is None else warmup
    begins = accumulate(series.steps, initial=0.0)
    kept = [begin >= skipped and not math.isnan(value) for value, begin in zip(series.values, begins, strict=False)]
    if not any(kept):
        why = f"all {total} steps are within the warm-up of {skipped}"
        raise NoValueError(f"{why}; run more, set a shorter warm-up, or declare over_steps: last")
    values = sorted(compress(series.values, kept))
    p5, p95, p99 = (values[(len(values) * p + 99) // 100 - 1] for p in (5, 95, 99))
    spread = Spread(total, skipped, series.values[0], median(values), p5, p95, p99)
    return Summary(median(values) if kind == "time" else _rate(series, kept), None if series.smoothed else spread)


def _rate(series: Series, kept: list[bool]) -> float:
    """The mean of rates, weighted by their times; where a time is unknown, as if steps had equally many samples."""
    times = list(compress(map(mul, series.steps, series.seconds), kept))
    if any(map(math.isnan, times)):
        times = list(compress(map(truediv, series.steps, series.values), kept))
    return math.fsum(map(mul, compress(series.values, kept), times)) / math.fsum(times)


def over_ranks(quantity: Quantity, ranks: Mapping[int, Summary], source: str) -> Value:
    """One value of the values of several ranks.

    Raises:
        NoValueError: they differ, and what they mean is not known.
    """
    values = {rank: ranks[rank].value for rank in sorted(ranks)}
    low, high = min(values, key=values.__getitem__), max(values, key=values.__getitem__)
    how = quantity.over_ranks
    if not how and values[high] > values[low] * (1 + 1e-9):
        raise NoValueError(
            f"{counted(len(values), 'rank')} print different values ({values[low]:g} of rank {low} to "
            f"{values[high]:g} of rank {high}); declare over_ranks: sum if each prints its own part, mean or first "
            "if each prints that of all, slowest if they wait for each other"
        )
    slowest, middle = (high if quantity.kind == "time" else low), median(values.values())
    behind = values[slowest] / middle if quantity.kind == "time" else middle / values[slowest]
    total, first = math.fsum(values.values()), next(iter(values))
    value = {"slowest": values[slowest], "sum": total, "mean": total / len(values)}.get(how, values[first])
    several = (slowest, behind - 1) if len(values) > 1 else ()
    how, shown = (how, slowest) if several and how not in ("", "first") else ("first", first)
    return Value(quantity.name, value, quantity.unit, quantity.kind, quantity.better, how, len(values), source,
                 ranks[shown].spread, *several)  # fmt: skip
