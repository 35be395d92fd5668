"""The table of a study: one row per run and metric, as ``table.csv`` has it.

A reader needs this file alone: spreadsheets, pandas, a ReFrame test.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable
from dataclasses import astuple, fields

from stackyard.core.late import dataclass

DONE = "done"
"""The state of a run that counts."""


@dataclass(frozen=True)
class Row:
    """One run with the value of one metric.

    Attributes:
        repeat: counted from 1; 0 for a warm-up run.
        allocation: the job in which it ran, counted from 1 for each size.
        order: its place in that job, counted from 1.
        value: None: the run has none (it failed, was not run, or the metric was not in its output).
        hosts: the nodes, separated by blanks.
        run: the run directory, relative to the study.
        state: ``done``, ``failed``, ``no-value``, ``interrupted``, ``running`` or ``missing``.
    """

    nodes: int
    ranks: int
    variant: str
    repeat: int
    allocation: int
    order: int
    warmup: bool
    metric: str
    value: float | None
    unit: str
    hosts: str
    run: str
    state: str

    @property
    def counts(self) -> bool:
        """Whether statistics use it: it has ended well, has a value, and is not a warm-up."""
        return self.state == DONE and not self.warmup and self.value is not None


COLUMNS = tuple(field.name for field in fields(Row))


def table_text(rows: Iterable[Row]) -> str:
    """The rows as CSV with a header. Values have all their digits; a missing one is empty."""
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow(COLUMNS)
    writer.writerows([int(each) if isinstance(each, bool) else each for each in astuple(row)] for row in rows)
    return stream.getvalue()
