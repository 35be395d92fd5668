"""What ``stackyard tune`` shows: the plan, trials as they end or a live table of them, and the result."""

from __future__ import annotations

import sys
import time
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from stackyard.cli.agreeing import agree
from stackyard.cli.context import Context
from stackyard.cli.output import echo, show_json, show_notice, show_table, show_text
from stackyard.cli.study.carrying import confirm_price, continued_by, price_of
from stackyard.core.errors import InputError
from stackyard.core.findings import counted
from stackyard.study.api import SearchWatcher

if TYPE_CHECKING:
    from stackyard.study.api import SearchOutlook, SearchRequest, StoredSearch

REDRAW_S, MOST_ROWS = 0.5, 12


class View(SearchWatcher):
    """A line for each trial that ends; at a terminal a table below them of those that run."""

    def __init__(self, request: SearchRequest, *, quiet: bool, live: bool) -> None:
        self._request, self._quiet, self._drawn = request, quiet, 0.0
        self._table: Any = None
        if live and not quiet:
            from rich.console import Console
            from rich.live import Live

            self._table = Live(console=Console(stderr=True, highlight=False), auto_refresh=False, transient=True)
            self._table.start()

    def close(self) -> None:
        """Take the table away."""
        if self._table:
            self._table.stop()
            self._table = None

    def notice(self, sentence: str) -> None:
        """What is odd, or waited for."""
        show_notice(sentence)

    def event(self, event: dict[str, Any], progress: Any) -> None:
        """The end of a trial's run."""
        if self._quiet or event["event"] != "ended" or event.get("again"):
            return
        trial, metric = progress.trials[event["trial"]], self._request.metric.name
        budget = self._request.budgets[event["rung"]]
        at = f" at {budget}" if len(self._request.budgets) > 1 else ""
        name = f"trial {trial.number}{at}"
        ended = sum(one.last is not None for one in progress.trials.values())
        of = "" if self._request.engine == "ray" else f"/{self._request.count}"
        if event["state"] == "done":
            params = " ".join(f"{key}={value}" for key, value in trial.params.items())
            echo(f"[{ended}{of}] {name}: {metric} {event['value']:.6g}  {params}", err=True)
        else:
            colour = "yellow" if event["state"] == "interrupted" else "red"
            echo(
                f"[{ended}{of}] {name}: {click.style(event['state'], fg=colour)}: {event['message']}",
                err=True,
            )

    def idle(self, progress: Any) -> None:
        """Draw the table again."""
        if self._table is None or time.monotonic() < self._drawn + REDRAW_S:
            return
        from rich.table import Table

        self._drawn = time.monotonic()
        table = Table(box=None, pad_edge=False)
        for column in (
            "trial",
            "slot",
            "for",
            self._request.resource or "reports",
            self._request.metric.name,
            "parameters",
        ):
            table.add_column(column, no_wrap=True)
        for trial in progress.running[:MOST_ROWS]:
            at = max(trial.reports, default=0)
            value = f"{trial.reports[at]:.5g}" if at in trial.reports else ""
            params = " ".join(f"{key}={one}" for key, one in trial.params.items())
            table.add_row(str(trial.number), trial.slot, _clock(time.time() - trial.started), str(at), value, params)
        best = progress.best(self._request.better)
        said = f"{sum(one.last is not None for one in progress.trials.values())} of {self._request.count} trials"
        if best is not None:
            said += f"; best {best.value:.6g}, trial {best.number}"
        table.caption = said
        self._table.update(table, refresh=True)


def _clock(seconds: float) -> str:
    return f"{int(seconds) // 60}:{int(seconds) % 60:02d}"


def begin(context: Context, request: SearchRequest, options: dict[str, Any]) -> None:
    """Plan a search, ask about its price, create it and carry it out."""
    from stackyard.study.api import create_search, default_search_root, search_outlook

    workspace = context.job_workspace()
    look = search_outlook(request, workspace, lambda job: agree(context, job))
    root = options["directory"] or default_search_root(request)
    if options["dry_run"]:
        _dry_run(look, root, options["as_json"])
        return
    if not options["as_json"]:
        show_text(f"search {click.style(str(root), bold=True)}: {_summary(look)}", err=True)
        for remark in request.remarks:
            show_notice(remark)
    if look.how == "jobs":
        confirm_price(context, look.node_hours, counted(request.allocations, "job"), "job", agreed=options["yes"])
    study = create_search(root, request, workspace, look.how, context.command)
    _carry_out(context, study, options, look.request.allocations)


def go_on(context: Context, root: Path, options: dict[str, Any]) -> None:
    """Go on with a search."""
    from stackyard.study.api import open_search, steps_left

    study = open_search(root, context.job_workspace())
    if options["dry_run"]:
        left = steps_left(study)
        show_json({"dry_run": True, **left}) if options["as_json"] else show_text(
            f"{root}: {counted(left['open'], 'trial')} to go on with, "
            f"{left['missing']:,} of {counted(left['trials'], 'trial')} not begun"
        )
        return
    _carry_out(context, study, options, options["allocations"] or study.request.allocations)


