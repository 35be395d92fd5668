"""The batch script of a job, and its submission to the scheduler."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence

from stackyard.core.errors import StackyardError
from stackyard.host.run.command import run as run_command
from stackyard.launch.jobs.job import Job
from stackyard.launch.jobs.recording import Run
from stackyard.launch.plan import schedulers
from stackyard.launch.plan.carried import carried
from stackyard.launch.plan.inherited import of_submission
from stackyard.launch.plan.model import Plan
from stackyard.launch.plan.schedulers import Batch
from stackyard.launch.plan.script import script_text
from stackyard.launch.records.paths import RunPaths
from stackyard.launch.records.private import write_private
from stackyard.launch.records.record import RunStatus, write_status
from stackyard.yard.others import uses
from stackyard.yard.write import atomic

SUBMIT_S = 120.0
"""How long the scheduler may take to accept a job."""


def batch_script(job: Job, plan: Plan, paths: RunPaths) -> str:
    """The text of job.sh: the scheduler's directives, the exact launch line as a comment, and the start of the run."""
    run, workspace = str(paths.root), job.workspace
    return script_text(
        plan, head_text(job, plan, paths), run=run,
        command=_typed(workspace.command(job.intent.program), job.intent.program),
        start=workspace.stackyard("launch", "--recorded", run),
        prologue=(*job.site.launch.prologue, *job.intent.prologue),
        exports=None if scheduler_of(job).carries_environment else carried(job.context.environ),
    )  # fmt: skip


def _typed(words: Sequence[str], program: Sequence[str]) -> tuple[str, ...]:
    """The command line that created the script: that of `stackyard`, without its directory, or of Python."""
    return tuple(words) if words[:1] == ("python",) else ("stackyard", *without_dry_run(words[1:], program))


def head_text(job: Job, plan: Plan, paths: RunPaths) -> str:
    """The directives of the script, with the run directory filled in."""
    assert plan.head is not None
    return scheduler_of(job).head_text(plan.head).replace("{step}", str(paths.root))


def without_dry_run(words: Sequence[str], program: Sequence[str]) -> list[str]:
    """A command line without ``--dry-run``, so that a dry run prints the exact script; the program's words are kept."""
    own = len(words) - len(program) if tuple(words[-len(program) :]) == tuple(program) else len(words)
    return [word for at, word in enumerate(words) if at >= own or word != "--dry-run"]


def submit_command(job: Job, paths: RunPaths) -> str:
    """The command that submits the script, as you would type it."""
    scheduler = scheduler_of(job)
    words = " ".join(scheduler.submit_argv(str(paths.script)))
    return f"{words} < {paths.script}" if scheduler.submit_stdin else words


def submit(run: Run) -> str:
    """Write job.sh, store the values that its record lacks, and submit it; returns the id of the job.

    Raises:
        CommandError: the scheduler rejected it. The run is then recorded as failed.
    """
    scheduler = scheduler_of(run.job)
    atomic.write_text(run.paths.script, run.script, mode=0o700)
    write_private(run.paths, run.plan.private if run.plan else {})
    stdin = run.script if scheduler.submit_stdin else None
    directory = run.job.context.stack.folder
    use = uses.hold(directory, run.job.workspace.yard, "job") if directory else None
    try:
        argv = scheduler.submit_argv(str(run.paths.script))
        environ = of_submission(scheduler, os.environ)
        result = run_command(argv, env=environ, stdin=stdin, timeout_s=SUBMIT_S, leaves_others=True)
        job = scheduler.job_id(result.output)
        uses.belongs_to(use, scheduler=scheduler.name, job=job)
    except StackyardError as error:
        error.hint = error.hint or "change what it names, such as -p, -A or -t, and submit again"
        uses.release(use)
        write_status(run.paths, RunStatus(state="failed", code=1, ended=time.time(), message=error.message))
        raise
    write_status(run.paths, RunStatus(state="queued", job=job, started=time.time()))
    return job


def after_end(job: Job, other: str) -> str:
    """The `BatchOptions.dependency` with which a job waits for the end of another one; empty where none is known."""
    return scheduler_of(job).after_end.format(job=other)


def scheduler_of(job: Job) -> Batch:
    """The scheduler for this job."""
    return schedulers.get(job.context.scheduler, job.site.scheduler)
