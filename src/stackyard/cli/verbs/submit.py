"""``stackyard submit``: the batch script of a job, written, submitted and followed."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from stackyard.cli.context import Context
from stackyard.cli.intents import BATCH, PROGRAM, SHAPE, intent_options
from stackyard.cli.output import show_json, show_notice
from stackyard.cli.verbs.launch import intent_for

if TYPE_CHECKING:
    from stackyard.launch.plan.make import PlanContext
    from stackyard.launch.plan.model import Plan
    from stackyard.launch.records.paths import RunPaths
    from stackyard.launch.request.intent import Intent
    from stackyard.spec.sitemodels import Site


@click.command(short_help="write and submit the batch script", context_settings={"allow_interspersed_args": False})
@intent_options(SHAPE, PROGRAM, BATCH)
@click.option("--again", metavar="RUN", help="Repeat a recorded run; options given here come on top.")
@click.option("--no-follow", is_flag=True, help="Return at once; `stackyard runs attach` follows it later.")
@click.option("--dry-run", is_flag=True, help="Print the whole batch script and the command; submit nothing.")
@click.option("--json", "as_json", is_flag=True, help="Print the plan or the result as JSON.")
@click.pass_obj
def command(context: Context, /, program: tuple[str, ...], **options: Any) -> None:
    """Write the batch script that runs PROGRAM on every rank, submit it, and follow it with progress.

    Ctrl-C stops following; the job goes on. `stackyard runs attach` follows it again, from any shell and at any time.
    The exit code is the job's.
    """
    from stackyard.cli.jobs import make_record, restore, stack_in_use
    from stackyard.cli.launchview import show_plan
    from stackyard.launch.plan.make import check_program, make_plan, need_scheduler, surroundings, with_offer
    from stackyard.launch.records.find import find_run
    from stackyard.launch.records.record import new_run, next_run

    site = context.site()
    folder = Path.cwd() / site.launch.runs
    again = find_run(options["again"], folder) if options["again"] else None
    for sentence in restore(again) if again else []:
        show_notice(sentence)
    intent, revision = intent_for(options, program, again, 1)
    stack = stack_in_use(context, site, intent.stack, revision)
    plan_context = replace(surroundings(site, os.environ, stack), allocation=None)
    need_scheduler(plan_context)
    plan_context = with_offer(plan_context, intent, site)
    plan = make_plan(intent, site, plan_context, head=True)
    if not options["dry_run"]:
        check_program(intent)
    paths = next_run(folder) if options["dry_run"] else new_run(folder)
    script = batch_script(context, intent, plan, site, plan_context, paths)
    if options["dry_run"]:
        _show(plan, script, site, plan_context, paths, options["as_json"])
        return
    make_record(context, "submit", paths, intent, plan, plan_context, again_of=str(again.root) if again else "")
    if not options["as_json"]:
        show_plan(plan, str(paths.root))
    job = send(paths, script, site, plan_context)
    _say(intent, paths, job, plan_context, options)


def batch_script(
    context: Context, intent: Intent, plan: Plan, site: Site, plan_context: PlanContext, paths: RunPaths
) -> str:
    """The text of job.sh: the scheduler's head, the exact launch line as a comment, and the start of the run."""
    import sys

    from stackyard.cli.jobs import global_words
    from stackyard.launch.plan import schedulers
    from stackyard.launch.plan.script import carried, script_text
    from stackyard.launch.records.record import this_program

    assert plan.head is not None
    run = str(paths.root)
    head = schedulers.get(plan_context.scheduler, site.scheduler).head_text(plan.head).replace("{step}", run)
    return script_text(
        plan, head, run=run, command=("stackyard", *asked_for(sys.argv[1:], intent.program)),
        start=(*this_program(), *global_words(context), "launch", "--recorded", run),
        prologue=(*site.launch.prologue, *intent.prologue),
        exports=carried(plan_context.environ) if plan_context.scheduler == "pbs" else None,
    )  # fmt: skip


