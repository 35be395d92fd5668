"""What ``stackyard bench`` shows: the plan with its node-hours, each run as it ends, and what was found."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from stackyard.cli.agreeing import agree
from stackyard.cli.context import Context
from stackyard.cli.output import echo, emit, show_error, show_json, show_notice, show_table, show_text
from stackyard.cli.study.carrying import confirm_price, continued_by, price_of
from stackyard.core.errors import InputError, StackyardError
from stackyard.core.findings import counted
from stackyard.study.api import StudyWatcher

if TYPE_CHECKING:
    from stackyard.study.api import JobPlan, Outlook, PointRecord, Study, StudyRequest


class View(StudyWatcher):
    """Prints what happens in a study, a line for each event."""

    def __init__(self, *, quiet: bool) -> None:
        self._quiet = quiet

    def _say(self, text: str) -> None:
        if not self._quiet:
            echo(text, err=True)

    def submitted(self, job: JobPlan, name: str) -> None:
        """One line for a job."""
        self._say(f"{job.id}: job {name}, {counted(len(job.points), 'run')} on {counted(job.nodes, 'node')}")

    def refused(self, job: JobPlan, error: StackyardError) -> None:
        """The scheduler's reason; the study goes on with the other jobs."""
        echo(f"{job.id}: not submitted", err=True)
        show_error(error)

    def job_ended(self, job: JobPlan, state: str, message: str) -> None:
        """A job that has not run all of its points."""
        why = f": {message}" if message else ""
        self._say(f"{job.id}: the job ended ({state}{why}) before all of its runs")

    def point(self, record: PointRecord) -> None:
        """The result of a run."""
        last, mark = record.last, " (warm-up)" if record.point.warmup else ""
        assert last is not None
        if record.state == "done":
            values = ", ".join(f"{each['value']:.6g} {each['unit']}".rstrip() for each in last.measured["values"])
            self._say(f"{record.point.id}: {values}{mark}")
            return
        self._say(f"{record.point.id}: {click.style(record.state, fg='red')}: {last.message}")

    def waiting(self, sentence: str) -> None:
        """What is waited for."""
        show_notice(sentence)


def begin(context: Context, request: StudyRequest, options: dict[str, Any]) -> None:
    """Plan a study, ask about its price, create it and carry it out."""
    from stackyard.study.api import create_study, default_root, study_outlook

    workspace = context.job_workspace()
    look = study_outlook(request, workspace, lambda job: agree(context, job))
    root = options["directory"] or default_root(request)
    if options["dry_run"]:
        _dry_run(look, root, options["as_json"])
        return
    if not options["as_json"]:
        _show_plan(look, root)
    if look.how == "jobs":
        confirm_price(context, look.node_hours, counted(len(look.jobs), "job"), "run", agreed=options["yes"])
    study = create_study(look, root, workspace, context.command)
    _carry_out(context, study, options)


def go_on(context: Context, root: Path, options: dict[str, Any]) -> None:
    """Run what a study lacks."""
    from stackyard.study.api import open_study

    study = open_study(root, context.job_workspace(), again=options["retry_failed"])
    if options["dry_run"]:
        missing = [point.id for job in study.jobs for point in job.points if not study.is_settled(point)]
        show_json({"dry_run": True, "missing": missing}) if options["as_json"] else show_text("\n".join(missing))
        return
    _carry_out(context, study, options)


def inside(context: Context, root: Path, job: str, *, again: bool) -> None:
    """Run one job of a study in its allocation, and record the job's end for its follower."""
    from stackyard.launch.api.commands import environment_of, recorded_command
    from stackyard.study.api import open_study, run_study_inside

    name, _, attempt = job.rpartition("/")
    if not (name and attempt.isdecimal()):
        raise InputError(f"--job-of-study {job}: not JOB/ATTEMPT", hint="batch scripts of `stackyard bench` have it")
    study = open_study(root, context.job_workspace(), again=again)
    directory = study.run_of(name, int(attempt))
    with recorded_command(directory) as ended:
        study = study.with_environment(environment_of(directory, study.workspace.environ))
        ended.code = 0 if run_study_inside(study, name, int(attempt), View(quiet=False)) else 1
    if ended.code:
        raise click.exceptions.Exit(ended.code)


def _carry_out(context: Context, study: Study, options: dict[str, Any]) -> None:
    from stackyard.cli.study.report import show_results
    from stackyard.study.api import run_study_here, run_study_jobs

    view = View(quiet=options["as_json"])
    run = run_study_jobs if study.about.how == "jobs" else run_study_here
    with continued_by(f"stackyard bench --continue {study.paths.root}", "runs what is missing", study.about.how):
        run(study, view)
    if not options["as_json"]:
        echo(f"used {study.node_hours:.3g} node-hours", err=True)
    code = show_results(context, study.paths.root, as_json=options["as_json"])
    if not study.is_all_settled:
        echo(f"  stackyard bench --continue {study.paths.root}    runs what is missing", err=True)
    elif not study.is_done:
        echo(f"  stackyard bench --continue {study.paths.root} --retry-failed    runs what failed again", err=True)
    code = code if study.is_done else 1
    if code:
        raise click.exceptions.Exit(code)


def _show_plan(look: Outlook, root: Path) -> None:
    show_text(f"study {click.style(str(root), bold=True)}: {_summary(look)}", err=True)
    for remark in look.remarks:
        show_notice(remark)


def _summary(look: Outlook) -> str:
    where = counted(len(look.jobs), f"{look.scheduler} job") if look.how == "jobs" else "here, one after the other"
    price = "" if look.how == "here" else f", {price_of(look.node_hours)}"
    return f"{counted(look.runs, 'run')}, {where}{price}"


def _dry_run(look: Outlook, root: Path, as_json: bool) -> None:
    """Print jobs, runs, node-hours, the command of each variant and the first batch script."""
    from stackyard.launch.api.jobs import launch_command

    if as_json:
        sizes = [{"nodes": s.nodes, "jobs": s.jobs, "runs": s.runs, "node_hours": s.node_hours} for s in look.sizes]
        show_json({"dry_run": True, "directory": str(root), "how": look.how, "seed": look.seed, "sizes": sizes,
                   "node_hours": look.node_hours, "script": look.script, "remarks": list(look.remarks)})  # fmt: skip
        return
    show_text(f"study {root}: {_summary(look)}")
    rows = [
        {"nodes": f"{s.nodes:,}", "ranks": ", ".join(sorted({f"{plan.layout.ranks:,}" for plan in s.plans.values()})),
         "jobs": f"{s.jobs}", "runs": f"{s.runs}",
         "node-hours": "?" if s.node_hours is None else f"{s.node_hours:.4g}"}
        for s in look.sizes
    ]  # fmt: skip
    show_table(rows, ("nodes", "ranks", "jobs", "runs", *(("node-hours",) if look.how == "jobs" else ())))
    for size in look.sizes:
        for name, plan in size.plans.items():
            title = click.style(f"{counted(size.nodes, 'node')}, {name}", bold=True)
            show_text(f"\n{title}\n{launch_command(plan, 'RUN')}")
    for remark in look.remarks:
        show_notice(remark)
    if look.script:
        show_text(f"\n{click.style('--- the first batch script', bold=True)}")
        emit(look.script)
