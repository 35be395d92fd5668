"""`Metric`: a number that a program prints, as a study or an option declares it."""

from __future__ import annotations

import re
from typing import Literal

from stackyard.core.errors import InputError
from stackyard.inputs.reading.latemodel import Field, LateModel


class Metric(LateModel):
    """One number of a run, by a pattern in its output."""

    name: str = Field(description="Of its column, e.g. images/s")
    pattern: str = Field(description="A regular expression with one group, the number; the last match counts")
    unit: str = ""
    better: Literal["higher", "lower"] = "higher"
    kind: Literal["rate", "time"] = "rate"

    def checked(self) -> None:
        """Raise ValueError if the pattern is none, or has not one group."""
        try:
            groups = re.compile(self.pattern).groups
        except re.error as error:
            raise ValueError(f"pattern {self.pattern!r}: {error}") from error
        if groups != 1:
            raise ValueError(f"pattern {self.pattern!r} has {groups} groups; it needs one, around the number")


def measured_by(text: str) -> Metric:
    """The metric of ``--measure NAME=PATTERN``. Raises InputError."""
    name, equals, pattern = text.partition("=")
    if not (name and equals):
        raise InputError(f"--measure {text}: not NAME=PATTERN", hint=r"e.g. --measure 'images/s=speed: (\S+)'")
    try:
        found: Metric = Metric(name=name, pattern=pattern)
    except ValueError as error:
        raise InputError(f"--measure {text}: not a metric", hint="the pattern has one group, the number") from error
    return found
