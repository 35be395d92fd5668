"""Finds the nodes of a job that differ from the others. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any, NamedTuple

MUST = ("cpu", "cores", "memory_gib", "gpus", "driver")
SHOULD = ("kernel", "glibc", "hugepages")
WORDS = {"cpu": "CPU", "cores": "number of CPUs", "memory_gib": "memory (GiB)", "gpus": "GPUs",
         "driver": "GPU driver", "kernel": "kernel", "glibc": "glibc", "hugepages": "huge pages",
         "clock": "clock offset (s)", "gpu_errors": "GPU memory"}  # fmt: skip
MEMORY_TOLERANCE = 0.03
CLOCK_LIMIT_S = 0.5


class Difference(NamedTuple):
    """A difference: `host` has `value`, most have `usual`. `hard`: a job must not run on it; `clear`: by majority."""

    host: str
    what: str
    value: str
    usual: str
    hard: bool
    clear: bool

    def __str__(self) -> str:
        if self.what == "gpu_errors":
            return f"{self.host}: {self.value}"
        others = "on most nodes" if self.clear else "on other nodes"
        return f"{self.host}: {WORDS[self.what]} is {self.value}, {others} {self.usual}"


def compare(facts: Mapping[str, Mapping[str, Any]], clock_limit_s: float = CLOCK_LIMIT_S) -> list[Difference]:
    """All differences between nodes.

    Args:
        facts: by host, the result of `probe.facts`, and ``clock_s``, the clock's offset against rank 0's node in
            seconds.
        clock_limit_s: the largest tolerated offset from the median. Half a second is far above the error of a
            measurement over a network, and below what breaks timeouts, tickets and the order of logs.
    """
    differences: list[Difference] = []
    for what in (*MUST, *SHOULD):
        differences.extend(_odd(what, {host: _value(fact.get(what)) for host, fact in facts.items()}, what in MUST))
    differences.extend(_clocks({host: float(fact.get("clock_s", 0.0)) for host, fact in facts.items()}, clock_limit_s))
    for host, fact in facts.items():
        differences.extend(Difference(host, "gpu_errors", text, "", True, True) for text in fact.get("gpu_errors", ()))
    return differences


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
    """Values within the tolerance count as equal: the kernel reserves a little more or less from boot to boot."""
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
    """The median; of two middle values the lower one, so that it is the value of a node."""
    return sorted(values)[(len(values) - 1) // 2] if values else 0.0
