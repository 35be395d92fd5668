"""The results of a study as CSV and JSON, with all digits."""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Iterable
from dataclasses import asdict
from typing import Any

from stackyard.study.analysis import Results, Series, Versus
from stackyard.study.request import as_mapping
from stackyard.study.statistics.exact import Interval
from stackyard.study.statistics.ratios import Comparison
from stackyard.study.twostudies import TwoStudies

FORMAT = 1
COLUMNS = (
    "nodes", "ranks", "variant", "metric", "unit", "better", "runs", "left_out", "median", "low", "high", "is",
    "speedup", "speedup_low", "speedup_high", "efficiency", "efficiency_low", "efficiency_high", "scaling_is",
    "against", "pairs", "ratio", "ratio_low", "ratio_high", "ratio_is", "p", "verdict",
)  # fmt: skip
"""One row for each size, variant and metric. A ratio above 1: the variant is better than `against`."""


def results_csv(found: Results) -> str:
    """The results; the runs themselves are in ``table.csv``."""
    versus = {(each.nodes, each.variant, each.metric): each for each in found.versus}
    rows = ({**_of_series(each), **_of_versus(versus.get((*each.key, each.metric)))} for each in found.series)
    return csv_text(COLUMNS, rows)


def two_csv(both: TwoStudies) -> str:
    """The comparison of two studies."""
    columns = ("nodes", "variant", "other_variant", "metric", "unit", "runs", "other_runs", *COLUMNS[-6:])
    return csv_text(columns, (
        {"nodes": m.nodes, "variant": m.variants[0], "other_variant": m.variants[1], "metric": m.metric.name,
         "unit": m.metric.unit, "runs": m.runs[0], "other_runs": m.runs[1], **_of_comparison(m.comparison)}
        for m in both.matches
    ))  # fmt: skip


def results_json(found: Results) -> dict[str, Any]:
    """Everything that a report has, as JSON."""
    return {
        "format": FORMAT, "study": found.name, "about": asdict(found.about), "request": as_mapping(found.request),
        "scaling": found.request.scaling, "why": found.why_kind, "undecided": found.is_undecided,
        "series": [{**_of_series(each), "values": list(each.values)} for each in found.series],
        "comparisons": [{"nodes": each.nodes, "variant": each.variant, "metric": each.metric.name,
                         **_of_versus(each)} for each in found.versus],
        "references": [{"metric": each.expected.reference.metric, "nodes": each.expected.nodes,
                        "variant": each.expected.variant, "value": each.expected.reference.value,
                        "low": each.expected.reference.low, "high": each.expected.reference.high,
                        "met": each.is_met, "problem": each.problem, **_interval("median", each.median)}
                       for each in found.judgements],
        "runs": [{**asdict(record.point), "state": record.state,
                  **(_plain(asdict(record.last)) if record.last else {})} for record in found.records],
    }  # fmt: skip


def two_json(both: TwoStudies) -> dict[str, Any]:
    """The comparison of two studies as JSON."""
    return {
        "format": FORMAT, "studies": [both.first.name, both.second.name], "undecided": both.is_undecided,
        "differences": [asdict(each) for each in both.differences], "unmatched": list(both.unmatched),
        "comparisons": [{"nodes": m.nodes, "variants": list(m.variants), "metric": m.metric.name, "runs": list(m.runs),
                         **_of_comparison(m.comparison)} for m in both.matches],
    }  # fmt: skip


def json_text(value: dict[str, Any]) -> str:
    """JSON for a file."""
    return json.dumps(value, indent=1, ensure_ascii=True, allow_nan=False) + "\n"


def _plain(value: Any) -> Any:
    """Values that JSON has: NaN and infinity, which a record of another account may have, are null."""
    if isinstance(value, dict):
        return {str(key): _plain(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _of_series(each: Series) -> dict[str, Any]:
    scaling = each.scaling
    return {
        "nodes": each.nodes, "ranks": " ".join(map(str, each.ranks)), "variant": each.variant,
        "metric": each.metric.name, "unit": each.metric.unit, "better": each.metric.better, "runs": len(each.values),
        "left_out": sum(each.left_out.values()), "is": each.basis, **_interval("median", each.median, ""),
        **_interval("speedup", scaling.speedup if scaling else None),
        **_interval("efficiency", scaling.efficiency if scaling else None),
        "scaling_is": ("range" if scaling.speedup.is_range else "interval") if scaling else "",
    }  # fmt: skip


def _of_versus(each: Versus | None) -> dict[str, Any]:
    if each is None:
        return {}
    found = {"against": each.first, "pairs": each.pairs, "verdict": f"{each.problem}; no verdict"}
    return {**found, **(_of_comparison(each.comparison) if each.comparison else {})}


def _of_comparison(comparison: Comparison) -> dict[str, Any]:
    kind = "range" if comparison.ratio.is_range else "interval"
    return {**_interval("ratio", comparison.ratio), "ratio_is": kind, "p": comparison.p, "verdict": comparison.text}


def _interval(name: str, interval: Interval | None, before: str | None = None) -> dict[str, float]:
    """The three values of an interval by their names; `before` is put before those of its ends."""
    before = f"{name}_" if before is None else before
    return {name: interval.value, f"{before}low": interval.low, f"{before}high": interval.high} if interval else {}


def csv_text(columns: tuple[str, ...], rows: Iterable[dict[str, Any]]) -> str:
    """CSV for a file."""
    stream = io.StringIO()
    writer = csv.DictWriter(stream, columns, lineterminator="\n", restval="")
    writer.writeheader()
    writer.writerows({name: _harmless(value) for name, value in row.items()} for row in rows)
    return stream.getvalue()


def _harmless(value: Any) -> Any:
    """A text that a spreadsheet takes for a formula gets an apostrophe."""
    return f"'{value}" if isinstance(value, str) and value.startswith(("=", "+", "-", "@", "\t", "\r")) else value
