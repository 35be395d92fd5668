"""Reads the metrics of a run from the output of its first rank."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from stackyard.core.late import dataclass
from stackyard.launch.api.runs import RunPaths, rank_log
from stackyard.study.metrics.model import Metric


@dataclass(frozen=True)
class Measured:
    """What a run measured.

    Attributes:
        values: one for each metric, with ``name``, ``value``, ``unit``, ``better`` and ``kind``.
        problems: why a metric has no value.
    """

    values: tuple[dict[str, Any], ...] = ()
    problems: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Its values."""
        return asdict(self)


def read_run(paths: RunPaths, metrics: Sequence[Metric]) -> Measured:
    """The metrics of a run that has ended."""
    found: dict[str, str] = {}
    file = rank_log(paths, 0)
    if file.exists():
        with file.open(encoding="utf-8", errors="replace") as stream:
            for line in stream:
                for metric in metrics:
                    if match := re.search(metric.pattern, line):
                        found[metric.name] = match[1]
    values, problems = [], [] if metrics else ["no metric declared: use --measure"]
    for metric in metrics:
        try:
            value = float(found[metric.name])
        except (KeyError, ValueError):
            value = math.nan
        if math.isfinite(value):
            values.append({"name": metric.name, "value": value, "unit": metric.unit, "better": metric.better,
                           "kind": metric.kind})  # fmt: skip
        else:
            problems.append(f"no number for {metric.name} in the output of rank 0")
    return Measured(tuple(values), tuple(problems))
