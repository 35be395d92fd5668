"""What a report of two studies says: what differs between them first."""

from __future__ import annotations

from collections.abc import Sequence

from stackyard.study.analysis import MetricColumn
from stackyard.study.report.document import Prose, ReportDocument, ReportTable, Section, said
from stackyard.study.report.figures import Factor, factor_figure
from stackyard.study.report.words import better, counts, ends, factor_title, nodes, number, title_of, verdict
from stackyard.study.twostudies import TwoStudies

METHODS = (
    "The runs of two studies are not paired: what changed on the machine between them is in the ratio too.",
    "A ratio is the two-sample Hodges-Lehmann estimate with Mann and Whitney's exact interval, of runs that each had "
    "an allocation of its own; other runs have a range and no verdict.",
    "Intervals are not corrected for several comparisons; verdicts are, by Holm's method.",
)


def two_document(both: TwoStudies) -> ReportDocument:
    """The report of two studies."""
    names = [said(study.name, 80) for study in (both.first, both.second)]
    if len({*names, "what"}) < 3:
        names = [f"{names[0]} (A)", f"{names[1]} (B)"]
    sentences = [verdict(m.comparison, names[1], names[0], m.metric, _where(m.nodes, m.variants)) for m in both.matches]
    sentences += [said(each) for each in both.unmatched]
    sentences += [f"{name}: {counts(study)}" for name, study in zip(names, (both.first, both.second), strict=True)]
    return ReportDocument(f"{names[1]} against {names[0]}", (
        Section("What differs", (_differences(both, names),), is_brief=True),
        Section("Summary", (Prose(tuple(sentences), is_list=True),), is_brief=True),
        *(_metric(both, metric, names) for metric in dict.fromkeys(each.metric for each in both.matches)),
        Section("Methods", (Prose(METHODS),)),
    ))  # fmt: skip


def _differences(both: TwoStudies, names: Sequence[str]) -> Prose | ReportTable:
    if not both.differences:
        return Prose(("Nothing that was recorded.",))
    rows = [(said(each.what), said(each.first) or "none", said(each.second) or "none") for each in both.differences]
    return ReportTable("What differs between the studies", ("what", *names), tuple(rows))


def _metric(both: TwoStudies, metric: MetricColumn, names: Sequence[str]) -> Section:
    own = [each for each in both.matches if each.metric == metric]
    factors = [Factor(_where(each.nodes, each.variants), each.comparison) for each in own]
    rows = [
        (f"{m.nodes:,}", _variants(m.variants), f"{m.runs[0]} and {m.runs[1]}", number(m.comparison.ratio.value),
         ends(m.comparison.ratio), m.comparison.text)
        for m in own
    ]  # fmt: skip
    caption = f"{names[1]}, {factor_title(metric, names[0])}; below 1 {names[0]} is {better(metric)}"
    columns = ("nodes", "variant", "runs", "factor", "from to", "verdict")
    table = ReportTable(caption, columns, tuple(rows), frozenset({"nodes", "runs", "factor", "from to"}), heads=2)
    return Section(title_of(metric), (factor_figure(factors, metric, names[0]), table), is_brief=True)


def _where(size: int, variants: Sequence[str]) -> str:
    return f"{nodes(size)}, {_variants(variants)}"


def _variants(variants: Sequence[str]) -> str:
    return " and ".join(dict.fromkeys(said(name, 60) for name in variants))
