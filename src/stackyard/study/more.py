"""Runs beyond those that were asked for, until the median of each size is known well enough."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import groupby
from operator import attrgetter

from stackyard.core.findings import counted
from stackyard.study import store
from stackyard.study.execute import Study
from stackyard.study.schedule import JobPlan, one_size
from stackyard.study.statistics import series
from stackyard.study.table import Row


def jobs(study: Study, tell: Callable[[str], None]) -> list[JobPlan]:
    """One more job for each size whose median is not known to ``until_percent`` yet; stored, not started.

    A size stops at ``most_repeats``, and when a run of it failed: it would go on for ever.

    Args:
        tell: is told, before the first further run of a size, how many there will probably be.
    """
    request = study.request
    if not request.until_percent:
        return []
    found, rows = [], [row for row in store.rows(study.paths) if row.counts]
    for nodes, group in groupby(store.read_jobs(study.paths), key=attrgetter("nodes")):
        known = list(group)
        repeats = max(point.repeat for job in known for point in job.points)
        values = _values(rows, nodes)
        if repeats >= request.most_repeats or len(values) < max(2, repeats):
            continue
        if series.is_enough(values, request.until_percent / 100):
            continue
        if repeats == request.repeats:
            tell(_expected(nodes, values, request.until_percent, request.most_repeats))
        cold = study.about.how != "here"
        allocation = max(job.allocation for job in known) + 1
        found.append(one_size(request, nodes, allocation, [repeats + 1], cold=cold))
        store.add_job(study.paths, found[-1])
    return found


def _expected(nodes: int, values: Sequence[float], percent: float, most: int) -> str:
    runs = series.runs_expected(values, percent / 100)
    limit = f"; it stops at {most}" if runs > most else ""
    return f"{counted(nodes, 'node')}: ±{percent:g} % will take some {runs} runs, by the first {len(values)}{limit}"


def _values(rows: Sequence[Row], nodes: int) -> list[float]:
    """The values of a size's first metric."""
    own = [row for row in rows if row.nodes == nodes]
    return [row.value for row in own if row.metric == own[0].metric and row.value is not None]
