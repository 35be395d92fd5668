"""Speed-up and efficiency of one size against the smallest measured, from runs that are not paired."""

from __future__ import annotations

from collections.abc import Sequence

from stackyard.core.errors import InputError
from stackyard.core.late import dataclass
from stackyard.study.statistics.exact import Interval
from stackyard.study.statistics.ratios import ratio


@dataclass(frozen=True)
class Scaling:
    """How one size does against the baseline of `base` nodes.

    Attributes:
        speedup: R(N)/R(N0), how much more is done in the same time.
        efficiency: what of the ideal that is; None for ``throughput``, which has no ideal.
    """

    nodes: int
    base: int
    speedup: Interval
    efficiency: Interval | None

    @property
    def note(self) -> str:
        """What the figure does not show; empty if the baseline is one node."""
        return f"what is lost between 1 and {self.base} nodes is not in this figure" if self.base > 1 else ""


def scaling(
    kind: str, base: tuple[int, Sequence[float]], size: tuple[int, Sequence[float]], *, is_time: bool = False
) -> Scaling:
    """Speed-up and efficiency; r = N/N0 nodes.

    ============ ============================ ================
    kind         speed-up                     efficiency
    ============ ============================ ================
    strong       T(N0)/T(N) = R(N)/R(N0)      speed-up / r
    weak         r T(N0)/T(N) = R(N)/R(N0)    speed-up / r
    throughput   R(N)/R(N0)                   none
    ============ ============================ ================

    Args:
        kind: ``strong``, ``weak`` or ``throughput``. In a strong study all sizes do the same work, in a weak one each
            node does.
        base: nodes and values of the smallest size that was measured.
        size: nodes and values of the other size.
        is_time: the values are times T, not rates R.

    Raises:
        InputError: times for ``throughput``, no runs, a value not above 0.
    """
    if kind == "throughput" and is_time:
        raise InputError("cannot compare throughputs: the metric is a time", hint="name a metric that is a rate")
    more = size[0] / base[0]
    speedup = ratio(size[1], base[1]) if is_time else ratio(base[1], size[1])
    speedup = _times(speedup, more) if is_time and kind == "weak" else speedup
    return Scaling(size[0], base[0], speedup, None if kind == "throughput" else _times(speedup, 1 / more))


def _times(interval: Interval, factor: float) -> Interval:
    low, high = interval.low * factor, interval.high * factor
    return Interval(interval.value * factor, low, high, interval.n, interval.confidence)
