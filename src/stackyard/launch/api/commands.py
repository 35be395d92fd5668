"""Batch jobs whose program is a command of Stackyard: recorded here, submitted by `api.jobs.submit`.

The job itself records its end (`recorded_command`): a deploy on a node, the runs of a study in one allocation.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from stackyard.launch.jobs.batch import scheduler_of
from stackyard.launch.jobs.building import build_job, build_script, command_script, recorded_command
from stackyard.launch.jobs.job import Job
from stackyard.launch.jobs.recording import How, Run, record_run
from stackyard.launch.plan.carried import carried
from stackyard.launch.plan.model import Plan
from stackyard.launch.records.naming import new_run, next_run
from stackyard.launch.records.paths import RunPaths
from stackyard.launch.records.private import read_private

__all__ = [
    "build_job",
    "environment_of",
    "preview_build",
    "preview_command",
    "record_build",
    "record_command",
    "recorded_command",
]


def preview_build(job: Job, words: Sequence[str]) -> str:
    """The text of the batch script of a deploy; `words` are those after ``stackyard deploy``."""
    return build_script(job, words, next_run(job.workspace.runs))


def record_build(job: Job, words: Sequence[str]) -> Run:
    """Record the batch job of a deploy: its directory, its record and the text of its script.

    Raises:
        InputError: the batch script cannot be written; nothing is written then.
        StackyardError: the run directory cannot be created.
    """
    preview_build(job, words)
    paths = new_run(job.workspace.runs)
    return record_run(Run(job, paths, script=build_script(job, words, paths)), "deploy")


def preview_command(job: Job, words: Sequence[str]) -> str:
    """The text of the batch script that runs ``stackyard`` with these words."""
    return _script(job, job.plan(head=True), words, next_run(job.workspace.runs))


def record_command(job: Job, words: Sequence[str], how: How = "bench") -> Run:
    """Record a batch job that runs ``stackyard`` with these words; the command calls `recorded_command`.

    Args:
        how: the verb in the record.

    Raises:
        InputError, MissingError: the job cannot be planned; nothing is written then.
        StackyardError: the run directory cannot be created.
    """
    plan = job.plan(head=True)
    paths = new_run(job.workspace.runs)
    return record_run(Run(job, paths, plan, _script(job, plan, words, paths)), how)


def _script(job: Job, plan: Plan, words: Sequence[str], paths: RunPaths) -> str:
    exports = {} if scheduler_of(job).carries_environment else carried(job.context.environ)
    return command_script(job, plan, words, paths, exports=exports)


def environment_of(directory: Path, environ: Mapping[str, str]) -> dict[str, str]:
    """The environment of a batch job's command: its own, and the variables whose values its record does not have."""
    return {**environ, **read_private(RunPaths(directory))}
