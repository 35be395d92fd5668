"""The times of all traced ranks side by side: what each step was spent on, who waited for whom."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from functools import cached_property
from math import exp, lgamma, log, log1p
from statistics import median, median_low
from typing import NamedTuple

from stackyard.core.late import dataclass
from stackyard.study.metrics.measured import Memory
from stackyard.study.profiles import activity
from stackyard.study.profiles.activity import RankTrace, Sums
from stackyard.study.profiles.intervals import together

PARTS = ("computation", "copies", "communication", "waiting for data", "idle")
"""What each moment of a step is counted as, once; `idle` is what no event covers: Python, or a wait that is not one."""
NO_WORK = re.compile(f"{activity.LAUNCH.pattern}|{activity.COPY.pattern}|.*nccl")
"""Operators and kernels that compute nothing."""
CHANCE = 0.05
"""A rank is slow if it would be the slowest as often with less than this probability among equal ranks."""
Shares = Mapping[str, float]


@dataclass(frozen=True)
class RankView:
    """One rank in microseconds.

    Attributes:
        steps: the duration of each step by its number; -1 is the whole of a trace without steps.
        parts: of each step the time of each of `PARTS`.
        communication: all of it in all steps, also beside computation.
        hidden: how much of that was beside computation.
        waits: how long the CPU waited for the GPU.
    """

    trace: RankTrace
    steps: Mapping[int, float]
    parts: Mapping[int, Shares]
    communication: float
    hidden: float
    waits: float

    @property
    def work(self) -> Sums:
        """The kernels of its GPU, or without one the operators of its CPU."""
        return self.trace.kernels if self.trace.has_gpu else self.trace.operations

    @property
    def copies(self) -> Sums:
        """The copies between memories, or without a GPU the operators that copy."""
        return self.trace.transfers if self.trace.has_gpu else self.trace.copied_by

    @property
    def total(self) -> float:
        """The time of all steps."""
        return sum(self.steps.values())

    def share(self, part: str) -> float:
        """The share of a part in the time of all steps."""
        return sum(step[part] for step in self.parts.values()) / self.total if self.total else 0.0

    def own(self, step: int) -> float:
        """The time of a step without communication that nothing else went on beside."""
        return self.steps[step] - self.parts[step]["communication"]


class Row(NamedTuple):
    """An operation: its calls and microseconds per rank and step, and the rank on which it takes longest."""

    name: str
    calls: float
    us: float
    rank: int


@dataclass(frozen=True)
class Exchange:
    """All collectives of one name, per rank and step in microseconds.

    Attributes:
        us: the mean over the ranks.
        transport: of the rank that came last to each: the others' time beyond it is waiting.
    """

    name: str
    calls: float
    us: float
    transport: float
    bytes: float


@dataclass(frozen=True)
class SlowRank:
    """A rank that the others wait for.

    Attributes:
        often, of: in how many of the common steps it had most work of its own.
        own, others: the median of its time without communication, and of the others', in microseconds.
        more: by how much more of each part it has, in a step.
    """

    rank: int
    often: int
    of: int
    own: float
    others: float
    more: Mapping[str, float]


@dataclass(frozen=True)
class Overview:
    """What the traces of a run show."""

    name: str
    ranks: tuple[RankView, ...]
    unread: Mapping[str, str]
    """Files that have no step and no event that is known, with the reason."""
    used: Mapping[int, Memory]
    """The most memory of each rank, as its agent saw it."""
    is_undecided, is_met = False, True
    """As of a study: a profile has no comparison and no reference."""

    @cached_property
    def whole(self) -> tuple[RankView, ...]:
        """The ranks of whose trace no kind of events may be missing."""
        return tuple(rank for rank in self.ranks if not rank.trace.is_partial)

    @property
    def has_gpu(self) -> bool:
        """Whether a rank used a GPU."""
        return any(rank.trace.has_gpu for rank in self.ranks)

    @property
    def world(self) -> int:
        """The ranks of the run, as far as known."""
        return max([len(self.ranks), *(rank.trace.world for rank in self.ranks)])

    @property
    def common(self) -> list[int]:
        """The steps that every whole rank has."""
        kept = [set(rank.steps) for rank in self.whole]
        return sorted(set.intersection(*kept)) if kept else []

    @property
    def step_us(self) -> float:
        """The median duration of a step."""
        return median([us for rank in self.ranks for us in rank.steps.values()] or [0.0])

    def usual(self, part: str) -> float:
        """The share of a part that is common to the whole ranks: of two the smaller, of more the median."""
        return median_low([rank.share(part) for rank in self.whole] or [0.0])

    @cached_property
    def exchanges(self) -> list[Exchange]:
        """The collectives by name, the longest first."""
        return _exchanges(self.whole)

    @property
    def transport(self) -> float:
        """The share of communication that is not waiting for a rank that comes later; 1 if one rank alone is known."""
        total = sum(each.us for each in self.exchanges)
        return sum(each.transport for each in self.exchanges) / total if total else 1.0

    @cached_property
    def slow(self) -> SlowRank | None:
        """The rank that is the slowest more often than by chance; None without one."""
        return _slow(self)

    @property
    def waiting(self) -> float:
        """The share of a step in which ranks wait for another one."""
        shares = [rank.share("communication") for rank in self.whole]
        return sum(shares) / max(len(shares), 1) * (1 - self.transport)

    @property
    def late_for_data(self) -> float:
        """How much of `waiting` is for a rank that itself waits for its data: the part of its lateness that is that."""
        late = data = 0.0
        for step in self.common:
            *before, last = sorted(self.whole, key=lambda rank: rank.own(step))
            if before:
                late += last.own(step) - before[-1].own(step)
                data += last.parts[step]["waiting for data"] - before[-1].parts[step]["waiting for data"]
        return self.waiting * min(max(data / late, 0.0), 1.0) if late else 0.0

    def operations(self, kind: str, count: int = 10) -> list[Row]:
        """The most expensive ``operations``, ``kernels`` or ``transfers``, without those that start a collective."""
        sums: list[tuple[int, Sums]] = [(view.trace.rank, getattr(view.trace, kind)) for view in self.ranks]
        steps = sum(len(rank.steps) for rank in self.ranks) or 1
        rows = [
            Row(name, sum(own.calls[name] for _, own in sums) / steps, sum(own.us[name] for _, own in sums) / steps,
                max((own.us[name], rank) for rank, own in sums)[1])
            for name in {name for _, own in sums for name in own.us} if not activity.LAUNCH.match(name)
        ]  # fmt: skip
        return sorted(rows, key=lambda row: (-row.us, row.name))[:count]


def rank_view(trace: RankTrace) -> RankView:
    """The times of one rank; those in its trace are dropped, so that many ranks fit into memory."""
    windows = trace.windows
    numbers = [number for number, _, _ in trace.steps] or [-1] * len(windows)
    held = together(trace.times, windows)
    trace.times.clear()  # large, and of no more use
    parts: dict[int, Shares] = {}
    communication = hidden = waits = 0.0
    for number, step in zip(numbers, held, strict=True):
        times = dict.fromkeys(PARTS, 0.0)
        for bits, us in step.items():
            part = _part(bits, has_gpu=trace.has_gpu)
            times[part] += us
            if bits & (activity.COLLECTIVES | (0 if trace.has_gpu else activity.LAUNCHES)):
                communication += us
                hidden += us * (part in ("computation", "copies"))
            waits += us * bool(bits & activity.WAITS)
        parts[number] = times
    durations = {number: end - start for number, (start, end) in zip(numbers, windows, strict=True)}
    return RankView(trace, durations, parts, communication, hidden, waits)


def _part(bits: int, *, has_gpu: bool) -> str:
    """What a moment counts as, in which these kinds of events were going on.

    With a GPU its work comes first: a loader or a copy beside kernels costs nothing. Without one the main thread is
    what takes the time, and a collective in the background costs nothing while it has something to do.
    """
    if has_gpu:
        order = ((activity.KERNELS, 0), (activity.COLLECTIVES, 2), (activity.TRANSFERS, 1), (activity.LOADER, 3))
    else:
        order = ((activity.LOADER, 3), (activity.COPIES, 1), (activity.LAUNCHES, 2), (activity.OPERATORS, 0),
                 (activity.COLLECTIVES, 2))  # type: ignore[assignment]  # fmt: skip
    return PARTS[next((part for bit, part in order if bits & bit), 4)]


def _exchanges(ranks: Sequence[RankView]) -> list[Exchange]:
    """The collectives of each name: those of one step are matched by their order in it."""
    found = []
    steps = sum(len(rank.steps) for rank in ranks) or 1
    by_name: dict[str, list[dict[tuple[int, int], activity.Call]]] = defaultdict(lambda: [{} for _ in ranks])
    for at, view in enumerate(ranks):
        for key, call in _numbered(view):
            by_name[call.name][at][key] = call
    for name, each in by_name.items():
        calls = [call for own in each for call in own.values()]
        shared = set.intersection(*(set(own) for own in each)) if len(ranks) > 1 else set()
        alone = sum(call.us for own in each for key, call in own.items() if key not in shared)
        transport = alone + sum(len(ranks) * min(own[key].us for own in each) for key in shared)
        found.append(Exchange(
            name, len(calls) / steps, sum(call.us for call in calls) / steps, transport / steps,
            sum(call.bytes for call in calls) / steps,
        ))  # fmt: skip
    return sorted(found, key=lambda one: -one.us)


def _numbered(view: RankView) -> list[tuple[tuple[int, int], activity.Call]]:
    """The collectives within the steps, each with its step and its place among those of its name there."""
    counts: dict[tuple[str, int], int] = defaultdict(int)
    found, at = [], 0
    windows, numbers = view.trace.windows, list(view.steps)
    for call in sorted(view.trace.collectives, key=lambda call: call.start):
        while at < len(windows) and windows[at][1] <= call.start:
            at += 1
        if at < len(windows) and windows[at][0] <= call.start:
            key = call.name, numbers[at]
            found.append(((numbers[at], counts[key]), call))
            counts[key] += 1
    return found


def _at_least(hits: int, of: int, chance: float) -> float:
    """The probability of so many hits or more (binomial distribution)."""
    logs = (lgamma(of + 1) - lgamma(n + 1) - lgamma(of - n + 1) + n * log(chance) + (of - n) * log1p(-chance)
            for n in range(hits, of + 1))  # fmt: skip
    return sum(map(exp, logs))


def _slow(found: Overview) -> SlowRank | None:
    steps, ranks = found.common, found.whole
    if len(ranks) < 2 or not steps or -1 in steps:
        return None
    counts = Counter(max((view.own(step), at) for at, view in enumerate(ranks))[1] for step in steps)
    at, often = counts.most_common(1)[0]
    if len(ranks) * _at_least(often, len(steps), 1 / len(ranks)) >= CHANCE:
        return None
    rank, others = ranks[at], [*ranks[:at], *ranks[at + 1 :]]
    own = median(rank.own(step) for step in steps)
    usual = median_low([median(each.own(step) for step in steps) for each in others])
    more = {part: rank.total * rank.share(part) / len(rank.steps)
                  - median_low([each.total * each.share(part) / len(each.steps) for each in others])
            for part in PARTS if part != "communication"}  # fmt: skip
    return SlowRank(rank.trace.rank, often, len(steps), own, usual, more)
