"""Jobs: planned, run here, submitted, repeated. The package has an example.

A job goes through up to three steps: `Job` (what is requested, and where), `Run` (the job with its run directory and
its record), then `carry_out` here or `submit`. The functions called `preview_...` write nothing.
"""

from __future__ import annotations

from dataclasses import field

from stackyard.core.late import dataclass
from stackyard.launch.jobs.batch import after_end, batch_script, submit, submit_command
from stackyard.launch.jobs.carry_out import Stream, carry_out, watch_options
from stackyard.launch.jobs.here import LocalLaunch, end_with_caller
from stackyard.launch.jobs.job import (
    Job,
    allocation_of,
    batch_job,
    default_nodes,
    launch_job,
    queue_field,
    recorded_job,
    submit_host,
)
from stackyard.launch.jobs.recording import Run, plan_json, record_run
from stackyard.launch.jobs.repeat import Repeat, repeat, with_changes
from stackyard.launch.jobs.workspace import Workspace
from stackyard.launch.plan.backends.base import runnable
from stackyard.launch.plan.command import launch_command, program_text, rank_names
from stackyard.launch.plan.make import check_program, unused
from stackyard.launch.plan.model import Plan
from stackyard.launch.records.naming import new_run, next_run
from stackyard.launch.records.paths import RunPaths
from stackyard.launch.request.intent import BatchOptions, Intent, made, with_variables
from stackyard.launch.request.job_file import job_text, load_job, model_text
from stackyard.launch.request.roles import RankOptions
from stackyard.launch.run.start import preview

__all__ = [
    "BatchOptions",
    "Intent",
    "Job",
    "LocalLaunch",
    "Plan",
    "Preview",
    "RankOptions",
    "Repeat",
    "Run",
    "RunPaths",
    "Stream",
    "Workspace",
    "after_end",
    "allocation_of",
    "batch_job",
    "carry_out",
    "check_program",
    "default_nodes",
    "end_with_caller",
    "job_text",
    "launch_command",
    "launch_job",
    "load_job",
    "made",
    "model_text",
    "plan_json",
    "preview_launch",
    "preview_submission",
    "program_text",
    "queue_field",
    "rank_names",
    "record_launch",
    "record_submission",
    "recorded_job",
    "repeat",
    "runnable",
    "submit",
    "submit_host",
    "unused",
    "with_changes",
    "with_variables",
]


@dataclass(frozen=True)
class Preview:
    """The preview of a launch or a submission; nothing is written.

    Attributes:
        run: the run directory that would be created.
        files: the texts of the files of a launch, by name.
        script: the text of the batch script; `submit` is the command that would submit it.
    """

    run: RunPaths
    plan: Plan
    files: dict[str, str] = field(default_factory=dict)
    script: str = ""
    submit: str = ""


def preview_launch(job: Job) -> Preview:
    """The plan of a launch and the texts of its files.

    Raises:
        InputError, MissingError: the job cannot be planned.
    """
    plan, paths = job.plan(), next_run(job.workspace.runs)
    return Preview(paths, plan, preview(paths.main, plan, run=paths.name, options=watch_options(job, "first")))


def preview_submission(job: Job) -> Preview:
    """The plan of a batch job and the text of its script.

    Raises:
        InputError, MissingError: the job cannot be planned.
    """
    plan, paths = job.plan(head=True), next_run(job.workspace.runs)
    return Preview(paths, plan, script=batch_script(job, plan, paths), submit=submit_command(job, paths))


def record_launch(job: Job) -> Run:
    """Record a launch: its directory and its record. `carry_out` starts it.

    Raises:
        InputError, MissingError: the job cannot be planned; nothing is written then.
        StackyardError: the run directory cannot be created.
    """
    check_program(job.intent, job.context.stack.image)
    plan = job.plan()
    job.require_profilers("programs, modules")
    return record_run(Run(job, new_run(job.workspace.runs), plan), "launch")


def record_submission(job: Job) -> Run:
    """Record a batch job: its directory, its record and the text of its script. `submit` submits it.

    Raises:
        InputError, MissingError: the job cannot be planned; nothing is written then.
        StackyardError: the run directory cannot be created.
    """
    plan = job.plan(head=True)
    check_program(job.intent, job.context.stack.image)
    job.require_profilers("modules")
    paths = new_run(job.workspace.runs)
    return record_run(Run(job, paths, plan, batch_script(job, plan, paths)), "submit")
