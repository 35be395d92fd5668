"""``stackyard launch``: ranks on the nodes of this allocation, or on this machine."""

from __future__ import annotations

import os
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import click

from stackyard.cli.context import Context
from stackyard.cli.intents import BATCH, PROGRAM, SHAPE, intent_options, make_intent
from stackyard.cli.output import show_json, show_notice
from stackyard.errors import InputError

if TYPE_CHECKING:
    from stackyard.launch.plan.make import PlanContext
    from stackyard.launch.records.outcome import StepResult
    from stackyard.launch.records.paths import RunPaths
    from stackyard.launch.request.intent import Intent
    from stackyard.launch.run.start import WatchOptions
    from stackyard.spec.sitemodels import Site

Stream = Literal["first", "all", "none"]


@click.command(short_help="start ranks here, watched", context_settings={"allow_interspersed_args": False})
@intent_options(SHAPE, PROGRAM, BATCH)
@click.option("--again", metavar="RUN", help="Repeat a recorded run; options given here come on top.")
@click.option("--recorded", hidden=True, type=click.Path(path_type=Path), help="Carry out a recorded run (batch jobs).")
@click.option("--stream", type=click.Choice(["first", "all", "none"]), default="first", help="Whose output is shown.")
@click.option("--dry-run", is_flag=True, help="Print the exact command and the script of each rank; run nothing.")
@click.option("--json", "as_json", is_flag=True, help="Print the plan or the result as JSON.")
@click.pass_obj
def command(context: Context, /, program: tuple[str, ...], **options: Any) -> None:
    """Start PROGRAM on every rank: on the nodes of the allocation that this shell is in, or on this machine.

    One rank per GPU unless said otherwise. The exact command is printed, every rank's output is kept in a log of its
    own, the first rank that fails is named with its cause, and Ctrl-C leaves no process behind. The exit code is that
    of the first rank that failed. Under Slurm, outside of an allocation, srun makes one: give -t, -A, -p.
    """
    if options["recorded"]:
        _carry_out_recorded(context, options)
        return
    from stackyard.cli.jobs import default_nodes, restore, stack_in_use
    from stackyard.launch.plan.make import surroundings, with_offer
    from stackyard.launch.records.find import find_run

    site = context.site()
    again = find_run(options["again"], _runs_folder(site)) if options["again"] else None
    for sentence in restore(again) if again else []:
        show_notice(sentence)
    plan_context = surroundings(site, os.environ, launcher=options["launcher"] or "")
    have = default_nodes(plan_context.allocation.hosts if plan_context.allocation else None)
    intent, folder = intent_for(options, program, again, max(1, have - (options["spare"] or 0)))
    stack = stack_in_use(context, site, intent.stack, folder)
    plan_context = with_offer(replace(plan_context, stack=stack), intent, site)
    _say_unused(options, plan_context)
    if options["dry_run"]:
        _dry_run(intent, site, plan_context, options["as_json"])
        return
    _launch(context, intent, site, plan_context, options, again)


def _say_unused(options: dict[str, Any], plan_context: PlanContext) -> None:
    """Nothing that was asked for is left out in silence."""
    from stackyard.launch.plan.make import unused
    from stackyard.launch.request.intent import BatchOptions

    left = unused([name for name in BatchOptions.model_fields if options[name] not in (None, "", ())], plan_context)
    if left:
        words = {"time_min": "--time", "signal_s": "--signal", "memory_gib": "--memory", "mail_events": "--mail-on",
                 "scheduler_args": "--scheduler-arg"}  # fmt: skip
        named = ", ".join(words.get(name, f"--{name}") for name in left)
        why = "the nodes are there already" if plan_context.allocation else "no batch job is made"
        show_notice(f"{named}: not used, since {why}; `stackyard submit` makes a job with it")


def intent_for(
    options: dict[str, Any], program: tuple[str, ...], again: RunPaths | None, nodes: int
) -> tuple[Intent, str]:
    """The intent of a command line, on top of a recorded run where one is repeated; and that run's revision folder."""
    if again is None:
        return make_intent(options, program, nodes), ""
    from stackyard.launch.records.record import read_run
    from stackyard.launch.request.intent import Intent

    record = read_run(again)
    if record.how == "deploy":
        raise InputError(f"run {again.name} was a deploy", hint="`stackyard deploy --on` does it again")
    base = Intent.model_validate(record.intent)
    if not base.cwd:
        base = base.model_copy(update={"cwd": record.code.get("folder", "")})
    on_top = make_intent({**options, "job_file": None}, program, base.nodes)
    changed = on_top.model_dump(exclude_defaults=True)
    batch = {**base.batch.model_dump(), **changed.pop("batch", {})}
    variables = {**base.variables, **changed.pop("variables", {})}
    merged = {**base.model_dump(), **changed, "batch": batch, "variables": variables}
    folder = "" if changed.get("stack") else record.stack.get("folder", "")
    return Intent.model_validate(merged), folder