def inside(context: Context, root: Path, number: int, *, again: bool) -> None:
    """Carry out a search in one of its allocations, and record the job's end for its follower."""
    from dataclasses import replace

    from stackyard.launch.api.commands import environment_of, recorded_command
    from stackyard.study.api import open_search, run_inside_allocation

    study = open_search(root, context.job_workspace())
    directory = study.paths.run_of(number).root
    with recorded_command(directory):
        environ = environment_of(directory, study.workspace.environ)
        study = replace(study, workspace=replace(study.workspace, environ=environ))
        view = View(study.request, quiet=False, live=False)
        run_inside_allocation(study, number, view, again=again)


def _carry_out(context: Context, study: StoredSearch, options: dict[str, Any], allocations: int) -> None:
    from stackyard.cli.study.report import show_search
    from stackyard.study.api import carry_out_search, nodes_here, place_of_search, run_as_jobs

    view = View(study.request, quiet=options["as_json"], live=sys.stderr.isatty())
    root, again, how = study.paths.root, options["retry_failed"], place_of_search(study)
    with continued_by(f"stackyard tune --continue {root}", "goes on with the search", how), closing(view):
        if how == "jobs":
            is_over = run_as_jobs(study, view, allocations, again=again)
        else:
            is_over = carry_out_search(study, view, nodes=nodes_here(study.request, study.workspace), again=again)
    code = show_search(root, as_json=options["as_json"])
    if not is_over:
        echo(f"  stackyard tune --continue {root}    goes on with the search", err=True)
    if code or not is_over:
        raise click.exceptions.Exit(code or 1)


def verify(context: Context, root: Path, *, as_json: bool) -> None:
    """Replay a journal, and print the rungs that follow from it."""
    from stackyard.study.api import verify_search

    found = verify_search(root, context.job_workspace())
    if as_json:
        show_json({"same": not found.differences, "rungs": found.rungs, "differences": list(found.differences)})
    else:
        for sentence in found.sentences:
            echo(sentence)
    if found.differences:
        raise click.exceptions.Exit(3)


def export(context: Context, words: tuple[str, ...]) -> None:
    """Write Optuna's journal of a search, and print how it is opened."""
    from stackyard.study.api import export_journal

    if len(words) != 1:
        raise InputError("--export journal needs one search", hint="stackyard tune --export journal studies/train")
    file = export_journal(Path(words[0]), context.job_workspace())
    echo(f"{file}: for optuna.storages.JournalStorage(JournalFileBackend('{file}'))")


def _summary(look: SearchOutlook) -> str:
    request, layout = look.request, look.plan.layout
    if request.engine == "ray":
        return f"the program on Ray, on {counted(layout.nodes, 'node')}; Ray decides how many trials there are"
    trials = f"{counted(request.count, 'trial')}, {request.search}"
    if request.scheduler != "none":
        trials += f", {request.scheduler} at {', '.join(map(str, request.budgets))}"
    each = [counted(layout.cores_per_rank, "core")] + (
        [counted(layout.gpus_per_rank, "GPU")] if layout.gpus_per_rank else []
    )
    if request.trial.nodes > 1:
        where = f"{counted(request.trial.nodes, 'node')} each"
    else:
        where = f"{look.slots} at a time on {counted(layout.nodes, 'node')}, {' and '.join(each)} each"
    if look.how == "here":
        return f"{trials}; {where}"
    jobs = counted(request.allocations, f"{look.scheduler} job")
    return f"{trials}; {where}; up to {jobs}, {price_of(look.node_hours)}"


def _dry_run(look: SearchOutlook, root: Path, as_json: bool) -> None:
    from stackyard.launch.api.jobs import launch_command

    request = look.request
    if as_json:
        show_json({"dry_run": True, "directory": str(root), "how": look.how, "trials": request.count,
                   "slots": look.slots, "nodes": look.plan.layout.nodes, "budgets": list(request.budgets),
                   "first": list(look.first), "node_hours": look.node_hours, "script": look.script,
                   "remarks": request.remarks})  # fmt: skip
        return
    show_text(f"search {root}: {_summary(look)}")
    for remark in request.remarks:
        show_notice(remark)
    if look.first:
        show_text(f"\n{click.style('the first trials', bold=True)}")
        show_table(
            [{name: str(value) for name, value in params.items()} for params in look.first], tuple(look.first[0])
        )
    if look.script:
        show_text(f"\n{click.style('--- the batch script of an allocation', bold=True)}\n{look.script}")
    else:
        show_text(f"\n{click.style('the workers', bold=True)}\n{launch_command(look.plan, 'RUN')}")