def asked_for(words: Sequence[str], program: Sequence[str]) -> list[str]:
    """The words of a command line without ``--dry-run``, so that a dry run shows the very script; the program's own
    words stay."""
    own = len(words) - len(program) if tuple(words[-len(program) :]) == tuple(program) else len(words)
    return [word for at, word in enumerate(words) if at >= own or word != "--dry-run"]


def send(paths: RunPaths, script: str, site: Site, plan_context: PlanContext) -> str:
    """Write job.sh and submit it; the job's id.

    Raises:
        CommandError: the scheduler refused it; its own words are shown, and the run is one that failed.
    """
    from stackyard.errors import StackyardError
    from stackyard.host.command import run
    from stackyard.launch.plan import schedulers
    from stackyard.launch.records.record import RunStatus, write_status
    from stackyard.yard import atomic

    scheduler = schedulers.get(plan_context.scheduler, site.scheduler)
    atomic.write_text(paths.script, script, mode=0o755)
    try:
        result = run(
            scheduler.submit_argv(str(paths.script)), stdin=script if scheduler.submit_stdin else None, timeout_s=120
        )
        job = scheduler.job_id(result.output)
    except StackyardError as error:
        write_status(paths, RunStatus(state="failed", code=1, ended=time.time(), message=error.message))
        raise
    write_status(paths, RunStatus(state="queued", job=job, started=time.time()))
    return job


def _say(intent: Intent, paths: RunPaths, job: str, plan_context: PlanContext, options: dict[str, Any]) -> None:
    if options["as_json"] and options["no_follow"]:
        show_json(
            {"run": str(paths.root), "job": job, "scheduler": plan_context.scheduler, "script": str(paths.script)}
        )
        return
    click.echo(f"run {click.style(paths.name, bold=True)}: {plan_context.scheduler} job {job}", err=True)
    if intent.batch.array:
        show_notice(f"each task of the array keeps its own record below {paths.root / 'array'}")
    if options["no_follow"]:
        click.echo(f"  stackyard runs attach {paths.name}", err=True)
        return
    follow_run(paths, as_json=options["as_json"])


def follow_run(paths: RunPaths, *, as_json: bool = False, logs: tuple[Path, ...] = ()) -> None:
    """Follow a run to its end and end with its code; Ctrl-C leaves it alone."""
    from stackyard.cli.launchview import LaunchView, show_failure
    from stackyard.launch.records.follow import follow
    from stackyard.launch.records.record import read_status

    try:
        status = follow(paths, LaunchView(quiet=as_json), logs=logs)
    except KeyboardInterrupt:
        state = read_status(paths).state
        show_notice(f"not followed any more; the job is {state}. `stackyard runs attach {paths.name}` follows it, "
                    f"`stackyard runs cancel {paths.name}` ends it")  # fmt: skip
        raise click.exceptions.Exit(130) from None
    if as_json:
        show_json({"run": str(paths.root), **status.__dict__})
    elif status.ended_well:
        click.echo(f"{click.style('done', fg='green')}; everything about it is in {paths.root}", err=True)
    else:
        why = f" ({status.message})" if status.message else ""
        known = bool(status.first) or bool(logs) or status.state in ("cancelled", "timeout")
        said = "" if known or not paths.batch_log.exists() else paths.batch_log.read_text(errors="replace")[-3000:]
        first = status.first or {"message": f"job {status.job}: {status.state}{why}"}
        show_failure(status.state, first, 1, said, paths.root)
    if not status.ended_well:
        raise click.exceptions.Exit(status.code or 1)


def _show(plan: Plan, script: str, site: Site, plan_context: PlanContext, paths: RunPaths, as_json: bool) -> None:
    from stackyard.cli.jobs import plan_json
    from stackyard.cli.launchview import show_findings
    from stackyard.launch.plan import schedulers

    scheduler = schedulers.get(plan_context.scheduler, site.scheduler)
    submit = " ".join(scheduler.submit_argv(str(paths.script)))
    if scheduler.submit_stdin:
        submit += f" < {paths.script}"
    if as_json:
        show_json({"dry_run": True, "submit": submit, "script": script, **plan_json(plan, str(paths.root))})
        return
    click.echo(script, nl=False)
    click.echo(f"\n{click.style('$', dim=True)} {submit}", err=True)
    show_findings(plan)
