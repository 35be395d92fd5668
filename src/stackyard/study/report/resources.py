"""What the runs used, and how their steps differ: memory, energy, percentiles, the slowest rank, with notes on them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import product
from statistics import median

from stackyard.core.findings import counted
from stackyard.core.late import dataclass
from stackyard.study.analysis import Results, is_number
from stackyard.study.report.document import Prose, ReportTable, said
from stackyard.study.report.words import number, title_of

MOST_NOTES = 20


@dataclass(frozen=True)
class _Column:
    """A number of each run by its path in the record, made one for a size: the median, or the largest."""

    title: str
    path: tuple[str, ...]
    over_runs: Callable[[Sequence[float]], float] = median
    scale: float = 1


_COLUMNS = (
    _Column("steps", ("spread", "steps")), _Column("first step", ("spread", "first")), _Column("p5", ("spread", "p5")),
    _Column("p95", ("spread", "p95")), _Column("p99", ("spread", "p99")),
    _Column("slowest rank (%)", ("slowest_by",), median, 100),
    _Column("memory of a rank (GiB)", ("memory", "peak_bytes"), max, 2**-30),
    _Column("GPU memory of a rank (GiB)", ("memory", "gpu_peak_bytes"), max, 2**-30),
    _Column("energy of a run's nodes (Wh)", ("energy", "joules"), median, 1 / 3600),
    _Column("energy of its GPUs alone (Wh)", ("gpu_energy", "joules"), median, 1 / 3600),
)  # fmt: skip


def resources(found: Results) -> Iterator[ReportTable | Prose]:
    """A table with the columns that were measured, what was not, and the notes of the runs."""
    keys = list(product(found.sizes, found.variants))
    runs: dict[tuple[int, str], list[Mapping[str, object]]] = {key: [] for key in keys}
    for record in found.counted:
        if record.last and record.state == "done":
            runs[record.point.nodes, record.point.variant].append(_of_run(found, record.last.measured))
    values = {key: [list(_numbers(own, column.path)) for column in _COLUMNS] for key, own in runs.items()}
    shown = [at for at in range(len(_COLUMNS)) if any(row[at] for row in values.values())]
    if shown:
        columns = ("nodes", "variant", *(_COLUMNS[at].title for at in shown))
        rows = [(f"{nodes:,}", said(variant, 80), *(_cell(_COLUMNS[at], row[at]) for at in shown))
                for (nodes, variant), row in values.items()]  # fmt: skip
        steps = f" Steps are those of {title_of(found.metrics[0])}." if found.metrics else ""
        caption = f"Medians over the runs; memory is the most that a rank of any run used.{steps}"
        yield ReportTable(caption, columns, tuple(rows), frozenset(columns) - {"variant"}, heads=2)
    every = [run for own in runs.values() for run in own]
    if notes := tuple(_notes(every, [_COLUMNS[at].path[0] for at in shown])):
        yield Prose(notes, is_list=True)


def _of_run(found: Results, measured: object) -> Mapping[str, object]:
    """The record of one run, with what its first metric has beside its value."""
    own = measured if isinstance(measured, dict) else {}
    values = own.get("values")
    first = found.metrics[0].name if found.metrics else None
    named = [each for each in values if isinstance(each, dict)] if isinstance(values, list) else []
    return {**own, **next((each for each in named if each.get("name") == first), {})}


def _numbers(runs: Sequence[Mapping[str, object]], path: Sequence[str]) -> Iterator[float]:
    """The values above 0 at a path."""
    for run in runs:
        value: object = run
        for name in path:
            value = value.get(name) if isinstance(value, Mapping) else None
        if is_number(value) and value > 0:
            yield value


def _cell(column: _Column, values: Sequence[float]) -> str:
    if not values:
        return "not measured"
    return number(column.over_runs(values) * column.scale, 4 if column.title != "steps" else 3)


def _notes(runs: Sequence[Mapping[str, object]], shown: Sequence[str]) -> Iterator[str]:
    """Why something was not measured, and what the reader of the numbers noted, each with the number of runs."""
    found: dict[str, int] = {}
    for run in runs:
        energy, gpus, notes = run.get("energy"), run.get("gpu_energy"), run.get("notes")
        texts = list(notes) if isinstance(notes, list) else []
        if isinstance(energy, Mapping) and energy.get("joules") is None:
            texts.append(f"energy of the nodes {energy.get('source', 'not measured')}")
        if isinstance(gpus, Mapping):
            texts.append(f"energy of the GPUs: {gpus.get('source')}")
        if "memory" not in shown:
            texts.append("memory not measured")
        for text in texts:
            found[said(text, 300)] = found.get(said(text, 300), 0) + 1
    for text, count in list(found.items())[:MOST_NOTES]:
        yield text if count == len(runs) else f"{text} ({counted(count, 'run')})"
    if len(found) > MOST_NOTES:
        yield f"and {len(found) - MOST_NOTES} other notes, in the JSON"
