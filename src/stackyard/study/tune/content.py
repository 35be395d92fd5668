"""The report of a search: its document, and its trials as CSV and JSON."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any

from stackyard.core.findings import counted
from stackyard.study.report.data import csv_text
from stackyard.study.report.document import Commands, Figure, Prose, ReportDocument, ReportTable, Section, said
from stackyard.study.report.words import number
from stackyard.study.tune.figures import curves_figure, importance_figure, parallel_figure
from stackyard.study.tune.progress import TrialProgress
from stackyard.study.tune.request import SearchRequest, shown
from stackyard.study.tune.results import SearchResults

FORMAT = 1
MOST_ROWS, MOST_BRIEF, MOST_FAILED = 2_000, 10, 20


def search_document(found: SearchResults) -> ReportDocument:
    """The report of a search."""
    sections = [Section("Summary", (Prose(tuple(_summary(found)), is_list=True),), is_brief=True)]
    if found.typed:
        sections.append(Section("The best parameters, to type", (Commands("", (found.typed,)),), is_brief=True))
    if found.trials:
        sections.append(
            Section("The best trials", (_table(found, found.trials[:MOST_BRIEF], "the best first"),), is_brief=True)
        )
    if figures := tuple(_figures(found)):
        sections.append(Section("Parameters", figures))
    if len(found.request.budgets) > 1:
        sections.append(Section("Rungs", (_rungs(found),), is_brief=True))
    if failed := [trial for trial in found.trials if trial.is_bad]:
        sections.append(Section("What failed", (_failed(failed),), is_brief=True))
    sections.append(Section("Methods", (Prose(tuple(_methods(found))),)))
    caption = (
        "all trials" if len(found.trials) <= MOST_ROWS else f"the best {MOST_ROWS:,} of {len(found.trials):,} trials"
    )
    sections.append(Section("Every trial", (_table(found, found.trials[:MOST_ROWS], caption),)))
    return ReportDocument(f"Search {said(found.name, 120)}", tuple(sections))


def _summary(found: SearchResults) -> Iterator[str]:
    metric, best = said(found.request.metric.name, 80), found.best
    if best is None:
        yield "No trial has a value yet."
    else:
        assert best.value is not None
        params = ", ".join(f"{name} {said(shown(value), 60)}" for name, value in best.params.items())
        yield f"Best {metric}: {number(best.value)} ({found.request.better} is better), trial {best.number}: {params}"
    states = [
        len(found.ended),
        sum(trial.is_bad for trial in found.trials),
        sum(trial.running >= 0 for trial in found.trials),
    ]
    count = len(found.trials) if found.request.engine == "ray" else found.request.count
    words = [f"{states[0]} of {counted(count, 'trial')} have a result"]
    words += [f"{states[1]} of them failed"] if states[1] else []
    words += [f"{states[2]} running or interrupted"] if states[2] else []
    yield "; ".join(words)
    waits = sum(trial.waits >= 0 for trial in found.trials)
    if waits:
        yield f"{counted(waits, 'trial')} interrupted: `stackyard tune --continue` goes on with them"
    if found.importance:
        name, share = next(iter(found.importance.items()))
        yield f"{said(name, 60)} matters most: {100 * share:.0f} % of the differences between trials"
    yield f"{found.seconds / 3600:.3g} hours of trials"
    yield from map(said, found.about.remarks)


def _figures(found: SearchResults) -> Iterator[Figure]:
    if sum(trial.value is not None for trial in found.trials) > 1:
        yield parallel_figure(found)
    if found.importance:
        yield importance_figure(found)
    if found.curves:
        yield curves_figure(found)


def _table(found: SearchResults, trials: Sequence[TrialProgress], caption: str) -> ReportTable:
    names, metric = tuple(found.request.parameters), said(found.request.metric.name, 60)
    columns = ("trial", metric, *names, found.request.resource or "reports", "seconds", "which is")
    rows = [
        (str(one.number), "" if one.value is None else number(one.value),
         *(said(shown(one.params.get(name, "")), 60) for name in names),
         str(max(one.reports, default=0)), f"{one.seconds:.1f}", state_of(one))
        for one in trials
    ]  # fmt: skip
    return ReportTable(caption, columns, tuple(rows), frozenset(columns) - {"which is"})


def state_of(trial: TrialProgress) -> str:
    """A trial's state in one word."""
    if trial.running >= 0:
        return "running"
    if trial.waits >= 0:
        return "interrupted"
    return trial.last.state if trial.last else "asked"


