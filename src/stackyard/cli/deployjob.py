"""``stackyard deploy --on KIND``: the build as a batch job on a node of that kind, followed, published from there."""

from __future__ import annotations

import os
import re
import shlex
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from stackyard.cli.context import Context
from stackyard.errors import InputError, StackyardError

if TYPE_CHECKING:
    from stackyard.launch.records.paths import RunPaths
    from stackyard.launch.request.intent import Intent
    from stackyard.spec.sitemodels import Site


def deploy_on(
    context: Context, kind: str, files: Sequence[Path], batch: dict[str, Any], dry_run: bool, as_json: bool
) -> None:
    """Submit a job that runs this very deploy on one node of `kind`, and follow it to its end.

    Raises:
        InputError: the site has no such node kind.
        MissingError: there is no scheduler.
        CommandError: the scheduler refused the job.
    """
    from stackyard.cli.jobs import make_record
    from stackyard.cli.output import show_json
    from stackyard.cli.verbs.submit import follow_run, send
    from stackyard.launch.plan.make import need_scheduler, surroundings, with_offer
    from stackyard.launch.records.record import new_run, next_run

    site = context.site()
    name = node_kind(site, kind)
    plan_context = replace(surroundings(site, os.environ), allocation=None)
    need_scheduler(plan_context)
    folder = Path.cwd() / site.launch.runs
    intent = _intent(name, files, batch)
    plan_context = with_offer(plan_context, intent, site)
    paths = next_run(folder)
    script = _script(context, site, plan_context, intent, paths)  # refuse what cannot be before anything is written
    if dry_run:
        show_json({"dry_run": True, "script": script}) if as_json else click.echo(script, nl=False)
        return
    _check_files(files)
    paths = new_run(folder)
    script = _script(context, site, plan_context, intent, paths)
    make_record(context, "deploy", paths, intent, None, plan_context)
    job = send(paths, script, site, plan_context)
    click.echo(
        f"run {click.style(paths.name, bold=True)}: {plan_context.scheduler} job {job} on a node {name}", err=True
    )
    follow_run(paths, as_json=as_json, logs=(paths.batch_log,))


def _check_files(files: Sequence[Path]) -> None:
    """Raise InputError for a file that is not there, before a job waits for hours to find that out."""
    for file in files:
        if not file.exists():
            raise InputError(f"there is no file {file}", hint="name a stack.yaml, environment.yml or requirements.txt")


def node_kind(site: Site, wanted: str) -> str:
    """The node kind that a person means: one of the site's names, or ``gpu`` for the only one that has GPUs."""
    if wanted in site.nodes:
        return wanted
    with_gpus = [name for name, kind in site.nodes.items() if kind.gpu.count]
    if wanted == "gpu" and len(with_gpus) == 1:
        return with_gpus[0]
    known = ", ".join(site.nodes) or "none: describe them under nodes: in site.yaml"
    raise InputError(f"--on {wanted}: this site has no such node kind", hint=f"its node kinds: {known}")


def _intent(kind: str, files: Sequence[Path], batch: dict[str, Any]) -> Intent:
    from stackyard.launch.request.intent import BatchOptions, Intent

    given = {k: v for k, v in batch.items() if v not in (None, "", ())}
    options = BatchOptions(name=given.pop("name", "deploy-" + files[0].stem), exclusive=True, local_disk=True, **given)
    return Intent(
        program=("stackyard", "deploy", *map(str, files)), ranks_per_node=1, straddle=True, node_kind=kind,
        batch=options, backend="any", gpu_visibility="all",
    )  # fmt: skip


def _script(context: Context, site: Site, plan_context: Any, intent: Intent, paths: RunPaths) -> str:
    """The batch script: the head for one whole node, all of its memory included, a temporary folder on its own disk,
    this command without --on.
    """
    from stackyard.cli.jobs import global_words
    from stackyard.launch.plan import schedulers
    from stackyard.launch.plan.make import make_plan
    from stackyard.launch.records.record import this_program

    head = make_plan(intent, site, plan_context, head=True).head
    assert head is not None
    disk = site.nodes[intent.node_kind].local_disk
    words = [*this_program(), *global_words(context), "deploy", "--recorded", str(paths.root), *_without_on(sys.argv)]
    cleaned = "trap 'rm -rf \"$TMPDIR\"' EXIT"
    temporary = f'export TMPDIR="{disk}/stackyard-$$"\nmkdir -p "$TMPDIR" || exit 1\n{cleaned}\n' if disk else ""
    return (
        "#!/bin/bash\n"
        + schedulers.get(plan_context.scheduler, site.scheduler)
        .head_text(head)
        .replace("{step}", str(paths.root))
        .rstrip()
        + "\n\n"
        + "".join(f"{line}\n" for line in site.launch.prologue)
        + temporary
        + f"cd {shlex.quote(str(Path.cwd()))} || exit 1\n{shlex.join(words)}\n"
    )


JOB_OPTIONS = ("--on", "--time", "-t", "--account", "-A", "--queue", "-q", "--scheduler-arg")
SHORT_WITH_VALUE = re.compile(r"-[tAq].+")


def _without_on(argv: Sequence[str]) -> list[str]:
    """The words after ``deploy`` without those that made it a job."""
    words = list(argv[argv.index("deploy") + 1 :])
    kept: list[str] = []
    while words:
        word = words.pop(0)
        if word in JOB_OPTIONS:
            words = words[1:]
        elif word.startswith(tuple(f"{option}=" for option in JOB_OPTIONS if option.startswith("--"))):
            continue
        elif not SHORT_WITH_VALUE.fullmatch(word) and word not in ("--json", "--dry-run"):  # its log is for people
            kept.append(word)
    return kept


@contextmanager
def recorded(folder: Path | None) -> Iterator[None]:
    """Keep how a deploy in a batch job ends, for those who follow it; nothing without a folder."""
    from stackyard.launch.records.paths import RunPaths
    from stackyard.launch.records.record import add_event, hostname, read_status, write_status

    if folder is None:
        yield
        return
    paths = RunPaths(folder)
    status = replace(
        read_status(paths), state="running", started=time.time(), pid=os.getpid(), host=hostname(),
        hosts=(hostname(),), phase=f"running on {hostname()}",
    )  # fmt: skip
    write_status(paths, status)
    add_event(paths, "phase", {"phase": "running", "detail": f"on {hostname()}"})
    code, message = 0, ""
    try:
        yield
    except StackyardError as error:
        code, message = error.exit_code, str(error)
        raise
    except click.exceptions.Exit as leaving:
        code = leaving.exit_code
        raise
    except BaseException as error:
        code, message = 1, str(error) or type(error).__name__
        raise
    finally:
        ended = time.time()
        state = "failed" if code else "done"
        write_status(
            paths,
            replace(status, state=state, code=code, ended=ended, message=message, phase="",
                    seconds={"total": round(ended - status.started, 1)}),
        )  # fmt: skip
