"""Nodes of one job should be alike: who is the odd one out, in what. Pure; used on the nodes and by the judge."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any, NamedTuple

MUST = ("cpu", "cores", "memory_gib", "gpus", "driver")
SHOULD = ("kernel", "glibc", "hugepages")
WORDS = {"cpu": "the CPU", "cores": "the number of CPUs", "memory_gib": "the memory (GiB)", "gpus": "the GPUs",
         "driver": "the GPU driver", "kernel": "the kernel", "glibc": "glibc", "hugepages": "huge pages",
         "clock": "the clock (s off)", "gpu_errors": "GPU memory"}  # fmt: skip
MEMORY_TOLERANCE = 0.03
CLOCK_LIMIT_S = 0.5


class Difference(NamedTuple):
    """`host` has `value` where most have `usual`. `hard`: a job must not run on it; `clear`: a majority says so."""

    host: str
    what: str
    value: str
    usual: str
    hard: bool
    clear: bool

    def __str__(self) -> str:
        if self.what == "gpu_errors":
            return f"{self.host}: {self.value}"
        others = f"on most nodes it is {self.usual}" if self.clear else f"elsewhere it is {self.usual}"
        return f"{self.host}: {WORDS[self.what]} is {self.value}; {others}"


def compare(facts: Mapping[str, Mapping[str, Any]], clock_limit_s: float = CLOCK_LIMIT_S) -> list[Difference]:
    """All differences between nodes.

    Args:
        facts: by host, what `probe.facts` found, and ``clock_s``, the clock's offset against rank 0's node in seconds.
        clock_limit_s: the largest offset from the median that is no fault. Half a second is far above what a
            measurement over a network errs by, and below what breaks time-outs, tickets and the order of logs.
    """
    found: list[Difference] = []
    for what in (*MUST, *SHOULD):
        found.extend(_odd(what, {host: _value(fact.get(what)) for host, fact in facts.items()}, what in MUST))
    found.extend(_clocks({host: float(fact.get("clock_s", 0.0)) for host, fact in facts.items()}, clock_limit_s))
    for host, fact in facts.items():
        found.extend(Difference(host, "gpu_errors", text, "", True, True) for text in fact.get("gpu_errors", ()))
    return found


def _value(value: Any) -> Any:
    if isinstance(value, (list, tuple)):
        counted = Counter(str(item) for item in value)
        return ", ".join(f"{count} x {item}" for item, count in sorted(counted.items())) or "none"
    return value


def _odd(what: str, values: dict[str, Any], hard: bool) -> list[Difference]:
    if what == "memory_gib":
        values = _rounded(values)
    counted = Counter(values.values()).most_common()
    if len(counted) < 2:
        return []
    usual, count = counted[0]
    clear = 2 * count > len(values)
    return [
        Difference(host, what, str(value), str(usual), hard, clear) for host, value in values.items() if value != usual
    ]


def _rounded(values: dict[str, Any]) -> dict[str, Any]:
    """Equal within the tolerance means equal: the kernel keeps a little more or less for itself from boot to boot."""
    middle = _median([float(value or 0) for value in values.values()])
    near = {host: abs(float(value or 0) - middle) <= MEMORY_TOLERANCE * middle for host, value in values.items()}
    return {host: middle if near[host] else value for host, value in values.items()}


def _clocks(offsets: dict[str, float], limit_s: float) -> list[Difference]:
    middle = _median(list(offsets.values()))
    return [
        Difference(host, "clock", f"{offset - middle:+.3f}", "0", True, len(offsets) > 2)
        for host, offset in offsets.items()
        if abs(offset - middle) > limit_s
    ]


def _median(values: list[float]) -> float:
    """The lower of the two in the middle where there are two: a value that some node really has."""
    return sorted(values)[(len(values) - 1) // 2] if values else 0.0
