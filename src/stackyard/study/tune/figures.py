"""The figures of a search: parallel coordinates, the importance of parameters, learning curves."""

from __future__ import annotations

import math
from collections.abc import Sequence

from stackyard.study.report.document import Figure, said
from stackyard.study.report.svg import WIDTH, Drawing, ticks
from stackyard.study.report.words import number
from stackyard.study.tune.progress import TrialProgress
from stackyard.study.tune.request import Parameter, shown
from stackyard.study.tune.results import SearchResults

TOP, HEIGHT, LEFT, RIGHT = 64.0, 220.0, 56.0, WIDTH - 40.0
MOST_LINES, BEST = 300, 5
"""Trials that are drawn, and of these the best, which stand out."""


def parallel_figure(found: SearchResults) -> Figure:
    """A line for each trial, over an axis for each parameter and one for the metric."""
    metric = found.request.metric.name
    trials = [one for one in found.trials if one.value is not None and not one.is_bad][:MOST_LINES]
    drawing, title = Drawing(), f"Parallel coordinates: {said(metric, 60)} of {len(trials)} trials"
    drawing.text((14, 16), title, bold=True)
    names = [*found.request.parameters, metric]
    places = [LEFT + (RIGHT - LEFT) * at / (len(names) - 1) for at in range(len(names))]
    values = [one.value for one in trials if one.value is not None]
    low, high = min(values), max(values)
    for at, (x, name) in enumerate(zip(places, names, strict=True)):
        drawing.line([(x, TOP), (x, TOP + HEIGHT)], "f")
        drawing.text((x, TOP - 22 + 14 * (at % 2)), said(name, 16), anchor="middle")
        one = found.request.parameters.get(name) if at < len(names) - 1 else None
        ends = _ends(one) if one else (number(low), number(high))
        drawing.text((x, TOP + HEIGHT + 16), ends[0], anchor="middle", faint=True)
        drawing.text((x, TOP - 38), ends[1], anchor="middle", faint=True)
    for place, trial in reversed(list(enumerate(trials))):
        heights = [_height(one, trial.params[name]) for name, one in found.request.parameters.items()]
        assert trial.value is not None
        heights.append((trial.value - low) / (high - low) if high > low else 0.5)
        points = [(x, TOP + HEIGHT * (1 - height)) for x, height in zip(places, heights, strict=True)]
        drawing.line(points, "c1" if place < BEST else "f", width=1.8 if place < BEST else 0.4)
    caption = f"Each line is a trial; the best {min(BEST, len(trials))} stand out. {found.request.better} is better."
    told = f"best: {_told(trials[0])}" if trials else "no trial has a value"
    return Figure("parallel", metric, caption, drawing.rendered("parallel", title, told, TOP + HEIGHT + 30))


def _told(trial: TrialProgress) -> str:
    return ", ".join(f"{said(name, 40)} {said(shown(value), 40)}" for name, value in trial.params.items())


def _ends(one: Parameter) -> tuple[str, str]:
    if one.choice:
        return said(one.choice[0], 10), said(one.choice[-1], 10)
    return f"{one.range[0]:g}", f"{one.range[1]:g}"


def _height(one: Parameter, value: object) -> float:
    """The place of a value on its axis, 0 to 1."""
    if one.choice:
        return one.choice.index(str(value)) / max(1, len(one.choice) - 1) if str(value) in one.choice else 0.0
    low, high = one.range
    at = float(str(value))
    if one.kind == "loguniform":
        low, high, at = math.log(low), math.log(high), math.log(max(at, 1e-300))
    return min(1.0, max(0.0, (at - low) / (high - low)))


def importance_figure(found: SearchResults) -> Figure:
    """A bar for each parameter."""
    drawing, title = Drawing(), f"Importance of the parameters for {said(found.request.metric.name, 60)}"
    drawing.text((14, 16), title, bold=True)
    for row, (name, share) in enumerate(found.importance.items()):
        y = 44.0 + 34 * row
        drawing.text((14, y - 6), f"{said(name, 40)}: {100 * share:.0f} %")
        drawing.line([(14, y + 6), (14 + max(1.0, (RIGHT - 14) * share), y + 6)], "c0", width=8)
    told = "; ".join(f"{said(name, 40)} {100 * share:.0f} %" for name, share in found.importance.items())
    caption = "The share of the differences between trials that follows from one parameter by itself."
    height = 44.0 + 34 * len(found.importance)
    return Figure("importance", found.request.metric.name, caption, drawing.rendered("importance", title, told, height))


def curves_figure(found: SearchResults) -> Figure:
    """The reports of each trial."""
    metric, trials = found.request.metric.name, found.curves[:MOST_LINES]
    drawing, title = Drawing(), f"{said(metric, 60)} by {said(found.request.resource or 'report', 40)}"
    drawing.text((14, 16), title, bold=True)
    points = [(at, value) for one in trials for at, value in one.reports.items()]
    marks = ticks(min(value for _, value in points), max(value for _, value in points))
    last = max(at for at, _ in points)
    low, high = marks[0], max(marks[-1], marks[0] + 1e-12)

    def place(at: float, value: float) -> tuple[float, float]:
        return 68 + (RIGHT - 68) * at / last if last else 68, 36 + HEIGHT * (1 - (value - low) / (high - low))

    for mark in marks:
        drawing.line([place(0, mark), place(last, mark)], "f", width=0.4)
        drawing.text((62, place(0, mark)[1] + 4), f"{mark:.4g}", anchor="end", faint=True)
    for row, trial in reversed(list(enumerate(trials))):
        line: Sequence[tuple[float, float]] = [place(at, value) for at, value in sorted(trial.reports.items())]
        drawing.line(line, "c1" if row < BEST else "f", width=1.8 if row < BEST else 0.6)
    drawing.text((RIGHT, 36 + HEIGHT + 16), f"{last:,}", anchor="end", faint=True)
    caption = f"Each line is a trial; the best {min(BEST, len(trials))} stand out. {found.request.better} is better."
    told = f"{len(trials)} trials, up to {last:,}"
    return Figure("curves", metric, caption, drawing.rendered("curves", title, told, HEIGHT + 66))
