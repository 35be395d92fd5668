"""Metrics that are known by how a program prints them: one class for each format, in one table.

An object of a class reads the lines of one rank. A plug-in adds a class (`stackyard.metrics`, docs/design/037).
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Any, ClassVar

from stackyard.core import plugins
from stackyard.study.metrics.lines import NUMBER, clock, number
from stackyard.study.metrics.measured import Quantity
from stackyard.study.metrics.model import Metric
from stackyard.study.metrics.series import Series

GROUP = "stackyard.metrics"
MOST_KEYS, LONGEST_NAME = 50, 100
"""Metrics of one format in one log, and characters of a name."""
RATE_NAMES = re.compile(r"(?:^|[_./ -])(?:per_s(?:ec(?:ond)?)?|throughput)$|/s(?:ec)?$", re.I)
TIME_NAMES = re.compile(
    r"^(?:.*/)?(?:(?:train_)?(?:step|iter|iteration|batch)_(?:time|seconds|duration|s|ms)|seconds(?:_per_step)?)"
    r"(?:_s|_ms|_sec|_seconds)?$", re.I,
)  # fmt: skip


@lru_cache(4096)
def known_quantity(name: str) -> Quantity | None:
    """What a key or a tag means by its name: ``images_per_s`` is a rate, ``step_time_ms`` a time."""
    if len(name) > LONGEST_NAME or not name.isprintable():
        return None
    if RATE_NAMES.search(name):
        unit = re.sub(r"_per_s(ec(ond)?)?$", "/s", name.rpartition(".")[2], flags=re.I)
        return Quantity(name, unit if unit.endswith("/s") else "1/s")
    if TIME_NAMES.match(name):
        return step_time(name, "ms" if name.lower().endswith("_ms") else "s")
    return None


def step_time(name: str = "step_seconds", unit: str = "s") -> Quantity:
    """A time for which ranks wait for each other."""
    return Quantity(name, unit, "time", "lower", "slowest")


class Format:
    """One way to print metrics; an object reads the log of one rank.

    Attributes:
        needles: each of its lines has one of them; other lines are not passed to `read`.
        declared: the metrics that were declared, which a format may heed.
        series: what was found so far.
    """

    name: ClassVar[str]
    needles: ClassVar[tuple[bytes, ...]]

    def __init__(self, declared: Sequence[Metric] = ()) -> None:
        self.declared = declared
        self.series: dict[Quantity, Series] = {}
        self._last = math.inf

    def read(self, line: str) -> None:
        """Take what a line says."""
        raise NotImplementedError

    def of(self, quantity: Quantity, *, final: bool = False) -> Series:
        """The series of a quantity; of one too many it is not kept."""
        series = self.series.get(quantity) or Series(final=final)
        return self.series.setdefault(quantity, series) if len(self.series) < MOST_KEYS else series

    def since(self, step: float) -> float:
        """The steps since the line before; of the first line, and where steps start again, one."""
        steps, self._last = (step - self._last if step > self._last else 1), step
        return steps

    def metrics(self) -> Iterator[tuple[Quantity, Series]]:
        """What was found, the most telling first: rates, of those the total."""
        yield from sorted(self.series.items(), key=lambda item: (item[0].kind == "time", "_per_s_per_" in item[0].name))


class Declared(Format):
    """Metrics with a pattern."""

    name = "declared"
    needles = (b"",)

    def __init__(self, declared: Sequence[Metric] = ()) -> None:
        super().__init__(declared)
        self.patterns = [(re.compile(metric.pattern), metric) for metric in declared if metric.pattern]

    def read(self, line: str) -> None:
        """Each pattern, where it matches first in the line."""
        for pattern, metric in self.patterns:
            if match := pattern.search(line):
                self.of(metric.quantity, final=metric.over_steps == "last").add(number(match[1] or ""))


class JsonLines(Format):
    """JSON objects with a ``step``, one a line; of declared keys also without."""

    name = "JSON lines"
    needles = (b"{",)
    steps = ("step", "global_step", "iteration", "iter", "train_step")

    def __init__(self, declared: Sequence[Metric] = ()) -> None:
        super().__init__(declared)
        self.keys = {metric.key: metric for metric in declared if metric.key}

    def read(self, line: str) -> None:
        """Rates and times by the names of their keys, each for the steps since the line before."""
        try:
            row = json.loads(line[line.index("{") :])
        except (ValueError, RecursionError):
            return
        step = next((step for key in self.steps if (step := inner(row, key)) is not None), None)
        known = {key: found for key in row if key not in self.keys and (found := known_quantity(key))}
        rows = [(quantity, inner(row, key), False) for key, quantity in known.items() if step is not None]
        rows += [(metric.quantity, inner(row, key), metric.over_steps == "last") for key, metric in self.keys.items()]
        times = (value / 1000 ** (one.unit == "ms") for one, value, _ in rows if value and one.kind == "time")
        seconds, steps = next(times, math.nan), 1.0 if step is None else self.since(step)
        for quantity, value, final in rows:
            if value is not None:
                self.of(quantity, final=final).add(value, steps, seconds if quantity.kind == "rate" else math.nan)

    def metrics(self) -> Iterator[tuple[Quantity, Series]]:
        """A first line at step 100 stands for as many steps as the second."""
        for quantity, series in super().metrics():
            series.steps[:1] = series.steps[1:2] or series.steps[:1]
            yield quantity, series


def inner(row: dict[str, Any], key: str) -> float | None:
    """The number of a key, or of ``b`` within ``a`` for ``a.b``; NaN for what is not one, None without the key."""
    outer, dot, rest = key.partition(".")
    if key not in row and dot and isinstance(below := row.get(outer), dict):
        return inner(below, rest)
    value = row.get(key)
    if value is None or isinstance(value, str | bool):
        return None
    return float(value) if isinstance(value, int | float) and abs(value) < 1e300 else math.nan


class Horovod(Format):
    """Horovod's synthetic benchmarks: ``Img/sec per GPU: 108.2 +-1.2``, ``Total img/sec on 4 GPU(s): 432.8 +-4.9``."""

    name = "Horovod's synthetic benchmark"
    needles = (b"mg/sec",)
    total = re.compile(rf"Total img/sec on \d+ \w+\(s\): ({NUMBER})", re.I)
    each = re.compile(rf"\bImg/sec per (\w{{1,20}}): ({NUMBER})")

    def read(self, line: str) -> None:
        """The two lines at the end."""
        if match := self.total.search(line):
            self.of(Quantity("images_per_s", "images/s"), final=True).add(number(match[1]))
        elif match := self.each.search(line):
            quantity = Quantity(f"images_per_s_per_{match[1].lower()}", f"images/s/{match[1]}", over_ranks="mean")
            self.of(quantity, final=True).add(number(match[2]))


