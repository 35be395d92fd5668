"""The figures of a study: the factor between variants, scaling, and all runs."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence

from stackyard.core.late import dataclass
from stackyard.study.analysis import MetricColumn, Results, Series
from stackyard.study.report.document import Figure, said
from stackyard.study.report.svg import COLOURS, WIDTH, Drawing, dash_of, ticks
from stackyard.study.report.words import better, ends, factor_title, nodes, number, title_of
from stackyard.study.statistics.exact import Interval
from stackyard.study.statistics.ratios import DIFFERENT, Comparison

LEFT, RIGHT, HEIGHT, ROW = 68.0, WIDTH - 16.0, 220.0, 36
BARS = "Solid bars with ends are 95 % intervals, dashed bars the range of the runs."
MOST_DOTS = 400
"""Runs of one size and variant that are drawn; of more, every second, every third ..."""
Curves = Mapping[str, Sequence[tuple[int, Interval]]]
Place = Callable[[float], float]
Marks = list[tuple[float, str]]


@dataclass(frozen=True)
class Factor:
    """One line of a figure of factors."""

    label: str
    comparison: Comparison

    @property
    def told(self) -> str:
        """It in words."""
        ratio = self.comparison.ratio
        return f"{self.label}: factor {number(ratio.value)}, {ends(ratio)}, {self.comparison.text}"


def figures(found: Results, metric: MetricColumn) -> Iterator[Figure]:
    """The figures of a metric, the main one first."""
    factors = [Factor(f"{nodes(each.nodes)}: {said(each.variant, 60)}", each.comparison)
               for each in found.versus if each.metric == metric and each.comparison]  # fmt: skip
    if factors:
        yield factor_figure(factors, metric, said(found.variants[0], 60))
    scaled = [each for each in found.of(metric) if each.scaling]
    if len({each.nodes for each in scaled}) > 1:
        if found.request.scaling != "throughput":
            yield _scaling_figure(found, metric, scaled, "efficiency")
        yield _scaling_figure(found, metric, scaled, "speedup")
    if found.of(metric):
        yield _runs_figure(found, metric)


def _figure(
    name: str, metric: MetricColumn, title: str, caption: str, told: str, drawn: tuple[Drawing, float]
) -> Figure:
    identity = re.sub(r"[^A-Za-z0-9]", lambda match: f"-{ord(match[0]):x}", f"{name} {metric.name} {metric.unit}")
    return Figure(name, metric.name, caption, drawn[0].rendered(identity, title, told, drawn[1]))


def factor_figure(factors: Sequence[Factor], metric: MetricColumn, first: str) -> Figure:
    """Ratios with their intervals, on a logarithmic axis with a line at 1."""
    shown = [value for each in factors for value in (each.comparison.ratio.low, each.comparison.ratio.high, 1.0)]
    marks = [mark for mark in ticks(100 * (min(shown) - 1), 100 * (max(shown) - 1), 6) if mark > -99]
    low, high = (math.log(value) for value in (min(1 + marks[0] / 100, *shown), 1 + marks[-1] / 100))
    drawing, title = Drawing(), factor_title(metric, first)
    drawing.text((14, 16), title, bold=True)
    bottom = 28.0 + ROW * len(factors)

    def x(ratio: float) -> float:
        return 30 + (RIGHT - 46) * (math.log(ratio) - low) / max(high - low, 1e-9)

    for mark in marks:
        at = x(1 + mark / 100)
        for row in range(len(factors)):  # broken where the names are
            y = 52.0 + ROW * row
            drawing.line([(at, y - 7), (at, y + 10)], "i" if mark == 0 else "f", width=1.5 if mark == 0 else 0.5)
        drawing.text((at, bottom + 16), f"{mark:+g} %" if mark else "1", anchor="middle", faint=mark != 0)
    for row, each in enumerate(factors):
        ratio, y = each.comparison.ratio, 52.0 + ROW * row
        drawing.text((14, y - 11), each.label)
        drawing.interval((x(ratio.low), y), (x(ratio.high), y), "c0", is_range=ratio.is_range)
        drawing.mark((x(ratio.value), y), 0, hollow=each.comparison.verdict != DIFFERENT, tip=each.told)
    drawing.text((14, bottom + 36), f"← {first} is {better(metric)}", faint=True)
    drawing.text((RIGHT, bottom + 36), f"{better(metric)} than {first} →", anchor="end", faint=True)
    caption = f"{title}. {BARS} A filled mark: different, by all comparisons together; a hollow one: any other verdict."
    told = "; ".join(each.told for each in factors)
    return _figure("comparison", metric, title, caption, told, (drawing, bottom + 48))


def _scaling_figure(found: Results, metric: MetricColumn, scaled: Sequence[Series], name: str) -> Figure:
    """Speed-up, with both axes logarithmic, or efficiency in percent; with the ideal line and the baseline."""
    is_speedup = name == "speedup"
    curves = {variant: list(_curve(scaled, variant, name)) for variant in found.variants}
    curves = {variant: curve for variant, curve in curves.items() if curve}
    sizes = sorted({each.nodes for each in scaled})
    bases = sorted({each.scaling.base for each in scaled if each.scaling})
    base = nodes(bases[0]) if len(bases) == 1 else "the smallest size of each"
    ideal = [(size, size / bases[0] if is_speedup else 1.0) for size in (sizes[0], sizes[-1])]
    values = [value for _, value in ideal]
    values += [value for curve in curves.values() for _, each in curve for value in (each.low, each.high)]
    what = "Speed-up" if is_speedup else f"{found.request.scaling.capitalize()} efficiency"
    title = f"{what}, {title_of(metric)}"
    drawing = Drawing()
    top = drawing.heading(title, [*curves, "ideal"], lines=1)
    y, marks = _speedups(values, top) if is_speedup else _shares(values, top)
    _axes(drawing, top, [(y(value), text) for value, text in marks])

    def x(size: float) -> float:
        return LEFT + 24 + (RIGHT - LEFT - 48) * math.log(size / sizes[0]) / math.log(sizes[-1] / sizes[0])

    for at, size in enumerate(sizes):
        if at in (0, len(sizes) - 1) or len(sizes) < 12:
            drawing.text((x(size), top + HEIGHT + 17), f"{size:,}", anchor="middle", faint=True)
    drawing.text((LEFT, top + HEIGHT + 36), f"nodes (baseline: {base} = {'1' if is_speedup else '100 %'})")
    drawing.line([(x(size), y(value)) for size, value in ideal], "f", width=1.4, dash="4 4")
    _curves(drawing, curves, x, y)
    told = "; ".join(f"{said(variant, 60)} on {nodes(size)}: {number(each.value)}, {ends(each)}"
                     for variant, curve in curves.items() for size, each in curve)  # fmt: skip
    notes = dict.fromkeys(each.scaling.note for each in scaled if each.scaling and each.scaling.note)
    caption = " ".join([f"{title}, against {base}, which is drawn with its own spread. {BARS}",
                        *(f"{note[0].upper()}{note[1:]}." for note in notes)])  # fmt: skip
    return _figure(name, metric, title, caption, told, (drawing, top + HEIGHT + 48))


def _curve(scaled: Sequence[Series], variant: str, name: str) -> Iterator[tuple[int, Interval]]:
    for each in scaled:
        if each.variant == variant and each.scaling:
            interval = each.scaling.speedup if name == "speedup" else each.scaling.efficiency
            if interval:
                yield each.nodes, interval


def _speedups(values: Sequence[float], top: float) -> tuple[Place, Marks]:
    """The place of a factor on a logarithmic axis, and its marks: powers of two."""
    first, last = math.floor(math.log2(min(values)) + 0.2), math.ceil(math.log2(max(values)) - 0.2)
    last = max(last, first + 1)
    span = 1.16 * (last - first)
    step = math.ceil((last - first) / 8)
    marks = [(2.0**power, f"{2.0**power:g}") for power in range(first, last + 1, step)]
    return (lambda value: top + HEIGHT * (last + 0.07 * span - math.log2(value)) / span), marks


def _shares(values: Sequence[float], top: float) -> tuple[Place, Marks]:
    """The place of a share on an axis that need not begin at 0, and its marks in percent."""
    marks = ticks(100 * min(values) - 2, 100 * max(values) + 2)
    span = marks[-1] - marks[0]
    return (lambda value: top + HEIGHT * (marks[-1] - 100 * value) / span), [(m / 100, f"{m:g} %") for m in marks]


def _axes(drawing: Drawing, top: float, marks: Marks) -> None:
    for at, text in marks:
        drawing.line([(LEFT, at), (RIGHT, at)], "f", width=0.4)
        drawing.text((LEFT - 6, at + 4), text, anchor="end", faint=True)
    drawing.line([(LEFT, top), (LEFT, top + HEIGHT), (RIGHT, top + HEIGHT)])


def _curves(drawing: Drawing, curves: Curves, x: Place, y: Place) -> None:
    """The curves, set apart by some pixels so that their bars can be told from each other."""
    for index, (variant, curve) in enumerate(curves.items()):
        shift, style = 7 * (index - (len(curves) - 1) / 2), f"c{index % len(COLOURS)}"
        points = [(x(size) + shift, y(interval.value)) for size, interval in curve]
        drawing.line(points, style, width=2, dash=dash_of(index))
        for at, (size, interval) in zip(points, curve, strict=True):
            drawing.interval((at[0], y(interval.low)), (at[0], y(interval.high)), style, is_range=interval.is_range)
            tip = f"{said(variant, 60)}, {nodes(size)}: {number(interval.value)} ({ends(interval)})"
            drawing.mark(at, index, tip=tip)


def _runs_figure(found: Results, metric: MetricColumn) -> Figure:
    """All runs, in percent of the first variant's median in the same size, from left to right as they ran."""
    columns = found.of(metric)
    medians = {each.nodes: each.median.value for each in reversed(columns) if each.median and each.median.value}
    columns = [each for each in columns if each.nodes in medians]
    shares = [100 * value / medians[each.nodes] for each in columns for value in each.values] or [99, 101]
    names = [variant for variant in found.variants if any(each.variant == variant for each in columns)]
    title = f"All runs, {title_of(metric)}"
    drawing = Drawing()
    top = drawing.heading(title, names)
    marks = ticks(min(shares) - 0.5, max(shares) + 0.5)

    def y(share: float) -> float:
        return top + HEIGHT * (marks[-1] - min(max(share, marks[0]), marks[-1])) / (marks[-1] - marks[0])

    _axes(drawing, top, [(y(mark), f"{mark:g} %") for mark in marks])
    width = (RIGHT - LEFT) / max(len(columns), 1)
    for index, each in enumerate(columns):
        kind, scale = names.index(each.variant), 100 / medians[each.nodes]
        for at, value, tip, hollow in _dots(found, each):
            drawing.mark((LEFT + width * (index + at), y(scale * value)), kind, size=2.6, hollow=hollow, tip=tip)
        if each.median:
            drawing.line([(LEFT + width * (index + at), y(scale * each.median.value)) for at in (0.12, 0.88)])
    _groups(drawing, [each.nodes for each in columns], width, top)
    told = "; ".join(f"{said(each.variant, 60)} on {nodes(each.nodes)}: {len(each.values)} runs, {ends(each.median)}"
                     for each in columns if each.median)  # fmt: skip
    first = f"the median of {said(names[0], 60)}" if len(names) > 1 else "the median"
    caption = f"{title}, in percent of {first} in the same size, from left to right as they ran; lines are medians."
    caption += " Hollow marks are warm-up runs, which do not count; what is beyond the axis is at its edge."
    return _figure("runs", metric, title, caption, told, (drawing, top + HEIGHT + 48))


def _dots(found: Results, each: Series) -> Iterator[tuple[float, float, str, bool]]:
    """Of each run of one size and variant: its place from 0 to 1, its value, its name, and whether it is a warm-up."""
    runs = [record for record in found.records if (record.point.nodes, record.point.variant) == each.key]
    valued = [(record, value) for record in runs if (value := found.value(record, each.metric)) is not None]
    step = -(-len(valued) // MOST_DOTS)
    for at, (record, value) in list(enumerate(valued, 1))[:: step or 1]:
        warm = ", warm-up" if record.point.warmup else ""
        yield at / (len(valued) + 1), value, said(f"{record.point.id}: {number(value)}{warm}", 120), bool(warm)


def _groups(drawing: Drawing, sizes: Sequence[int], width: float, top: float) -> None:
    """The sizes below their columns, with a line after each."""
    for size in dict.fromkeys(sizes):
        first, count = sizes.index(size), sizes.count(size)
        right = LEFT + width * (first + count)
        drawing.text((right - width * count / 2, top + HEIGHT + 17), f"{size:,}", anchor="middle", faint=True)
        drawing.line([(right, top), (right, top + HEIGHT)], "f", width=0.6)
    drawing.text((LEFT, top + HEIGHT + 36), "nodes")
