"""Two studies compared: what differs between them, and the ratios of sizes and variants that both have. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from stackyard.core.errors import InputError
from stackyard.core.late import dataclass
from stackyard.study.analysis import MetricColumn, Results, Series
from stackyard.study.request import as_mapping
from stackyard.study.statistics.exact import MOST_RUNS, Interval
from stackyard.study.statistics.ratios import NO_VERDICT, Comparison, compare_unpaired, ratio

PASSING = ("about.created", "about.seed", "request.seed", "request.name")
"""What differs between any two studies."""


@dataclass(frozen=True)
class StudyDifference:
    """A value that the two studies do not share; empty: one does not have it."""

    what: str
    first: str
    second: str


@dataclass(frozen=True)
class Match:
    """A size and variant that both studies have; a ratio above 1: the second study is better."""

    nodes: int
    variants: tuple[str, str]
    metric: MetricColumn
    runs: tuple[int, int]
    comparison: Comparison


@dataclass(frozen=True)
class TwoStudies:
    """Two studies side by side.

    Attributes:
        unmatched: sizes, variants and metrics that one of them has alone, in words.
    """

    first: Results
    second: Results
    differences: tuple[StudyDifference, ...]
    matches: tuple[Match, ...]
    unmatched: tuple[str, ...]

    @property
    def is_met(self) -> bool:
        """References are for one study."""
        return True

    @property
    def is_undecided(self) -> bool:
        """Whether a part of it has no verdict, in the first metric."""
        main = [each for each in self.matches if each.metric == self.matches[0].metric]
        return not main or any(each.comparison.verdict == NO_VERDICT for each in main)


def compare_studies(first: Results, second: Results) -> TwoStudies:
    """Compare two studies size by size. Their runs are not paired: what changed in between is in the ratio too.

    A variant is matched by its name; if both studies have only one, those are.
    """
    names = {name: name for name in first.variants}
    if len(first.variants) == len(second.variants) == 1:
        names = dict(zip(first.variants, second.variants, strict=True))
    others = {(each.nodes, each.variant, each.metric): each for each in second.series if each.values}
    both = [(one, others.pop(key)) for one in first.series if one.values
            if (key := (one.nodes, names.get(one.variant, ""), one.metric)) in others]  # fmt: skip
    matched = {id(one) for one, _ in both}
    alone = [(first, one) for one in first.series if one.values and id(one) not in matched]
    unmatched = [f"only {study.name} has {series.metric.name} on {series.nodes} nodes, {series.variant}"
                 for study, series in (*alone, *((second, other) for other in others.values()))]  # fmt: skip
    found, problems = _matches(both)
    differences = tuple(_differences(_facts(first), _facts(second)))
    return TwoStudies(first, second, differences, tuple(found), (*unmatched, *problems))


def _matches(both: list[tuple[Series, Series]]) -> tuple[list[Match], list[str]]:
    """The comparisons, judged together for each metric; and why others cannot be made."""
    found, problems = [], []
    for metric in dict.fromkeys(one.metric for one, _ in both):
        pairs = {repr((one.nodes, one.variant)): (one, other) for one, other in both if one.metric == metric}
        positive = {key: pair for key, pair in pairs.items() if min(*pair[0].values, *pair[1].values) > 0}
        problems += [f"no ratio of {metric.name} for {key}: a value is not above 0" for key in pairs.keys() - positive]
        values = {key: _turned(*pair) for key, pair in positive.items()}
        alone = {key: each for key, each in values.items()
                 if all(series.is_alone for series in pairs[key]) and sum(map(len, each)) <= MOST_RUNS}  # fmt: skip
        verdicts = compare_unpaired(alone)
        for key, (one, other) in positive.items():
            comparison = verdicts.get(key) or _range(*values[key])
            runs = (len(one.values), len(other.values))
            found.append(Match(one.nodes, (one.variant, other.variant), metric, runs, comparison))
    return found, problems


Values = tuple[float, ...]


def _turned(one: Series, other: Series) -> tuple[Values, Values]:
    """The values in the order in which a ratio above 1 means that the second study is better."""
    return (one.values, other.values) if one.metric.better == "higher" else (other.values, one.values)


def _range(first: Values, second: Values) -> Comparison:
    """Runs that share an allocation: the range of their ratios, and no verdict."""
    ends = [ratio([one], [other]).value for one in (min(first), max(first)) for other in (min(second), max(second))]
    try:
        value = ratio(first, second).value
    except InputError:  # too many to count
        value = ends[0]
    return Comparison(Interval(value, min(ends), max(ends), min(len(first), len(second))), 1, NO_VERDICT, unit="run")


def _facts(study: Results) -> dict[str, str]:
    """What a study was made of, each value by its path."""
    about = study.about
    hosts = sorted({host for record in study.counted if record.last for host in record.last.hosts})
    values = {
        "variant": about.variants, "machine": {"site": about.site, "host": about.host, "nodes": hosts},
        "versions": about.versions, "request": as_mapping(study.request),
        "about": {"command": list(about.command), "user": about.user, "how": about.how, "created": about.created},
    }  # fmt: skip
    return dict(_flat("", values))


def _flat(path: str, value: Any) -> Iterator[tuple[str, str]]:
    if isinstance(value, Mapping):
        for name, each in value.items():
            yield from _flat(f"{path}.{name}".lstrip("."), each)
    elif isinstance(value, list | tuple):
        yield path, " ".join(each if isinstance(each, str) else json.dumps(each) for each in value)
    elif value is not None:
        yield path, str(value)


def _differences(first: Mapping[str, str], second: Mapping[str, str]) -> Iterator[StudyDifference]:
    """The stack first, then the machine, the versions, the request and its command."""
    for what in dict.fromkeys((*first, *second)):
        pair = first.get(what, ""), second.get(what, "")
        if pair[0] != pair[1] and what not in PASSING:
            yield StudyDifference(what, *pair)
