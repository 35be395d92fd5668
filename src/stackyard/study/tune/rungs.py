"""What comes next in a search: a pure function of its journal, so that it can be replayed.

Successive halving (Jamieson and Talwalkar 2016): when all trials of a rung have a result, the best one in `eta` goes on
to the next. ASHA (Li et al. 2020, algorithm 2): a trial goes on as soon as it is among the best one in `eta` of those
that have reached its rung. A trial goes on from its own checkpoint.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from stackyard.study.tune.progress import RungResult, SearchProgress, order
from stackyard.study.tune.request import SearchRequest


class Start(NamedTuple):
    """Run a trial up to a rung's budget."""

    trial: int
    rung: int


class Ask(NamedTuple):
    """Ask for the parameters of a trial, and run it."""

    trial: int


def next_step(request: SearchRequest, progress: SearchProgress) -> Start | Ask | None:
    """What a free slot does next; None: wait for results, or nothing is left (`is_done`).

    Interrupted trials come first, then those that go on, then new ones.
    """
    waiting = [Start(trial.number, trial.waits) for trial in progress.trials.values() if trial.waits >= 0]
    if waiting:
        return waiting[0]
    for start in going_on(request, progress):
        if progress.trials[start.trial].running < 0:
            return start
    # with halving all trials are asked for before the first rung is compared
    return Ask(len(progress.trials)) if len(progress.trials) < request.count else None


def is_done(request: SearchRequest, progress: SearchProgress) -> bool:
    """Whether nothing runs and nothing is left to run; of a program that Ray runs, whether it has ended well."""
    if request.engine == "ray":
        return progress.engine_done
    return not progress.running and next_step(request, progress) is None


def going_on(request: SearchRequest, progress: SearchProgress) -> Iterator[Start]:
    """The trials that go on to a next rung which they have not begun, the highest rung first."""
    for rung in reversed(range(len(request.budgets) - 1)):
        begun = {number for number, trial in progress.trials.items()
                 if rung + 1 in trial.results or rung + 1 in (trial.running, trial.waits)}  # fmt: skip
        for number in chosen(request, progress, rung):
            if number not in begun:
                yield Start(number, rung + 1)


def chosen(request: SearchRequest, progress: SearchProgress, rung: int) -> list[int]:
    """The trials that go on from a rung, the best first."""
    results = progress.at(rung)
    if request.scheduler == "halving":
        if len(results) < _expected(request, progress, rung):
            return []
        count = max(1, len(results) // request.rungs_eta)
    else:
        count = len(results) // request.rungs_eta
        if len(results) == request.count and not rung:
            count = max(1, count)  # fewer trials than eta: the best one goes on all the same
    return _ranked(request, results)[:count]


def _expected(request: SearchRequest, progress: SearchProgress, rung: int) -> int:
    """How many trials reach a rung, once those below it are known."""
    if not rung:
        return request.count
    return len(chosen(request, progress, rung - 1)) or request.count


def _ranked(request: SearchRequest, results: dict[int, RungResult]) -> list[int]:
    good = {number: one for number, one in results.items() if one.state == "done" and one.value is not None}
    return sorted(good, key=lambda number: order(request.better, good[number].value, number))
