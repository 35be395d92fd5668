"""What a study found: medians, scaling and comparisons of its runs, with what is left out of each. Pure.

The unit of a size is the allocation, that of a comparison the pair: where the runs of a size share allocations, it has
a range and no interval. Warm-up runs are in no number here.
"""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field, replace
from functools import cached_property
from itertools import product
from typing import TYPE_CHECKING, TypeGuard

from stackyard.core.errors import InputError
from stackyard.core.late import dataclass
from stackyard.study.arguments import sized
from stackyard.study.request import StudyRequest
from stackyard.study.statistics.exact import MOST_RUNS, Interval
from stackyard.study.statistics.ratios import NO_VERDICT, Comparison, Pair, compare_across, compare_all
from stackyard.study.statistics.scaling import Scaling, scaling
from stackyard.study.statistics.series import FEWEST, median
from stackyard.study.store import About, PointRecord

if TYPE_CHECKING:
    from stackyard.study.references import Judgement


@dataclass(frozen=True)
class MetricColumn:
    """A metric as its runs have it: ``better`` is ``higher`` or ``lower``, ``kind`` is ``rate`` or ``time``."""

    name: str
    unit: str = ""
    better: str = "higher"
    kind: str = "rate"

    @property
    def is_time(self) -> bool:
        """Whether it is a time: less of it is faster."""
        return self.kind == "time" and self.better == "lower"

    @property
    def scales(self) -> bool:
        """Whether a speed-up can be formed: it is a rate that should be high, or a time that should be low."""
        return self.is_time or (self.kind == "rate" and self.better == "higher")


def measured(record: PointRecord) -> dict[MetricColumn, float]:
    """The values of a finished run; what is not a finite number is skipped."""
    values = record.last.measured.get("values") if record.last and record.state == "done" else None
    found = {}
    for each in values if isinstance(values, list) else ():
        if isinstance(each, dict) and is_number(value := each.get("value")):
            texts = {name: str(each[name]) for name in ("name", "unit", "better", "kind") if name in each}
            found[MetricColumn(**{"name": "", **texts})] = value
    return found


def is_number(value: object) -> TypeGuard[float]:
    """Whether a value of a record is a finite number."""
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= 1e300


@dataclass(frozen=True)
class Series:
    """The runs of one size of one variant in one metric.

    Attributes:
        values: of the runs that count.
        left_out: how many planned runs have no value, by state.
        places: the number of allocations that the values are from.
        is_alone: each value is from an allocation of its own; else `median` has a range.
        median: None without values.
        scaling: against the smallest size of the variant; None where it cannot be formed.
        problem: why it cannot.
    """

    nodes: int
    variant: str
    metric: MetricColumn
    ranks: tuple[int, ...]
    values: tuple[float, ...]
    left_out: Mapping[str, int]
    places: int
    is_alone: bool
    median: Interval | None
    scaling: Scaling | None = None
    problem: str = ""

    @property
    def key(self) -> tuple[int, str]:
        """Its size and variant."""
        return self.nodes, self.variant

    @property
    def basis(self) -> str:
        """What `median.low` and `median.high` are."""
        if self.median is None:
            return "no value"
        if not self.median.is_range:
            return f"{100 * self.median.confidence:.0f} % interval"
        runs = f"range of {len(self.values)} run{'s' * (len(self.values) != 1)}"
        if self.is_alone:
            return f"{runs}; no verdict"
        return f"{runs} in {f'{self.places} allocations' if self.places > 1 else 'one allocation'}"


@dataclass(frozen=True)
class Versus:
    """A variant compared with the first one in one size; a ratio above 1: the variant is better.

    Attributes:
        pairs, planned: of runs that are next to each other, in one allocation; and how many there should be.
        apart: pairs left out since their runs were in different allocations.
        comparison: None without pairs; `problem` says why.
    """

    nodes: int
    variant: str
    first: str
    metric: MetricColumn
    pairs: int
    planned: int
    apart: int
    comparison: Comparison | None = None
    problem: str = ""

    @property
    def has_verdict(self) -> bool:
        """Whether it says anything."""
        return self.comparison is not None and self.comparison.verdict != NO_VERDICT