class TfCnnBenchmarks(Format):
    """tf_cnn_benchmarks: ``total images/sec: 204.75``, which every rank prints of all."""

    name = "tf_cnn_benchmarks"
    needles = (b"total images/sec:", b"Devices:")
    total = re.compile(rf"total images/sec: ({NUMBER})")
    is_shared = False

    def read(self, line: str) -> None:
        """The line at the end: a rank's own speed by all ranks, so the mean is that of all if they found each other."""
        self.is_shared |= "'horovod/" in line or "/job:worker" in line
        if match := self.total.search(line):
            quantity = Quantity("images_per_s", "images/s", over_ranks="mean" if self.is_shared else "")
            self.of(quantity, final=True).add(number(match[1]))


class Trainer(Format):
    """Hugging Face's Trainer: its last dictionary, or its table. Its time has the first step and evaluations in it."""

    name = "Hugging Face Trainer"
    needles = (b"_per_second", b"train_runtime")
    fields = re.compile(
        rf"\btrain_(?:runtime|(\w{{1,40}}?)_per_second(?:_per_gpu)?)\b['\"]?\s*[:=]\s*['\"]?((?:\d+:)+[\d.]+|{NUMBER})"
    )

    def read(self, line: str) -> None:
        """``train_samples_per_second`` and the like, of all ranks together."""
        for match in self.fields.finditer(line):
            name = re.split(r"\W", match[0], maxsplit=1)[0]
            quantity = Quantity(name, f"{match[1]}/s") if match[1] else step_time(name)
            self.of(quantity, final=True).add(clock(match[2]))


class Megatron(Format):
    """Megatron-LM and its relatives: a line per interval with ``elapsed time per iteration (ms)``."""

    name = "Megatron-LM"
    needles = (b"elapsed time per iteration",)
    fields = re.compile(rf"iteration\s+(\d+)\s*/.*elapsed time per iteration \(ms\):\s*({NUMBER})")
    batch = re.compile(rf"glo\w+ batch size:\s*({NUMBER})")

    def read(self, line: str) -> None:
        """The mean of the interval."""
        if match := self.fields.search(line):
            step, seconds = number(match[1]), number(match[2]) / 1000
            steps = self.since(step)
            if (batch := self.batch.search(line)) and seconds > 0:
                self.of(Quantity("samples_per_s", "samples/s")).add(number(batch[1]) / seconds, steps, seconds)
            self.of(step_time()).add(seconds, steps)


