"""Numbers, intervals and verdicts in words."""

from __future__ import annotations

import math

from stackyard.core.findings import counted
from stackyard.study.analysis import MetricColumn, Results, Versus
from stackyard.study.report.document import said
from stackyard.study.statistics.exact import Interval
from stackyard.study.statistics.ratios import DIFFERENT, Comparison


def number(value: float, digits: int = 4) -> str:
    """A number with so many significant digits: 0.01235, 12.35, 12,346."""
    if not value or not math.isfinite(value):
        return f"{value:g}"
    size = int(f"{value:.{digits - 1}e}".partition("e")[2])
    if not -5 < size < 12:
        return f"{value:.{digits}g}"
    places = max(digits - 1 - size, 0)
    return f"{value:,.{places}f}"


def percent(share: float) -> str:
    """A share as a percentage: 0.042 is 4.2 %."""
    return f"{number(100 * share, 2 if abs(share) < 0.995 else 3)} %"


def ends(interval: Interval, scale: float = 1, digits: int = 4) -> str:
    """From where to where: 405.1 to 418.3."""
    return f"{number(interval.low * scale, digits)} to {number(interval.high * scale, digits)}"


def title_of(metric: MetricColumn) -> str:
    """The name of a metric with its unit: ``step time (s)``."""
    name, unit = said(metric.name, 80), said(metric.unit, 40)
    return f"{name} ({unit})" if unit and not name.endswith(unit) else name


def better(metric: MetricColumn) -> str:
    """What a variant is that does better: faster, where the metric is a rate or a time."""
    return "faster" if metric.scales else "better"


def factor_title(metric: MetricColumn, first: str) -> str:
    """What a factor above 1 is, for a metric that should be high as for one that should be low."""
    return f"{title_of(metric)}: how many times as {'fast' if metric.scales else 'good'} as {first}"


def nodes(count: int) -> str:
    """``1 node``, ``2 nodes``."""
    return counted(count, "node")


def verdict(comparison: Comparison, name: str, first: str, metric: MetricColumn, where: str) -> str:
    """What a comparison found, in a sentence: who is faster, by how much.

    Args:
        name: who is better if the ratio is above 1; `first`: the other one.
        where: the sentence's beginning, e.g. ``2 nodes``.
    """
    ratio = comparison.ratio
    if comparison.verdict != DIFFERENT:
        return f"{where}: {name} against {first}: {comparison.text}"
    if ratio.value < 1:
        name, first = first, name
        ratio = Interval(1 / ratio.value, 1 / ratio.high, 1 / ratio.low, ratio.n, ratio.confidence)
    least, most = percent(ratio.low - 1), percent(ratio.high - 1)
    interval = f"{100 * ratio.confidence:.0f} % interval {least} to {most}"
    return (
        f"{where}: {name} is {percent(ratio.value - 1)} {better(metric)} than {first} ({interval}), {comparison.text}"
    )


def verdict_of(versus: Versus) -> str:
    """`verdict` of a variant against the first one."""
    name, first = said(versus.variant, 80), said(versus.first, 80)
    if versus.comparison is None:
        return f"{nodes(versus.nodes)}: {name} against {first}: {versus.problem}; no verdict"
    return verdict(versus.comparison, name, first, versus.metric, nodes(versus.nodes))


def scaling_sentences(found: Results) -> list[str]:
    """Of each variant the largest size against the smallest, in the first metric."""
    sentences = []
    for name in found.variants:
        own = [each for each in found.of(found.metrics[0]) if each.variant == name and each.scaling]
        if len(own) < 2 or (scaling := own[-1].scaling) is None:
            continue
        who = f"{said(name, 80)}: " if len(found.variants) > 1 else ""
        text = f"{who}{nodes(scaling.nodes)} are {number(scaling.speedup.value, 3)} times as fast as "
        text += nodes(scaling.base)
        if share := scaling.efficiency:
            kind = "range" if share.is_range else f"{100 * share.confidence:.0f} % interval"
            text += f": {found.request.scaling} efficiency {number(100 * share.value, 3)} %"
            text += f" ({kind} {ends(share, 100, 3)} %)"
        sentences.append("; ".join(filter(None, [text, scaling.note])))
    return sentences


def counts(found: Results) -> str:
    """The number of runs that count, and of the others by state."""
    states = [record.state for record in found.counted]
    words = [f"{states.count('done')} of {counted(len(states), 'run')} done"]
    rest = {state: states.count(state) for state in dict.fromkeys(states) if state != "done"}
    names = {"no-value": "without a value"}
    return ", ".join([*words, *(f"{count} {names.get(state, said(state, 40))}" for state, count in rest.items())])


def methods(found: Results) -> tuple[str, ...]:
    """How the numbers were made, in five sentences, with the seed and the order."""
    request, about = found.request, found.about
    warm = f"{counted(request.warmup_runs, 'run')} of each variant per allocation" if request.warmup_runs else "no run"
    how = "in batch jobs as planned" if about.how == "jobs" else "one after the other on one machine or allocation"
    order = (f"in pairs within an allocation, in a balanced order drawn with the seed {about.seed}"
             if request.compares else f"in ascending size (seed {about.seed})")  # fmt: skip
    across = request.compares and request.allocations > 1 and about.how == "jobs"
    pairs = (
        "A comparison is the Hodges-Lehmann estimate of the log ratios of pairs with Wilcoxon's exact interval"
        f"{', of the mean of each allocation where there are 6 or more' if across else ''}; pairs whose halves ran in "
        "different allocations are left out."
        if request.compares else
        "Sizes are compared by the two-sample Hodges-Lehmann estimate of their ratio with Mann and Whitney's exact "
        "interval."
    )  # fmt: skip
    return (
        f"The runs were made {order}, {how}; {warm} went before as a warm-up, kept in the table and in no statistic.",
        "A size has the median of its runs: with the order-statistics interval (95 % or more) if each run had an "
        "allocation of its own and there are 6 or more, otherwise with the range of its runs and no verdict.",
        "Speed-up and efficiency are against the smallest size measured of the same variant, which has its own spread.",
        pairs,
        "Intervals are exact, at least 95 %, and not corrected for several comparisons; verdicts are, by Holm's method "
        "over all sizes and variants of a metric, and where the runs are too few for one none is given.",
    )
