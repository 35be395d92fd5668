"""``stackyard submit``: the batch script of a job, written, submitted and followed."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import click

from stackyard.cli.agreeing import agree
from stackyard.cli.context import Context
from stackyard.cli.help import verb
from stackyard.cli.jobs.following import follow_run
from stackyard.cli.jobs.intents import AGAIN, STREAMS, intent_options, output, requested
from stackyard.cli.output import echo, emit, show_json, show_notice, show_text
from stackyard.core.errors import InputError

if TYPE_CHECKING:
    from stackyard.launch.api.jobs import Preview, Run, Workspace


@verb(
    ("two hours on two nodes, one rank per GPU", "stackyard submit -N 2 -t 2:00 -A PROJ train.py --epochs 3"),
    ("the output of every rank, each line with its rank", "stackyard submit -N 2 --stream all train.py"),
    ("the batch script that a job file makes", "stackyard submit --job job.yaml --dry-run"),
    ("of a cluster, on a laptop", "stackyard submit -N 2 --dry-run --scheduler slurm train.py"),
    context_settings={"allow_interspersed_args": False},
)
@intent_options(AGAIN)
@output("--no-follow", is_flag=True, help="Return at once; `stackyard runs attach` follows the job later.")
@output("--stream", type=click.Choice(STREAMS), default="first", help="Ranks whose output is shown meanwhile.")
@output("--scheduler", "kind", metavar="KIND", help="With --dry-run: as on a machine with slurm, lsf, pbs or flux.")
@output("--dry-run", is_flag=True, help="Print the batch script and the submit command; submit nothing.")
@output("--json", "as_json", is_flag=True, help="Print the plan or the result as JSON.")
def command(context: Context, /, program: tuple[str, ...], **options: Any) -> None:
    """Write the batch script that runs PROGRAM on every rank, submit it, and follow the job.

    Ctrl-C stops following; the job continues. `stackyard runs attach` follows it again, from any shell and at any time.
    The exit status is that of the job.
    """
    from stackyard.cli.jobs.launchview import show_plan
    from stackyard.launch.api import jobs

    workspace = context.job_workspace()
    if options["kind"] is not None:
        workspace = _elsewhere(workspace, options["kind"], options["dry_run"])
    intent, again = requested(workspace, options, program, lambda: None)
    job = jobs.batch_job(workspace, intent, again)
    if options["dry_run"]:
        show_dry_run(jobs.preview_submission(job), options["as_json"])
        return
    job = agree(context, job)
    run = jobs.record_submission(job)
    if not options["as_json"] and run.plan is not None:
        show_plan(run.plan, str(run.paths.root))
    _report(run, jobs.submit(run), options)


def _elsewhere(workspace: Workspace, kind: str, dry_run: bool) -> Workspace:
    """The workspace as on a machine with this scheduler, whose commands need not be here."""
    if not dry_run:
        raise InputError("--scheduler needs --dry-run", hint="a job is submitted to the scheduler of this machine")
    site = workspace.site
    return replace(
        workspace, site=site.model_copy(update={"scheduler": site.scheduler.model_copy(update={"kind": kind})})
    )


def _report(run: Run, job_id: str, options: dict[str, Any]) -> None:
    from stackyard.launch.api.runs import handle

    scheduler, paths = run.job.context.scheduler, run.paths
    if options["as_json"] and options["no_follow"]:
        show_json({"run": str(paths.root), "job": job_id, "scheduler": scheduler, "script": str(paths.script)})
        return
    echo(f"run {click.style(paths.name, bold=True)}: {scheduler} job {job_id}", err=True)
    if run.job.intent.batch.array:
        show_notice(f"each task of the array has a run directory below {paths.root / 'array'}")
    if options["no_follow"]:
        echo(f"  stackyard runs attach {handle(paths)}", err=True)
        return
    follow_run(paths, as_json=options["as_json"], stream=options["stream"])


def show_dry_run(preview: Preview, as_json: bool) -> None:
    """Print the batch script and the submit command, or the plan as JSON."""
    from stackyard.cli.jobs.launchview import show_findings
    from stackyard.launch.api.jobs import plan_json

    if as_json:
        plan = plan_json(preview.plan, str(preview.run.root))
        show_json({"dry_run": True, "submit": preview.submit, "script": preview.script, **plan})
        return
    emit(preview.script)
    show_text(f"\n{click.style('$', dim=True)} {preview.submit}", err=True)
    show_findings(preview.plan)
