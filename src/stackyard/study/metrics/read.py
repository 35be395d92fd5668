"""The one reader of what a run achieved."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from stackyard.launch.api.runs import RunPaths, RunStatus, rank_logs, read_status
from stackyard.study.metrics.events import event_directories, read_events
from stackyard.study.metrics.formats import Declared, Format, formats
from stackyard.study.metrics.lines import lines
from stackyard.study.metrics.measured import Energy, Measured, Quantity, Value
from stackyard.study.metrics.model import Metric
from stackyard.study.metrics.resources import energy_of, gpu_energy_of, memory_of
from stackyard.study.metrics.series import MOST, NoValueError, Series, Summary, over_ranks, summarise

MOST_LOGS = 512
"""Logs of ranks that are read; of more every n-th, and the last."""


def read_run(
    paths: RunPaths,
    metrics: Sequence[Metric] = (),
    *,
    warmup: int | None = None,
    plugins: Sequence[str] = (),
    energy: bool = True,
    whole_nodes: bool | None = None,
    job: str = "",
) -> Measured:
    """Read the metrics, the memory and the energy of a run that has ended, in any way.

    Logs are streamed; of each rank one number of each metric is kept. Event files of TensorBoard are read where a
    declared metric has a tag, and where nothing is declared and the logs have no metric.

    Args:
        metrics: the declared ones; empty: all that are known.
        warmup: steps of the program that are left out; None: 10 or 10 %, whichever is more.
        plugins: names of formats that plug-ins add.
        energy: ask the scheduler for it.
        whole_nodes: the run had its nodes for itself; None: what its own request says.
        job: the job in which it ran, if it was not a job of its own.

    Raises:
        InputError: no such plug-in, or a record or a status that cannot be read.
    """
    status = read_status(paths)
    patterns = [metric.pattern for metric in metrics]
    table: list[type[Format]] = [Declared] if any(patterns) else []
    table += [] if patterns and all(patterns) else formats(plugins)
    found = _Found(warmup)
    _read_logs(paths, status, metrics, table, found)
    tags = {metric.tag: metric.quantity for metric in metrics if metric.tag}
    if tags or not (metrics or found.summaries):
        _read_events(paths, status, tags, found)
    values, problems = found.values({metric.name: metric for metric in metrics})
    used = energy_of(paths, status, whole_nodes, job) if energy else Energy(None, "not measured: not asked for")
    return Measured(values, problems, memory_of(paths), used, tuple(found.notes), gpu_energy_of(paths))


class _Found:
    """What the ranks printed, each rank reduced to one number of each metric."""

    def __init__(self, warmup: int | None) -> None:
        self.warmup = warmup
        self.summaries: dict[tuple[str, Quantity], dict[int, Summary | str]] = {}
        """By format and quantity, for each rank its value, or why it has none."""
        self.notes: list[str] = []

    def add(self, source: str, quantity: Quantity, rank: int, series: Series) -> None:
        """The values of one rank."""
        if not series.values:
            return
        try:
            summary: Summary | str = summarise(series, quantity.kind, self.warmup)
        except NoValueError as error:
            summary = f"rank {rank}: {error}"
        self.summaries.setdefault((source, quantity), {})[rank] = summary
        for count, why in ((series.bad, "are not numbers above 0"), (series.unread, f"come after {MOST:,} others")):
            if count and not series.final:
                self.notes.append(f"{count} values of {quantity.name} of rank {rank} {why}: left out")

    def values(self, declared: Mapping[str, Metric]) -> tuple[tuple[Value, ...], tuple[str, ...]]:
        """The declared metrics, else all; and why one has no value. Of one in several formats the first counts."""
        values: dict[str, Value] = {}
        problems: dict[str, str] = dict.fromkeys(declared, "not in the output of any rank; see its log")
        for (source, quantity), ranks in self.summaries.items():
            metric = declared.get(quantity.name)
            if quantity.name in values or (declared and not metric):
                continue
            bad = [why for why in ranks.values() if isinstance(why, str)]
            good = {rank: summary for rank, summary in ranks.items() if isinstance(summary, Summary)}
            try:
                if bad:
                    raise NoValueError(bad[0])
                whole = metric.over(quantity) if metric else quantity
                values[quantity.name] = over_ranks(whole, good, source)
            except NoValueError as error:
                problems[quantity.name] = str(error)
        if not (declared or values or problems):
            problems["no metric"] = "no known format in the output of any rank; declare one (--measure 'NAME=PATTERN')"
        left = {name: why for name, why in problems.items() if name not in values}
        ordered = [values[name] for name in (declared or values) if name in values]
        return tuple(ordered), tuple(f"{name}: {why}" for name, why in left.items())


def _read_logs(
    paths: RunPaths, status: RunStatus, metrics: Sequence[Metric], table: Sequence[type[Format]], found: _Found
) -> None:
    logs = rank_logs(paths)
    ranks = list(logs)
    chosen = sorted({*ranks[:: -(-len(ranks) // MOST_LOGS) or 1], *ranks[-1:]})
    if len(chosen) < len(ranks):
        found.notes.append(f"the logs of {len(chosen)} of {len(ranks)} ranks were read")
    wanted = re.compile(b"|".join(re.escape(needle) for one in table for needle in one.needles))
    for rank in chosen:
        readers = [one(metrics) for one in table]
        try:
            for line in filter(wanted.search, lines(logs[rank], ended=status.state == "done")):
                text = line.decode("utf-8", "replace")
                for reader in readers:
                    if any(needle in line for needle in reader.needles):
                        reader.read(text)
        except OSError as error:
            found.notes.append(f"the log of rank {rank} was not read: {error.strerror}")
        for reader in readers:
            for quantity, series in reader.metrics():
                found.add(reader.name, quantity, rank, series)


def _read_events(paths: RunPaths, status: RunStatus, tags: Mapping[str, Quantity], found: _Found) -> None:
    directories = event_directories(paths, status)
    try:
        for quantity, series in read_events(paths, directories, tags) if directories else ():
            found.add("TensorBoard", quantity, 0, series)
    except NoValueError as error:
        found.notes.append(str(error))
        found.summaries.update({("TensorBoard", quantity): {0: str(error)} for quantity in tags.values()})
