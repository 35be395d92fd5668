"""Profiles a run that is running, without a change to it: ``stackyard profile RUN``."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from stackyard.core.errors import InputError, StackyardError
from stackyard.core.findings import counted
from stackyard.core.late import dataclass
from stackyard.core.quoting import plain
from stackyard.host.run.identity import whoami
from stackyard.launch.records.paths import RunPaths, StepPaths
from stackyard.launch.records.record import read_run
from stackyard.launch.records.status import current_status
from stackyard.launch.run.asking.requester import Answer, Requester

LOOK_S = 0.5
MORE_S = 600.0
"""After the seconds of a trace, or between two changes of its steps, so long until it is written."""


@dataclass(frozen=True)
class ProfileRequest:
    """What to trace: so many steps, or seconds; of `ranks`, or (empty) of the first rank of each node.

    `shapes` and `memory` are PyTorch's: the shapes of tensors, and allocations.
    """

    steps: int = 0
    seconds: float = 0.0
    ranks: tuple[int, ...] = ()
    shapes: bool = False
    memory: bool = False


@dataclass(frozen=True)
class RankTrace:
    """The trace of one rank. `files` are the names of what was written; `error`: why something was not."""

    rank: int
    host: str
    files: tuple[str, ...] = ()
    error: str = ""


@dataclass(frozen=True)
class LiveProfile:
    """The traces of a run, in `directory`."""

    directory: Path
    trace: str
    ranks: tuple[RankTrace, ...]


def profile_run(paths: RunPaths, request: ProfileRequest, tell: Callable[[str], None]) -> LiveProfile:
    """Trace a running run and wait until the traces are written.

    Raises:
        InputError: the run does not run, is another user's, or has no process that can be traced.
        StackyardError: its launch cannot be reached, or refuses; no rank could be traced.
    """
    record, status = read_run(paths), current_status(paths)
    if record.user != whoami():
        hint = f"ask {plain(record.user, 40)} to run this command"
        raise InputError(f"run {paths.name} belongs to {plain(record.user, 40)}, not to you", hint=hint)
    if status.state != "running":
        hint = "only a running run; for the next one: stackyard launch --profile torch"
        raise InputError(f"run {paths.name} is not running: {status.state}", hint=hint)
    with closing(Requester(paths.main, status.host)) as requester:
        chosen = _chosen(requester.ask({"do": "state"}), request, paths.name)
        trace = str(chosen[0].values["frameworks"][0])
        return _traced(requester, paths.main, trace, chosen, request, tell)


def _traced(
    requester: Requester, step: StepPaths, trace: str, chosen: Sequence[Answer], request: ProfileRequest,
    tell: Callable[[str], None],
) -> LiveProfile:  # fmt: skip
    directory = step.profile / trace
    _set_aside(directory)
    options = {
        "output_dir": str(directory), "steps": [0, request.steps] if request.steps else None,
        "seconds": request.seconds or None, "shapes": request.shapes, "memory": request.memory,
    }  # fmt: skip
    started = requester.ask({"do": "start", "trace": trace, "options": options}, _only(chosen))
    good = [one for one in started if not one.error]
    ranks = {(one.host, one.pid): int(one.values["rank"]) for one in chosen}
    failed = [RankTrace(ranks[one.host, one.pid], one.host, error=one.error) for one in started if one.error]
    if not good:
        why = failed[0].error if failed else "its processes have ended"
        raise StackyardError(f"cannot trace {counted(len(chosen), 'rank')}: {why}", hint=_other_way(request))
    tell(f"tracing {counted(len(good), 'rank')} with {trace}, {_much(request)}")
    try:
        _wait(requester, trace, good, request)
    finally:
        stopped = requester.ask({"do": "stop", "trace": trace}, _only(good))
    done = [_result(one, trace, ranks[one.host, one.pid]) for one in stopped]
    return LiveProfile(directory, trace, tuple(sorted((*done, *failed), key=lambda one: one.rank)))


def _chosen(states: Sequence[Answer], request: ProfileRequest, name: str) -> list[Answer]:
    """One process of each rank that is to be traced: the last one below it, since those above only supervise."""
    usable = [one for one in states if not one.error and one.values["frameworks"] and not one.values["worker"]]
    if not usable:
        raise InputError(
            f"no process of {name} can be traced: none has imported torch, TensorFlow or JAX with the probe",
            hint="ask again when it has; `python -I`, launch.probe: false, and Charliecloud with STACKYARD_TMP not in "
            "/tmp leave the probe out",
        )
    of_rank = {int(one.values["rank"]): one for one in usable}
    first = {host: min(r for r, one in of_rank.items() if one.host == host) for host in {o.host for o in usable}}
    ranks = request.ranks or tuple(sorted(first.values()))
    if missing := [rank for rank in ranks if rank not in of_rank]:
        known = ", ".join(map(str, sorted(of_rank)[:8]))
        raise InputError(f"rank {missing[0]} of {name} cannot be traced", hint=f"ranks that can be: {known} ...")
    return [of_rank[rank] for rank in ranks]


def _only(chosen: Sequence[Answer]) -> dict[int, list[int]]:
    only: dict[int, list[int]] = {}
    for one in chosen:
        only.setdefault(one.task, []).append(one.pid)
    return only


def _wait(requester: Requester, trace: str, chosen: Sequence[Answer], request: ProfileRequest) -> None:
    """Wait until no process traces any more."""
    until = time.monotonic() + (request.seconds + MORE_S if request.seconds else math.inf)
    while time.monotonic() < until:
        time.sleep(LOOK_S)
        states = requester.ask({"do": "state"}, _only(chosen))
        if not any(_runs(one, trace) for one in states):
            return


def _runs(state: Answer, trace: str) -> bool:
    traces = state.values.get("traces", {})
    return bool(traces.get(trace, {}).get("running"))


def _result(stopped: Answer, trace: str, rank: int) -> RankTrace:
    result: dict[str, Any] = stopped.values.get("stopped", {}).get(trace, {})
    files = tuple(plain(Path(str(file)).name, 255) for file in result.get("files", ()))
    return RankTrace(rank, stopped.host, files, stopped.error or plain(str(result.get("error", "")), 300))


def _set_aside(directory: Path) -> None:
    """Keep the traces of an earlier time under another name: readers take every file as one of a rank."""
    if directory.exists() and any(directory.iterdir()):
        aside = next(a for a in _numbered(directory) if not a.exists())
        directory.rename(aside)


def _numbered(directory: Path) -> Iterator[Path]:
    number = 1
    while True:
        yield directory.with_name(f"{directory.name}-{number}")
        number += 1


def _other_way(request: ProfileRequest) -> str:
    return "ask again when it trains, or trace seconds: --for 10s" if request.steps else "see the logs of the run"


def _much(request: ProfileRequest) -> str:
    return counted(request.steps, "step") if request.steps else f"{request.seconds:g} s"
