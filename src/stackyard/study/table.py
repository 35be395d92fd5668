"""The table of a study: one row per run and metric, as ``table.csv`` has it.

A reader needs this file alone: spreadsheets, pandas, and `stackyard report` of another study.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterable
from dataclasses import fields
from pathlib import Path
from typing import get_type_hints

from stackyard.core.errors import InputError
from stackyard.core.late import dataclass
from stackyard.host.files import at

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
    for row in rows:
        writer.writerow([_text(getattr(row, name)) for name in COLUMNS])
    return stream.getvalue()


def _text(value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return str(int(value))
    return repr(value) if isinstance(value, float) else str(value)


def read_table(path: Path) -> list[Row]:
    """The rows of a ``table.csv``; columns that are not known are skipped.

    Raises:
        InputError: it cannot be read, lacks a column, or a value is wrong: with the line.
    """
    try:
        text = at.read_regular(path).decode("utf-8", "replace")
    except OSError as error:
        raise InputError(f"cannot read {path}: {(error.strerror or 'unreadable').lower()}") from error
    lines = csv.DictReader(io.StringIO(text, newline=""))
    missing = [name for name in COLUMNS if name not in (lines.fieldnames or ())]
    if missing:
        raise InputError(f"{path}:1: missing column {missing[0]}", hint=f"the columns are {', '.join(COLUMNS)}")
    return [_row(path, lines.line_num, values) for values in lines]


def _row(path: Path, line: int, values: dict[str, str | None]) -> Row:
    found: dict[str, object] = {}
    for name, kind in _KINDS.items():
        text = values[name] or ""
        try:
            found[name] = kind(text)
        except ValueError:
            raise InputError(f"{path}:{line}: {name}: {text[:80]!r} is not a number") from None
    return Row(**found)  # type: ignore[arg-type]


def _number(text: str) -> float | None:
    return float(text) if text else None


def _flag(text: str) -> bool:
    return bool(int(text))


_READERS: dict[object, Callable[[str], object]] = {int: int, str: str, bool: _flag}
_KINDS = {name: _READERS.get(get_type_hints(Row)[name], _number) for name in COLUMNS}
