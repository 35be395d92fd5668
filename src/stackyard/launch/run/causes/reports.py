"""The errors that a log ends with and that no rule knows: what is left to say of its failure. Pure."""

from __future__ import annotations

import re
from collections import deque
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from stackyard.launch.run.causes.lines import Line

_REPORTS = re.compile(
    r"\b(?:[Ee]rror|ERROR|[Ff]atal|FATAL)\b(?: \w+)?: |\b(?:FATAL|ERROR|FAILED)\s*$|\b[Ff]atal error\b"
)
_TOLD = re.compile(r"\b(?:[Ee]rror|ERROR|[Ff]atal|FATAL|[Ff]ailed|FAILED|[Cc]annot|[Cc]ould not|[Uu]nable to)\b")
_MEASURES = re.compile(
    r"(?i)\b(?:errors?|fatal|failed)\b\W{0,20}(?:[-+]?\d|nan|none|no\b|null|false|true|ok)|"
    r"\b(?:0|no|zero|without|any|if|relative|absolute|squared?|rms\w*|max\w*|mean|l2|norm|train\w*|test\w*|val\w*|"
    r"standard|std|residual|sampling|numerical|on|set) (?:errors?|fatal)\b"
)
"""A number that a program computes, a count of none, or a setting."""
WITHIN = 2
"""How many lines may follow the last report, or lie between two, empty ones included."""


def reports(text: str) -> bool:
    """Whether a line mentions an error."""
    return _TOLD.search(text) is not None


class Reports:
    """The last lines of a stream that mention an error and that no rule knows."""

    def __init__(self) -> None:
        self._lines: deque[Line] = deque(maxlen=50)

    def add(self, line: Line) -> None:
        """Keep a line."""
        self._lines.append(line)

    @property
    def last(self) -> str:
        """The last one; empty without any."""
        return self._lines[-1].text if self._lines else ""

    def at_the_end(self, number: int) -> Line | None:
        """The first of the reports with which a stream ended, whose last line has this number; None without."""
        first, after = None, number
        for line in reversed(self._lines):
            is_one = _REPORTS.search(line.text) and not _MEASURES.search(line.text)
            if not line.number or after - line.number > WITHIN or not is_one:
                break
            first, after = line, line.number
        return first
