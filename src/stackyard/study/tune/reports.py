"""The reader of what a trial reports: a line of JSON with the metric, or a line that a pattern matches.

It stands on the reader of a run's metrics (`study.metrics`), and differs from it in two things: a loss may be negative
or 0, and beside the metric stands the resource, such as the epoch, at which it was measured.
"""

from __future__ import annotations

import json
import re
from typing import NamedTuple

from stackyard.core.errors import InputError
from stackyard.study.metrics.formats import inner
from stackyard.study.metrics.lines import number
from stackyard.study.tune.request import SearchRequest


class Report(NamedTuple):
    """A value; `resource` is None where the line does not have it."""

    resource: int | None
    value: float


class ReportReader:
    """Reads the lines of a trial's first rank."""

    def __init__(self, request: SearchRequest) -> None:
        """Raises InputError: the resource of a pattern is not a pattern itself."""
        metric = request.metric
        self.key, self._resource = metric.key or metric.name, request.resource
        self._pattern = re.compile(metric.pattern) if metric.pattern else None
        self._counter: re.Pattern[str] | None = None
        if self._pattern and request.resource:
            try:
                self._counter = re.compile(request.resource)
                if self._counter.groups != 1:
                    raise re.error("it needs one group, around the number")
            except re.error as error:
                hint = r"beside a pattern `resource` is one too: resource: 'epoch (\d+)'"
                raise InputError(f"resource {request.resource!r}: {error}", hint=hint) from error

    @property
    def needle(self) -> str:
        """A regular expression that each line of interest matches, for the worker."""
        return self._pattern.pattern if self._pattern else re.escape(f'"{self.key.rpartition(".")[2]}"')

    def read(self, line: str) -> Report | None:
        """The report of a line; None if it has none."""
        if self._pattern:
            match = self._pattern.search(line)
            count = self._counter.search(line) if self._counter and match else None
            return Report(_whole(number(count[1])) if count else None, number(match[1] or "")) if match else None
        try:
            row = json.loads(line[line.index("{") :])
        except (ValueError, RecursionError):
            return None
        if not isinstance(row, dict) or (value := inner(row, self.key)) is None:
            return None
        resource = inner(row, self._resource) if self._resource else None
        return Report(None if resource is None else _whole(resource), value)


def _whole(value: float) -> int | None:
    return int(value) if 0 <= value < 1e12 else None