@dataclass(frozen=True)
class Results:
    """All that a report is made of."""

    name: str
    request: StudyRequest
    about: About
    records: tuple[PointRecord, ...]
    metrics: tuple[MetricColumn, ...]
    series: tuple[Series, ...]
    versus: tuple[Versus, ...] = ()
    typed: Mapping[tuple[int, str], str] = field(default_factory=dict)
    """By size and variant, a command line of ``stackyard launch`` that starts such a run."""
    judgements: tuple[Judgement, ...] = ()
    """The references, each met or not."""

    @property
    def is_met(self) -> bool:
        """Whether all references are met."""
        return all(each.is_met for each in self.judgements)

    @property
    def is_undecided(self) -> bool:
        """Whether it is a comparison of which a part has no verdict, in its first metric."""
        main = [each for each in self.versus if each.metric == self.metrics[0]]
        return self.request.compares and not (main and all(each.has_verdict for each in main))

    @cached_property
    def counted(self) -> tuple[PointRecord, ...]:
        """The runs that are no warm-ups."""
        return tuple(record for record in self.records if not record.point.warmup)

    @cached_property
    def values(self) -> dict[str, dict[MetricColumn, float]]:
        """What each run measured, by the name of its point."""
        return {record.point.id: measured(record) for record in self.records}

    def value(self, record: PointRecord, metric: MetricColumn) -> float | None:
        """The value of a run; None without one."""
        return self.values[record.point.id].get(metric)

    @property
    def sizes(self) -> list[int]:
        """The numbers of nodes."""
        return sorted({record.point.nodes for record in self.records})

    @property
    def variants(self) -> list[str]:
        """The variants, the one first that the others are compared with."""
        asked = dict.fromkeys(self.request.all_variants)
        have = dict.fromkeys(record.point.variant for record in self.records)
        return [name for name in {**asked, **have} if name in have]

    @property
    def why_kind(self) -> str:
        """Why this kind of scaling."""
        if self.request.kind:
            return "as the request says"
        growing = [f"{option} {word}" for option, word in sized(self.request.job.program).items()]
        if self.request.scaling == "weak":
            return f"an argument grows with the size: {', '.join(growing)}"
        return "no argument of the program grows with the size"

    def of(self, metric: MetricColumn) -> list[Series]:
        """The series of a metric that have values."""
        return [each for each in self.series if each.metric == metric and each.values]


def analyse(name: str, records: Iterable[PointRecord], request: StudyRequest, about: About) -> Results:
    """The results of a study from its records, in the order of its runs."""
    found = Results(name, request, about, tuple(records), (), ())
    metrics = tuple(dict.fromkeys(metric for each in found.values.values() for metric in each))
    found = replace(found, metrics=metrics)
    series = tuple(each for metric in metrics for each in _scaled(found, metric))
    versus = tuple(each for metric in metrics for each in _compared(found, metric)) if request.compares else ()
    return replace(found, series=series, versus=versus)


def _scaled(found: Results, metric: MetricColumn) -> list[Series]:
    """The series of a metric, each against the smallest size of its variant."""
    all_series = [_series(found, nodes, variant, metric) for nodes, variant in product(found.sizes, found.variants)]
    bases: dict[str, Series] = {}
    for each in all_series:
        if each.values:
            bases.setdefault(each.variant, each)
    several = len(found.sizes) > 1 and metric.scales
    return [_with_scaling(each, bases[each.variant], found.request.scaling) if several and each.values else each
            for each in all_series]  # fmt: skip


def _series(found: Results, nodes: int, variant: str, metric: MetricColumn) -> Series:
    own = [r for r in found.counted if (r.point.nodes, r.point.variant) == (nodes, variant)]
    valued = [(record, value) for record in own if (value := found.value(record, metric)) is not None]
    values, places = tuple(value for _, value in valued), {_place(record) for record, _ in valued}
    is_alone = found.about.how == "jobs" and len(places) == len(values)
    estimate = median(values) if values and is_alone else None
    if values and not is_alone:
        estimate = Interval(statistics.median(values), min(values), max(values), len(values))
    left_out = Counter("no-value" if r.state == "done" else r.state for r in own if found.value(r, metric) is None)
    ranks = tuple(sorted({record.last.ranks for record in own if record.last and record.last.ranks}))
    return Series(nodes, variant, metric, ranks, values, left_out, len(places), is_alone, estimate)


