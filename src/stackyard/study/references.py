"""A study as a regression test: the medians of its runs against references, those of the site and its own."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from stackyard.core.late import dataclass
from stackyard.inputs.sites.references import StudyReference
from stackyard.study.request import StudyRequest
from stackyard.study.statistics.exact import Interval

if TYPE_CHECKING:
    from stackyard.study.analysis import Series


@dataclass(frozen=True)
class Expected:
    """A reference for one size of one variant."""

    nodes: int
    variant: str
    reference: StudyReference


@dataclass(frozen=True)
class Judgement:
    """Whether one reference is met.

    Attributes:
        median: of the runs that count, with its interval or range; None without any.
        problem: why it is not met; empty: it is.
    """

    expected: Expected
    median: Interval | None
    problem: str

    @property
    def is_met(self) -> bool:
        """Whether the median is within the limits."""
        return not self.problem

    @property
    def limits(self) -> str:
        """The share by which the median may differ, as ``-5 % +10 %``."""
        shares = (("-", self.expected.reference.low), ("+", self.expected.reference.high))
        return " ".join(f"{sign}{100 * share:g} %" for sign, share in shares if share)


def expected(request: StudyRequest, of_site: Iterable[StudyReference] = ()) -> list[Expected]:
    """The references for the sizes and variants that a study measures: its own, and those of the site with its name.

    References for other sizes or variants are for other studies.
    """
    names = {"", request.name, Path(request.job.program[0]).stem}
    references = [*request.references, *(each for each in of_site if each.study in names)]
    return [
        Expected(nodes, variant, reference)
        for reference in references
        for nodes in sorted(request.nodes)
        for variant in request.all_variants
        if reference.nodes in (0, nodes) and reference.variant in ("", variant)
    ]


def judged(series: Sequence[Series], references: Iterable[Expected]) -> tuple[Judgement, ...]:
    """Each reference against the median of the runs that count; a size that was not measured has not met it."""
    known = {(each.metric.name, *each.key): each for each in series}
    return tuple(_judged(known.get((one.reference.metric, one.nodes, one.variant)), one) for one in references)


def _judged(series: Series | None, expected: Expected) -> Judgement:
    reference = expected.reference
    if series is None or series.median is None:
        return Judgement(expected, None, "not measured")
    found, unit = series.median, series.metric.unit
    if reference.unit and unit and unit != reference.unit:
        return Judgement(expected, found, f"measured in {unit}, but the reference is in {reference.unit}")
    least, most = reference.value * (1 - reference.low), reference.value * (1 + reference.high)
    if reference.low and found.value < least:
        return Judgement(expected, found, f"below {least:.6g}")
    return Judgement(expected, found, f"above {most:.6g}" if reference.high and found.value > most else "")