def _runs_folder(site: Site) -> Path:
    return Path.cwd() / site.launch.runs


def watch_options(intent: Intent, site: Site, stream: Stream, plan_context: PlanContext) -> WatchOptions:
    """How the hub watches this job."""
    from stackyard.host.command import which
    from stackyard.launch.run.start import WatchOptions

    spy = which("py-spy")
    return WatchOptions(
        hang_min=intent.hang_min, stream=stream, interface=site.launch.interface, py_spy=str(spy) if spy else "",
        queued=plan_context.scheduler != "none" and plan_context.allocation is None,
    )  # fmt: skip


def _launch(
    context: Context,
    intent: Intent,
    site: Site,
    plan_context: PlanContext,
    options: dict[str, Any],
    again: RunPaths | None,
) -> None:
    from stackyard.cli.jobs import make_record
    from stackyard.launch.plan.make import check_program, make_plan
    from stackyard.launch.records import record

    check_program(intent)
    plan = make_plan(intent, site, plan_context)  # refuse what cannot be before anything is written
    paths = record.new_run(_runs_folder(site))
    make_record(context, "launch", paths, intent, plan, plan_context, again_of=str(again.root) if again else "")
    carry_out(paths, intent, site, plan_context, options["stream"], options["as_json"])


def _carry_out_recorded(context: Context, options: dict[str, Any]) -> None:
    """Carry out what a batch script's job was submitted for, on the nodes that it got."""
    from stackyard.cli.jobs import stack_in_use
    from stackyard.launch.plan.make import surroundings, with_offer
    from stackyard.launch.records import record
    from stackyard.launch.records.arrays import begin_task
    from stackyard.launch.records.paths import RunPaths
    from stackyard.launch.request.intent import Intent
    from stackyard.launch.running import array_index

    paths = RunPaths(options["recorded"].absolute())
    kept = record.read_run(paths)
    site = context.site()
    stack = stack_in_use(context, site, kept.stack.get("module", ""), kept.stack.get("folder", ""))
    intent = Intent.model_validate(kept.intent)
    plan_context = with_offer(surroundings(site, os.environ, stack), intent, site)
    index = array_index(os.environ)
    if index:
        paths = begin_task(paths, kept, index)
    before = record.read_status(paths)
    if before.attempts:
        record.set_aside(paths, before.attempts)
    carry_out(paths, intent, site, plan_context, options["stream"], options["as_json"])


def carry_out(
    paths: RunPaths, intent: Intent, site: Site, plan_context: PlanContext, stream: Stream, as_json: bool
) -> None:
    """Run, show what happens, say how it ended, and end with the code of the first failure."""
    from stackyard.cli.launchview import LaunchView, show_plan, show_result
    from stackyard.launch import running
    from stackyard.launch.running import Job

    view = LaunchView(quiet=as_json)
    if stream == "all":
        view.show_numbers()
    job = Job(
        paths, intent, site, plan_context, watch_options(intent, site, "none" if as_json else stream, plan_context)
    )
    click.echo(f"run {click.style(paths.name, bold=True)}", err=True)
    result: StepResult = running.carry_out(
        job, view, lambda plan: None if as_json else show_plan(plan, str(paths.root))
    )
    if as_json:
        show_json({"run": str(paths.root), **result.to_json()})
    else:
        show_result(result, paths.root)
    if result.code:
        raise click.exceptions.Exit(result.code)


def _dry_run(intent: Intent, site: Site, plan_context: PlanContext, as_json: bool) -> None:
    from stackyard.cli.jobs import plan_json
    from stackyard.cli.launchview import show_plan
    from stackyard.launch.plan.make import make_plan
    from stackyard.launch.plan.script import preview
    from stackyard.launch.records.record import next_run

    plan = make_plan(intent, site, plan_context)
    step = next_run(_runs_folder(site))
    if as_json:
        show_json({"dry_run": True, **plan_json(plan, str(step.root))})
        return
    show_plan(plan, str(step.root), err=False)
    for name, text in preview(step.main, plan, run=step.name, python=sys.executable).items():
        click.echo(f"\n{click.style(f'--- {name}', bold=True)}\n{text.rstrip()}")
