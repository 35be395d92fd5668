"""``stackyard deploy --on KIND``: the build as a batch job on a node of that kind, followed, published from there."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import click

from stackyard.cli.context import Context
from stackyard.cli.jobs.following import follow_run
from stackyard.cli.jobs.intents import option_of, settle_queue
from stackyard.cli.output import echo, emit, show_json
from stackyard.core.errors import InputError

JOB_OPTIONS = ("--on", "--time", "-t", "--account", "-A", "--queue", "--partition", "-p", "-q",
               "--scheduler-arg")  # fmt: skip
SHORT_WITH_VALUE = re.compile(r"-[tApq].+")


def deploy_on(
    context: Context, kind: str, files: Sequence[Path], batch: dict[str, Any], variants: Sequence[str],
    dry_run: bool, as_json: bool,
) -> None:  # fmt: skip
    """Submit a job that runs this very deploy on one node of `kind`, and follow it to its end.

    Raises:
        InputError: no such node kind, no such file, or no such variant in it.
        MissingError: no scheduler found.
        CommandError: the scheduler rejected the job.
    """
    from stackyard.launch.api import commands, jobs

    workspace = context.job_workspace()
    settle_queue(workspace, batch)
    options = jobs.made(jobs.BatchOptions, {k: v for k, v in batch.items() if v not in (None, "", ())}, option_of)
    job, words = commands.build_job(workspace, kind, files, options), without_job(workspace.argv)
    if dry_run:
        script = commands.preview_build(job, words)
        show_json({"dry_run": True, "script": script}) if as_json else emit(script)
        return
    _check_files(context, files, variants)
    run = commands.record_build(job, words)
    number, name = jobs.submit(run), click.style(run.paths.name, bold=True)
    echo(f"run {name}: {job.context.scheduler} job {number} on a node {job.intent.node_kind}", err=True)
    follow_run(run.paths, as_json=as_json, logs=(run.paths.batch_log,))


def _check_files(context: Context, files: Sequence[Path], variants: Sequence[str]) -> None:
    """Raise InputError for a missing file or variant now, not after hours in a queue."""
    for file in files:
        if not file.exists():
            raise InputError(f"no such file: {file}", hint="name a stack.yaml, environment.yml or requirements.txt")
    if variants:
        from stackyard.inputs.api import choose_variants, load_stack

        for file in files:
            choose_variants(load_stack(file, context.site()), variants)


def without_job(argv: Sequence[str]) -> list[str]:
    """The words after ``deploy`` without the options of the batch job, and without those for this terminal alone."""
    words = list(argv[argv.index("deploy") + 1 :])
    rest: list[str] = []
    while words:
        word = words.pop(0)
        if word in JOB_OPTIONS:
            words = words[1:]
        elif word.startswith(tuple(f"{option}=" for option in JOB_OPTIONS if option.startswith("--"))):
            continue
        elif not SHORT_WITH_VALUE.fullmatch(word) and word not in ("--json", "--dry-run"):
            rest.append(word)
    return rest


def recorded(directory: Path, deploy: Callable[[], None]) -> None:
    """Deploy in a batch job, and record the end for processes that follow the job."""
    from stackyard.launch.api.commands import recorded_command

    with recorded_command(directory) as ended:
        try:
            deploy()
        except click.exceptions.Exit as leaving:
            ended.code = leaving.exit_code
    if ended.code:
        raise click.exceptions.Exit(ended.code)
