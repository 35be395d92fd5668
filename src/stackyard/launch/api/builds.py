"""Deploys as batch jobs: recorded here, submitted by `api.jobs.submit`; the job itself records its end."""

from __future__ import annotations

from collections.abc import Sequence

from stackyard.launch.jobs.building import build_job, build_script, recorded_command
from stackyard.launch.jobs.job import Job
from stackyard.launch.jobs.recording import Run, record_run
from stackyard.launch.records.naming import new_run, next_run

__all__ = ["build_job", "preview_build", "record_build", "recorded_command"]


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