def _rungs(found: SearchResults) -> ReportTable:
    rows = []
    for rung, budget in enumerate(found.request.budgets):
        values = [trial.results[rung].value for trial in found.trials if rung in trial.results]
        good = sorted(value for value in values if value is not None)
        best = (good[0] if found.request.better == "lower" else good[-1]) if good else None
        rows.append((str(budget), str(len(values)), "" if best is None else number(best)))
    columns = (said(found.request.resource, 60), "trials", f"best {said(found.request.metric.name, 60)}")
    caption = f"{found.request.scheduler}: one trial in {found.request.rungs_eta} goes on"
    return ReportTable(caption, columns, tuple(rows), frozenset(columns))


def _failed(trials: Sequence[TrialProgress]) -> ReportTable:
    rows = [(str(one.number), one.last.state, said(one.last.message, 300)) for one in trials[:MOST_FAILED] if one.last]
    more = f"; {len(trials) - MOST_FAILED} more are not listed" if len(trials) > MOST_FAILED else ""
    return ReportTable(f"{counted(len(trials), 'trial')}{more}", ("trial", "state", "why"), tuple(rows))


def _methods(found: SearchResults) -> Iterator[str]:
    request = found.request
    if request.engine == "ray":
        yield "Ray Tune chose and compared the trials; their results were read from its files, each once."
        return
    yield (f"Search: {request.search}, seed {found.about.seed}: parameters follow from the seed, the number of a trial "
           "and what was known when it was asked for, which the journal has.")  # fmt: skip
    if request.scheduler != "none":
        yield (f"Rungs at {request.resource} {', '.join(map(str, request.budgets))}: the value of a rung is the "
               "first one reported at its budget or beyond; a trial goes on from its own checkpoint.")  # fmt: skip
    if request.scheduler == "asha":
        yield ("ASHA decides as results arrive. With several slots, the same search run again compares other trials; "
               "halving does not.")  # fmt: skip
    if found.importance:
        yield ("Importance: the share of the variance of the values' ranks between groups of trials with about the "
               "same value of a parameter, less what chance gives so many groups. It sees one at a time.")  # fmt: skip


def search_csv(found: SearchResults) -> str:
    """A row for each trial."""
    names = tuple(found.request.parameters)
    columns = ("trial", "state", "value", "resource", "seconds", "seed", *(f"param_{n}" for n in names), "message")
    return csv_text(columns, (
        {"trial": one.number, "state": state_of(one), "value": one.value, "resource": max(one.reports, default=0),
         "seconds": round(one.seconds, 3), "seed": one.seed, "message": one.last.message if one.last else "",
         **{f"param_{name}": one.params.get(name, "") for name in names}}
        for one in sorted(found.trials, key=lambda one: one.number)
    ))  # fmt: skip


def search_json(found: SearchResults) -> dict[str, Any]:
    """Everything that the report has, as JSON."""
    best = found.best
    return {
        "format": FORMAT, "search": found.name, "about": asdict(found.about), "request": plain_request(found.request),
        "best": best and {"trial": best.number, "value": best.value, "params": best.params, "command": found.typed},
        "importance": found.importance,
        "trials": [
            {"trial": one.number, "state": state_of(one), "value": one.value, "params": one.params, "seed": one.seed,
             "seconds": round(one.seconds, 3), "results": {str(k): v.value for k, v in one.results.items()},
             "reports": {str(k): v for k, v in one.reports.items()}}
            for one in sorted(found.trials, key=lambda one: one.number)
        ],
    }  # fmt: skip


def plain_request(request: SearchRequest) -> dict[str, Any]:
    """The request as JSON values, without secrets."""
    plain: dict[str, Any] = request.model_copy(update={"job": request.job.recorded()}).model_dump(mode="json")
    return plain
