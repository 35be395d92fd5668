"""`Metric`: a number that a program prints, as a study or an option declares it."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Literal

from stackyard.core.errors import InputError
from stackyard.inputs.reading.latemodel import Field, LateModel
from stackyard.study.metrics.measured import Quantity


class Metric(LateModel):
    """One number of a run: by a pattern, a key or a tag; without these one that is known, by its name."""

    name: str = Field(min_length=1, description="Of its column, e.g. images/s")
    pattern: str = Field("", description="A regular expression with one group, the number, e.g. 'speed: ([0-9.]+)'")
    key: str = Field("", description="A key of JSON objects on lines of their own; a.b is b within a")
    tag: str = Field("", description="The tag of a scalar in TensorBoard's event files")
    unit: str = Field("", description="For display, e.g. images/s")
    kind: Literal["rate", "time"] = Field("rate", description="Something per second, or a time")
    better: Literal["", "higher", "lower"] = Field("", description="Empty: higher for a rate, lower for a time")
    over_ranks: Literal["", "first", "sum", "mean", "slowest"] = Field(
        "", description="What is made of the values of several ranks; empty: they must be equal"
    )
    over_steps: Literal["all", "last"] = Field(
        "all", description="Of several values all after the warm-up count, or the last, which the program averaged"
    )

    def checked(self) -> None:
        """Raise ValueError if it names two places, or the pattern has not one group."""
        if sum(map(bool, (self.pattern, self.key, self.tag))) > 1:
            raise ValueError("one of pattern, key and tag says where the number is")
        try:
            groups = re.compile(self.pattern).groups if self.pattern else 1
        except re.error as error:
            raise ValueError(f"pattern {self.pattern!r}: {error}") from error
        if groups != 1:
            raise ValueError(f"pattern {self.pattern!r} has {groups} groups; it needs one, around the number")

    @property
    def quantity(self) -> Quantity:
        """What the number means."""
        better = self.better or ("higher" if self.kind == "rate" else "lower")
        return Quantity(self.name, self.unit, self.kind, better, self.over_ranks)

    def over(self, known: Quantity) -> Quantity:
        """A known quantity with what is declared about it."""
        return replace(known, unit=self.unit or known.unit, better=self.better or known.better,
                       over_ranks=self.over_ranks or known.over_ranks)  # fmt: skip


def measured_by(text: str) -> Metric:
    """The metric of ``--measure NAME=PATTERN``, or of ``--measure NAME`` for one that is known. Raises InputError."""
    name, _, pattern = text.partition("=")
    try:
        found: Metric = Metric(name=name, pattern=pattern)
    except ValueError as error:
        hint = r"the pattern has one group, the number: --measure 'images/s=speed: (\S+)'"
        raise InputError(f"--measure {text}: not NAME=PATTERN", hint=hint) from error
    return found
