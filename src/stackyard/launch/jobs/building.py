"""A deploy as a batch job: on one whole node of a kind, ``stackyard deploy`` runs and records its own end."""

from __future__ import annotations

import os
import shlex
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from stackyard.core.errors import InputError, StopSignal
from stackyard.host.run.identity import hostname
from stackyard.inputs.sites.sitemodels import Site
from stackyard.inputs.stacks.naming import safe
from stackyard.launch.jobs import batch
from stackyard.launch.jobs.job import Job, batch_job
from stackyard.launch.jobs.workspace import Workspace
from stackyard.launch.plan.model import Plan
from stackyard.launch.records.paths import RunPaths
from stackyard.launch.records.record import add_event, read_run, read_status, write_status
from stackyard.launch.request.intent import BatchOptions, Intent

OWN_DISK = """\
TMPDIR=$(mktemp -d "{disk}/stackyard-XXXXXXXX") || exit 1
export TMPDIR
trap 'rm -rf -- "$TMPDIR"' EXIT
"""


def build_job(workspace: Workspace, kind: str, files: Sequence[Path], options: BatchOptions) -> Job:
    """The job that deploys `files` on one whole node of `kind`.

    Raises:
        InputError: no such node kind.
        MissingError: no scheduler found.
    """
    name = node_kind(workspace.site, kind)
    whole = {"name": options.name or f"deploy-{safe(files[0].stem)}", "exclusive": True, "local_disk": True}
    intent = Intent(
        program=("stackyard", "deploy", *map(str, files)), ranks_per_node=1, straddle=True, node_kind=name,
        batch=options.model_copy(update=whole), backend="any", gpu_visibility="all",
    )  # fmt: skip
    return batch_job(workspace, intent)


def node_kind(site: Site, wish: str) -> str:
    """A node kind by its name; ``gpu`` also selects the only kind with GPUs."""
    if wish in site.nodes:
        return wish
    with_gpus = [name for name, kind in site.nodes.items() if kind.gpu.count]
    if wish == "gpu" and len(with_gpus) == 1:
        return with_gpus[0]
    hint = f"node kinds: {', '.join(site.nodes)}" if site.nodes else "describe them under `nodes:` in site.yaml"
    raise InputError(f"--on {wish}: no such node kind on this site", hint=hint)


def build_script(job: Job, words: Sequence[str], paths: RunPaths) -> str:
    """The batch script: directives for one whole node with all its memory, TMPDIR on its own disk, and the deploy.

    Args:
        words: the options and files of ``stackyard deploy``, without those of the batch job.
    """
    disk = job.site.nodes[job.intent.node_kind].local_disk
    own_disk = OWN_DISK.format(disk=disk) if disk else ""
    return command_script(job, job.plan(head=True), ("deploy", "--recorded", str(paths.root), *words), paths, own_disk)


def command_script(
    job: Job,
    plan: Plan,
    words: Sequence[str],
    paths: RunPaths,
    before: str = "",
    exports: Mapping[str, str] | None = None,
) -> str:
    """A batch script that runs this program itself: the directives of the job, and one command.

    Args:
        words: those after ``stackyard``.
        before: lines of shell before it.
        exports: environment variables that the scheduler does not pass on.
    """
    prologue = (*job.site.launch.prologue, *job.intent.prologue)
    return (
        f"#!/bin/bash\n{batch.head_text(job, plan, paths).rstrip()}\n\n"
        + "".join(f"export {name}={shlex.quote(value)}\n" for name, value in (exports or {}).items())
        + "".join(f"{line}\n" for line in prologue)
        + before
        + f"cd {shlex.quote(str(Path.cwd()))} || exit 1\n{shlex.join(job.workspace.stackyard(*words))}\n"
    )


@dataclass
class CommandEnd:
    """The end of a command: its exit status."""

    code: int = 0


@contextmanager
def recorded_command(directory: Path) -> Iterator[CommandEnd]:
    """Record the start and the end of a batch job's command, for processes that follow its run.

    After an exception the status is its ``exit_code``, else 1; otherwise it is the one set in the yielded value. A job
    that may be requeued and is ended by a signal waits: the scheduler knows whether it starts again.
    """
    paths, host = RunPaths(directory), hostname()
    status = replace(
        read_status(paths), state="running", started=time.time(), pid=os.getpid(), host=host, hosts=(host,),
        phase=f"running on {host}",
    )  # fmt: skip
    write_status(paths, status)
    add_event(paths, "phase", {"phase": "running", "detail": f"on {host}"})
    ended, message, waits = CommandEnd(), "", False
    try:
        yield ended
    except BaseException as error:
        waits = isinstance(error, StopSignal) and bool(read_run(paths).intent.get("batch", {}).get("requeue"))
        ended.code = ended.code or getattr(error, "exit_code", 1)
        message = str(error) or type(error).__name__
        raise
    finally:
        now = time.time()
        write_status(
            paths,
            replace(
                status, state="queued" if waits else "failed" if ended.code else "done",
                code=None if waits else ended.code, ended=now, message=message, phase="",
                seconds={"total": round(now - status.started, 1)},
            ),
        )  # fmt: skip
