"""Runs beyond those that were asked for, until the median of each size is known well enough."""

from __future__ import annotations

from collections.abc import Sequence

from stackyard.core.errors import InputError
from stackyard.study import store
from stackyard.study.execute import Study
from stackyard.study.schedule import JobPlan, one_size
from stackyard.study.statistics import series

FIRST = 3
"""Runs of a size from which the number of all is estimated."""


def jobs(study: Study) -> list[JobPlan]:
    """One more job for each size whose median is not known to ``until_percent`` yet; stored, not started.

    A size stops at ``most_repeats``, and when a run of it failed: it would go on for ever.
    """
    request = study.request
    if not request.until_percent:
        return []
    found = []
    for nodes, known in _by_size(study).items():
        if len(known) >= request.most_repeats or any(not study.is_complete(job) for job in known):
            continue
        values = values_of(study, nodes)
        if len(values) < len(known) or series.is_enough(values, request.until_percent / 100):
            continue
        number = max(job.allocation for job in known) + 1
        found.append(one_size(request, nodes, number, [number]))
        store.add_job(study.paths, found[-1])
    return found


def expected(study: Study) -> dict[int, int]:
    """By size, the number of runs after which the median will probably be known to ``until_percent``."""
    found = {}
    for nodes in _by_size(study):
        values = values_of(study, nodes)
        if len(values) >= FIRST:
            try:
                found[nodes] = series.runs_expected(values, study.request.until_percent / 100)
            except InputError:
                continue
    return found


def _by_size(study: Study) -> dict[int, list[JobPlan]]:
    found: dict[int, list[JobPlan]] = {}
    for job in store.read_jobs(study.paths):
        found.setdefault(job.nodes, []).append(job)
    return found


def values_of(study: Study, nodes: int) -> Sequence[float]:
    """The values of a size's first metric, warm-up runs left out."""
    rows = [row for row in store.rows(study.paths) if row.counts and row.nodes == nodes]
    return [row.value for row in rows if row.metric == rows[0].metric and row.value is not None]