class Bars(Format):
    """Progress bars of tqdm, and of Lightning, which has them from tqdm: ``4/18 [00:17<01:02,  4.47s/it]``."""

    name = "tqdm"
    needles = (b"it/s", b"s/it", b"step/s", b"steps/s", b"s/step", b"batch/s", b"batches/s", b"s/batch")
    bar = re.compile(
        r"(?<!\d)(?P<done>\d+)(?:/(?P<total>\d+)|it|steps?|batch(?:es)?) \[(?P<elapsed>\d+(?::\d\d)+)(?:<[^,\]]*)?, *"
        r"(?P<rate>[\d.]+) ?(?P<unit>(?:it|steps?|batch(?:es)?)/s|s/(?:it|step|batch))"
    )
    others = re.compile(r"(?i)valid|sanity|\btest|predict|eval|\bmap|load|fetch|read|cod(e|ing)|token|filter|gener|sav")

    def __init__(self, declared: Sequence[Metric] = ()) -> None:
        super().__init__(declared)
        self.bars: dict[tuple[str, str], _Bar] = {}

    def read(self, line: str) -> None:
        """One refresh of one bar; those of all epochs are one."""
        match = self.bar.search(line)
        if not match or not (rate := number(match["rate"])) > 0:
            return
        label = re.sub(r"\d+%$", "", re.split("[|━╸╺]", line[: match.start()], maxsplit=1)[0].strip())[-80:]
        key = (re.sub(r"\d+", "", label), match["total"] or "")
        if not self.others.search(label) and (key in self.bars or len(self.bars) < MOST_KEYS):
            bar = self.bars.setdefault(key, _Bar())
            if label != bar.label and match["total"] == str(bar.shown_at):
                bar.start()
            bar.label, rate = label, (rate if match["unit"].endswith("/s") else 1 / rate)
            bar.add(int(match["done"][:15]), clock(match["elapsed"]), rate)

    def metrics(self) -> Iterator[tuple[Quantity, Series]]:
        """Of the bar that ran longest."""
        longest = max(self.bars.values(), key=lambda bar: bar.seconds, default=None)
        if longest:
            yield Quantity("iterations_per_s", "it/s", over_ranks="slowest"), longest.best


class RichBars(Bars):
    """Lightning's RichProgressBar: ``Epoch 0/9 ━━━━ 18/18 0:00:17 • 0:00:00 4.47it/s``."""

    name = "Lightning"
    bar = re.compile(
        r"(?<!\d)(?P<done>\d+)/(?P<total>\d+|--) (?P<elapsed>\d+:\d\d:\d\d) \S \S+ +(?P<rate>[\d.]+)(?P<unit>it/s)"
    )


class _Bar:
    """The refreshes of one progress bar, which starts again in each epoch."""

    def __init__(self) -> None:
        self.counted, self.shown = Series(smoothed=True), Series(smoothed=True)
        self.label, self.seconds, self.starts = "", 0.0, 0
        self.start()

    def start(self) -> None:
        """The next epoch."""
        self.done, self.elapsed, self.shown_at, self.starts = 0, 0.0, 0, self.starts + 1

    def add(self, done: int, elapsed: float, rate: float) -> None:
        """A refresh."""
        if done < self.shown_at or elapsed < self.elapsed:
            self.start()
        if done > self.shown_at:
            self.shown.add(rate, done - self.shown_at)
            self.shown_at = done
        steps, seconds = done - self.done, elapsed - self.elapsed
        if steps > 0 and seconds > 0:
            self.counted.add(steps / seconds, steps, seconds / steps)
            self.done, self.elapsed, self.seconds = done, elapsed, self.seconds + seconds

    @property
    def best(self) -> Series:
        """Iterations by whole seconds; the smoothed rates where these, one for each start, are off by more than 5 %."""
        return self.counted if self.seconds >= 20 * self.starts else self.shown


_KNOWN = (JsonLines, Horovod, TfCnnBenchmarks, Trainer, Megatron, Bars, RichBars)
TABLE: dict[str, type[Format]] = {known.name: known for known in _KNOWN}


def formats(names: Sequence[str] = ()) -> list[type[Format]]:
    """Those of plug-ins that are named, then all known ones.

    Raises:
        InputError: no such plug-in.
        StackyardError: it cannot be used.
    """
    added = [plugins.find(GROUP, name, TABLE, type, "format of metrics", "known: {}") for name in names]
    return list(dict.fromkeys([*added, *TABLE.values()]))
