"""Replays a journal: asks for each trial again by what was known then, and decides each rung again."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from stackyard.core.findings import counted
from stackyard.launch.api.jobs import Workspace
from stackyard.study.tune.journal import read_journal
from stackyard.study.tune.optimizer import Sampler, sampler_of
from stackyard.study.tune.progress import SearchProgress
from stackyard.study.tune.request import SearchRequest, load_space
from stackyard.study.tune.rungs import going_on
from stackyard.study.tune.store import SearchPaths, StoredSearch, read_about

MOST_SHOWN = 10


@dataclass(frozen=True)
class Verification:
    """What a replay found.

    Attributes:
        rungs: the trials with a result at each rung.
        differences: sentences; empty if all is the same.
    """

    rungs: list[list[int]]
    asked: int
    promoted: int
    sentences: tuple[str, ...]
    differences: tuple[str, ...]


def verify_search(root: Path, workspace: Workspace) -> Verification:
    """Replay the journal of a search, and write nothing.

    Raises:
        InputError: the directory is not a search, or its journal is damaged.
        MissingError: its optimizer is not there.
    """
    paths = SearchPaths(root.absolute())
    about, request = read_about(paths), load_space(paths.request)
    sampler = sampler_of(StoredSearch(paths, request, about, workspace))
    try:
        return _replayed(paths, request, sampler)
    finally:
        sampler.close()


def _replayed(paths: SearchPaths, request: SearchRequest, sampler: Sampler) -> Verification:
    text, progress, differences, promoted = read_journal(paths.journal), SearchProgress(), [], 0
    begun: set[tuple[int, int]] = set()
    for number, event in enumerate(text.events):
        step = event.get("trial", -1), event.get("rung", -1)
        if event["event"] == "asked" and request.engine != "ray":
            if event.get("known") != number:
                differences.append(f"line {number + 1}: trial {step[0]} knew {event.get('known')} lines, not {number}")
            elif (params := sampler.ask(step[0], progress)) != event["params"]:
                differences.append(f"line {number + 1}: trial {step[0]} would be {params}, and was {event['params']}")
        if event["event"] == "started" and step[1] > 0 and step not in begun:
            promoted += 1
            if step not in set(going_on(request, progress)):
                differences.append(f"line {number + 1}: trial {step[0]} would not go on to rung {step[1]}")
        if event["event"] == "started":
            begun.add(step)
        progress.apply(event)
    if progress.repeated:
        differences.append(f"{counted(progress.repeated, 'result or report')} counted once, and written again")
    rungs = [sorted(progress.at(rung)) for rung in range(len(request.budgets))]
    asked = len(progress.trials)
    again = f"{counted(asked, 'trial')} asked for again, {promoted} promotions decided again"
    said = [f"{counted(len(text.events), 'event')}: {again}"]
    if text.torn:
        said.append(f"the last line is not finished: {text.torn} bytes do not count")
    if request.scheduler != "none":
        for rung, (budget, trials) in enumerate(zip(request.budgets, rungs, strict=True)):
            which = " ".join(map(str, trials))
            said.append(f"rung {rung} ({request.resource} {budget}): {counted(len(trials), 'trial')}: {which}")
    said += differences[:MOST_SHOWN] or ["all the same"]
    if len(differences) > MOST_SHOWN:
        said.append(f"and {len(differences) - MOST_SHOWN} more")
    return Verification(rungs, asked, promoted, tuple(said), tuple(differences))