def _place(record: PointRecord) -> str:
    """The allocation in which a run was; the planned one where that was not recorded."""
    return (record.last.place if record.last else "") or f"a{record.point.allocation}"


def _with_scaling(each: Series, base: Series, kind: str) -> Series:
    """The series with its speed-up and efficiency; their ends are a range unless both sizes have own allocations."""

    def against(first: Sequence[float], values: Sequence[float]) -> Scaling:
        return scaling(kind, (base.nodes, first), (each.nodes, values), is_time=each.metric.is_time)

    try:
        if each is base and each.median:
            own = (each.median.value,)
            ends = [against(own, [end]) for end in (each.median.low, each.median.high)]
            return replace(each, scaling=_ranged(against(own, own), ends, each.median.confidence))
        found = against(base.values, each.values)
        if not (each.is_alone and base.is_alone):
            extremes = [against([one], [other]) for one in _ends(base.values) for other in _ends(each.values)]
            found = _ranged(found, extremes, 0)
    except InputError as error:
        return replace(each, problem=error.message)
    return replace(each, scaling=found)


def _ends(values: Sequence[float]) -> tuple[float, float]:
    return min(values), max(values)


def _ranged(found: Scaling, ends: Sequence[Scaling], confidence: float) -> Scaling:
    """The scaling, with the least and the largest of these ends."""

    def widened(own: Interval, others: Sequence[Interval]) -> Interval:
        values = [each.value for each in others]
        return Interval(own.value, min(values), max(values), own.n, confidence)

    efficiency = [end.efficiency for end in ends if end.efficiency]
    return replace(found, speedup=widened(found.speedup, [end.speedup for end in ends]),
                   efficiency=widened(found.efficiency, efficiency) if found.efficiency else None)  # fmt: skip


def _compared(found: Results, metric: MetricColumn) -> list[Versus]:
    """Each variant against the first, in each size; verdicts hold for all of them together."""
    first, *others = found.variants or [""]
    keys = list(product(found.sizes, others))
    pairs = {key: _pairs(found, key[0], key[1], first, metric) for key in keys}
    problems = {key: _problem([pair for each in by_place.values() for pair in each])
                for key, (by_place, _, _) in pairs.items()}  # fmt: skip
    usable = {repr(key): pairs[key][0] for key in keys if not problems[key]}
    if found.request.allocations >= FEWEST and found.about.how == "jobs":
        verdicts = compare_across(usable)
    else:
        verdicts = compare_all({key: [pair for each in by.values() for pair in each] for key, by in usable.items()})
    return [
        Versus(*key, first, metric, sum(map(len, pairs[key][0].values())), *pairs[key][1:],
               verdicts.get(repr(key)), problems[key])
        for key in keys
    ]  # fmt: skip


def _problem(pairs: Sequence[Pair]) -> str:
    if not pairs:
        return "no pair has both values"
    if len(pairs) > MOST_RUNS:
        return f"{len(pairs)} pairs; at most {MOST_RUNS} can be compared"
    return "" if all(value > 0 for pair in pairs for value in pair) else "a value is not above 0: no ratio"


def _pairs(
    found: Results, nodes: int, variant: str, first: str, metric: MetricColumn
) -> tuple[dict[str, list[Pair]], int, int]:
    """The pairs of one size by allocation, turned so that more is better; how many are planned, and how many apart."""
    runs: dict[tuple[int, int], dict[str, PointRecord]] = {}
    for record in found.counted:
        if record.point.nodes == nodes and record.point.variant in (variant, first):
            runs.setdefault((record.point.allocation, record.point.repeat), {})[record.point.variant] = record
    by_place: dict[str, list[Pair]] = {}
    apart = 0
    for both in runs.values():
        values = [found.value(both[name], metric) if name in both else None for name in (first, variant)]
        if values[0] is None or values[1] is None:
            continue
        if _place(both[first]) != _place(both[variant]):
            apart += 1
            continue
        pair = (values[0], values[1]) if metric.better == "higher" else (values[1], values[0])
        by_place.setdefault(_place(both[first]), []).append(pair)
    return by_place, len(runs), apart
