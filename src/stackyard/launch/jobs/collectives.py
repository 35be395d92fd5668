"""Jobs that measure collective operations: the ranks' program and what to measure are written into the run directory.

`stackyard.launch.preflight.node.iterations` is that program. It writes what it measures beside the run's record.
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

from stackyard.core.errors import InputError
from stackyard.core.late import dataclass
from stackyard.host.files import at
from stackyard.launch.jobs.batch import batch_script
from stackyard.launch.jobs.job import Job
from stackyard.launch.jobs.recording import Run, record_run
from stackyard.launch.preflight import trial
from stackyard.launch.preflight.node.iterations import FILE
from stackyard.launch.records.naming import new_run, next_run
from stackyard.launch.records.paths import RunPaths
from stackyard.yard.write.atomic import write_json

Over = Literal["auto", "gloo", "nccl", "mpi"]
LIMIT_S = 600.0
"""How long a rank of torch waits for the others in one operation."""


@dataclass(frozen=True)
class CollectivesRequest:
    """What to measure.

    Attributes:
        operations: of `stackyard.launch.preflight.node.operations.KINDS`, in this order.
        sizes: bytes, ascending, as nccl-tests counts them; `factor` is the step between them.
        warmup, iterations: of each size, not counted and counted.
        over: what carries the data; auto: nccl if the ranks have GPUs, else gloo.
    """

    operations: tuple[str, ...]
    sizes: tuple[int, ...]
    factor: int = 2
    warmup: int = 5
    iterations: int = 20
    over: Over = "auto"


def collectives_job(job: Job, request: CollectivesRequest, paths: RunPaths | None = None) -> Job:
    """The job with the program of such a run; without `paths` of the one that would be recorded next.

    Raises:
        InputError: it has one rank, or cannot be planned.
    """
    directory = _directory(paths or next_run(job.workspace.runs))
    program = trial.rank_argv(directory / "start.py", directory / "spec.json")
    backend = "mpi" if request.over == "mpi" else "any"
    job = replace(job, intent=job.intent.model_copy(update={"program": program, "backend": backend}))
    if job.plan().layout.ranks < 2:
        raise InputError("one rank only: nothing is sent", hint="start two ranks or more: -N 2, or -r 2")
    return job


def record_collectives(job: Job, request: CollectivesRequest, *, batch: bool = False) -> Run:
    """Record such a job: its run directory, the ranks' program and what to measure; as a batch job with its script.

    Raises:
        InputError, MissingError: it has one rank, or cannot be planned; nothing is written then.
        StackyardError: the run directory cannot be created.
    """
    layout = collectives_job(job, request).plan(head=batch).layout
    over = request.over if request.over != "auto" else "nccl" if layout.gpus_per_rank else "gloo"
    paths = new_run(job.workspace.runs)
    trial.install(_directory(paths), "iterations")
    spec = {"operations": request.operations, "sizes": request.sizes, "factor": request.factor, "over": over,
            "warmup": request.warmup, "iterations": request.iterations, "limit_s": LIMIT_S}  # fmt: skip
    write_json(_directory(paths) / "spec.json", spec)
    job = collectives_job(job, request, paths)
    plan = job.plan(head=batch)
    script = batch_script(job, plan, paths) if batch else ""
    return record_run(Run(job, paths, plan, script), "submit" if batch else "launch")


def _directory(paths: RunPaths) -> Path:
    return paths.root / "collectives"


def read_measured(paths: RunPaths) -> list[dict[str, Any]]:
    """The lines of what was measured so far: a header, rows, and the end; a line that was cut off is left out.

    Raises:
        InputError: the run has not measured anything, or its measurements are damaged.
    """
    try:
        text = at.read_regular(paths.root / FILE).decode("utf-8", "replace")
    except OSError as error:
        hint = "see its logs, or name a run of `stackyard bench collectives`"
        raise InputError(f"{paths.name} has no measurements of collectives", hint=hint) from error
    try:
        return [dict(json.loads(line)) for line in text.splitlines(keepends=True) if line.endswith("\n")]
    except (TypeError, ValueError, RecursionError) as error:
        raise InputError(f"the measurements of {paths.name} are damaged: {error}") from error
