"""``stackyard launch``: ranks on the nodes of this allocation, or on this machine."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from stackyard.cli.agreeing import agree
from stackyard.cli.context import Context
from stackyard.cli.help import verb
from stackyard.cli.jobs.intents import AGAIN, STREAMS, intent_options, output, requested
from stackyard.cli.output import echo, only_shown, show_json, show_notice, show_text
from stackyard.core.findings import counted

if TYPE_CHECKING:
    from stackyard.launch.api.jobs import Intent, Job, Plan, RunPaths, Stream
    from stackyard.launch.api.runs import StepResult

FLAGS = {"time_min": "--time", "signal_s": "--signal", "memory_gib": "--memory", "mail_events": "--mail-on",
         "scheduler_args": "--scheduler-arg"}  # fmt: skip
"""The options whose names differ from the fields of `BatchOptions`."""


@verb(
    ("all GPUs of the allocation, or of this machine, one rank each", "stackyard launch train.py --epochs 3"),
    ("exactly what would be started, with the script of each rank", "stackyard launch -N 2 -r 4 --dry-run train.py"),
    context_settings={"allow_interspersed_args": False},
)
@intent_options(AGAIN)
@click.option("--recorded", hidden=True, type=click.Path(path_type=Path), help="Carry out a recorded run (batch jobs).")
@click.option("--with-caller", hidden=True, is_flag=True, help="End when standard input is closed (Python API).")
@output("--stream", type=click.Choice(STREAMS), default="first", help="Ranks whose output is shown.")
@output(
    "--debug-rank", type=click.IntRange(0), metavar="N", help="Give this terminal to rank N, e.g. for breakpoint()."
)
@output("--stdin", "stdin_rank", type=click.IntRange(0), metavar="N", help="Give standard input to rank N.")
@output("--dry-run", is_flag=True, help="Print the exact command and the script of each rank; run nothing.")
@output("--json", "as_json", is_flag=True, help="Print the plan or the result as JSON.")
def command(context: Context, /, program: tuple[str, ...], **options: Any) -> None:
    """Start PROGRAM on every rank: on the nodes of the current allocation, or on this machine.

    The default is one rank per GPU. The exact command is printed, the output of every rank is kept in a log file, the
    first rank that fails is reported with its cause, and Ctrl-C leaves no process behind. The exit status is that of
    the first rank that failed. With Slurm, outside of an allocation, srun requests one: use -t, -A, -p.
    """
    from stackyard.launch.api import jobs

    workspace = context.job_workspace()
    if options["with_caller"]:
        jobs.end_with_caller()
    if options["recorded"]:
        job, paths = jobs.recorded_job(workspace, options["recorded"])
        job = agree(context, job)
        carry_out(job, paths, options["stream"], options["as_json"])
        return

    def all_nodes() -> int:
        return jobs.default_nodes(workspace, launcher=options["launcher"] or "", spare=options["spare"] or 0)

    intent, again = requested(workspace, options, program, all_nodes)
    job = jobs.launch_job(workspace, intent, again)
    _report_shape(intent, job)
    _report_unused(options, job)
    if options["dry_run"]:
        show_dry_run(job, options["as_json"])
        return
    job = agree(context, job)
    run = jobs.record_launch(job)
    carry_out(job, run.paths, options["stream"], options["as_json"])


def _report_shape(intent: Intent, job: Job) -> None:
    """Print which ranks come from the allocation's tasks."""
    taken = job.intent
    if taken == intent:
        return
    cores = f" with {counted(taken.cores_per_rank, 'core')} each" if taken.cores_per_rank else ""
    ranks = counted(taken.ranks_per_node or 0, "rank")
    show_notice(f"{ranks} per node{cores}, as this allocation was requested; -r and -c change that")


def _report_unused(options: dict[str, Any], job: Job) -> None:
    """Print the options that have no effect."""
    from stackyard.launch.api.jobs import BatchOptions, unused

    names = [name for name in BatchOptions.model_fields if options[name] not in (None, "", ())]
    if left := unused(names, job.context):
        named = ", ".join(FLAGS.get(name, f"--{name}") for name in left)
        why = "the nodes are already allocated" if job.context.allocation else "no batch job is created"
        show_notice(f"{named} ignored: {why}; `stackyard submit` creates a job with it")


def carry_out(job: Job, paths: RunPaths, stream: Stream, as_json: bool) -> None:
    """Run, show the progress and the result, and exit with the status of the first failure."""
    result = carried_out(job, paths, stream, quiet=as_json)
    with only_shown():
        if as_json:
            show_json({"run": str(paths.root), **result.to_json()})
    if result.code:
        raise click.exceptions.Exit(result.code)


def carried_out(job: Job, paths: RunPaths, stream: Stream, *, quiet: bool) -> StepResult:
    """Run, and show the progress and the result; if `quiet`, only the run's name. Returns the result."""
    from stackyard.cli.jobs.launchview import LaunchView, show_plan, show_result
    from stackyard.launch.api import jobs

    view = LaunchView(quiet=quiet, hidden=job.intent.debug_rank)
    if stream == "all":
        view.show_numbers()

    def announce(plan: Plan) -> None:
        view.show_names(jobs.rank_names(plan))
        with only_shown():
            show_plan(plan, str(paths.root))

    with only_shown():
        echo(f"run {click.style(paths.name, bold=True)}", err=True)
    told = "none" if quiet else stream
    result = jobs.carry_out(job, paths, view, (lambda _: None) if quiet else announce, told)
    with only_shown():
        if not quiet:
            show_result(result, paths.root)
    return result


def show_dry_run(job: Job, as_json: bool) -> None:
    """Print the exact command and the scripts of a launch, or its plan as JSON."""
    from stackyard.cli.jobs.launchview import show_plan
    from stackyard.launch.api import jobs

    preview = jobs.preview_launch(job)
    if as_json:
        show_json({"dry_run": True, **jobs.plan_json(preview.plan, str(preview.run.root))})
        return
    show_plan(preview.plan, str(preview.run.root), err=False)
    for name, text in preview.files.items():
        show_text(f"\n{click.style(f'--- {name}', bold=True)}\n{text.rstrip()}")
