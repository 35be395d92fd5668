"""Compares measurements with the site's references, or without these with the other nodes. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

from stackyard.core.errors import InputError
from stackyard.inputs.sites.sitemodels import Reference
from stackyard.launch.preflight.model import Measurement, Verdict

RELATIVE = {"cpu": 0.5, "memory": 0.4, "gpu": 0.7, "allreduce_node": 0.5, "allreduce_pair": 0.33, "tcp": 0.33}
"""Without a reference: a measurement below this fraction of the median (of at least three of its kind) is slow. Wide
enough for the differences of healthy nodes; a link at half its width or a core at half its clock is below or near it.
A site can require more by a reference."""

_UNITS = {
    "B/s": ("B/s", 1.0), "MB/s": ("B/s", 1e6), "GB/s": ("B/s", 1e9), "TB/s": ("B/s", 1e12),
    "MiB/s": ("B/s", 2.0**20), "GiB/s": ("B/s", 2.0**30), "Mbit/s": ("B/s", 1e6 / 8), "Gbit/s": ("B/s", 1e9 / 8),
    "Mop/s": ("op/s", 1e6), "GFLOP/s": ("FLOP/s", 1e9), "TFLOP/s": ("FLOP/s", 1e12),
    "MHz": ("Hz", 1e6), "GHz": ("Hz", 1e9), "s": ("s", 1.0), "ms": ("s", 1e-3), "us": ("s", 1e-6),
}  # fmt: skip


def judge(measurements: Sequence[Measurement], references: Sequence[Reference]) -> tuple[Verdict, ...]:
    """A verdict for each measurement, in order.

    ``slow``: below value x (1 - low) of its reference, or without one far below the median of its kind. ``odd``: above
    value x (1 + high). By default the upper limit is open: switches that reduce exceed the rate of a link.

    Raises:
        InputError: the unit of a reference cannot be converted to that of the measurement.
    """
    named = {reference.name: reference for reference in references}
    middles = _middles(measurements)
    return tuple(_one(m, named.get(m.name), middles.get((m.name, m.unit))) for m in measurements)


def floor(name: str, unit: str, measurements: Sequence[Measurement], references: Sequence[Reference]) -> float:
    """The limit below which a measurement of that name is slow, in `unit`; 0 for no limit."""
    reference = next((r for r in references if r.name == name), None)
    if reference is not None and reference.low:
        return _in_unit(reference, unit) * (1 - reference.low)
    middle = _middles(measurements).get((name, unit))
    return middle * RELATIVE.get(name, 0.0) if middle else 0.0


def _one(m: Measurement, reference: Reference | None, middle: float | None) -> Verdict:
    where = f" on {', '.join(m.hosts)}" if 0 < len(m.hosts) <= 4 else f" on {len(m.hosts)} nodes" if m.hosts else ""
    said = f"{m.name} is {m.value:.3g} {m.unit}{where}"
    if reference is not None:
        value = _in_unit(reference, m.unit)
        against = f"{said}, expected {value:.3g}"
        if reference.low and m.value < value * (1 - reference.low):
            return Verdict(m.name, m.hosts, "slow", f"{against} (at least {value * (1 - reference.low):.3g})")
        if reference.high and m.value > value * (1 + reference.high):
            return Verdict(m.name, m.hosts, "odd", f"{against} (at most {value * (1 + reference.high):.3g})")
        if reference.low:
            return Verdict(m.name, m.hosts, "passed", against)
    if middle and m.value < middle * RELATIVE.get(m.name, 0.0):
        return Verdict(m.name, m.hosts, "slow", f"{said}, median {middle:.3g}")
    return Verdict(m.name, m.hosts, "passed", said)


def _middles(measurements: Sequence[Measurement]) -> dict[tuple[str, str], float]:
    values: dict[tuple[str, str], list[float]] = {}
    for m in measurements:
        values.setdefault((m.name, m.unit), []).append(m.value)
    return {key: median(numbers) for key, numbers in values.items() if len(numbers) >= 3}


def _in_unit(reference: Reference, unit: str) -> float:
    if reference.unit == unit:
        return reference.value
    mine, theirs = _UNITS.get(reference.unit), _UNITS.get(unit)
    if mine is None or theirs is None or mine[0] != theirs[0]:
        raise InputError(
            f"unit mismatch: reference {reference.name} is in {reference.unit}, the measurement in {unit}",
            hint=f"give the reference in {unit} in site.yaml",
        )
    return reference.value * mine[1] / theirs[1]
