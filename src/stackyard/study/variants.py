"""What a variant is: the request of one run, and the identity of what it ran."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from stackyard.core.errors import InputError
from stackyard.host.run.command import which
from stackyard.launch.api.jobs import Intent, Job, Plan, Workspace, with_variables
from stackyard.study.arguments import filled
from stackyard.study.request import StudyRequest, Variant
from stackyard.yard.kinds.payload import Prefix


def intent_of(request: StudyRequest, name: str, nodes: int, environ: Mapping[str, str]) -> Intent:
    """The request of a run, whose formulas are still to be `calculated`: they need its ranks.

    Raises:
        InputError: a plain environment has no Python.
    """
    variant = request.all_variants[name]
    variables = {**_plain(variant, environ), **variant.variables}
    program = (*request.job.program, *variant.words)
    changes = {**variant.of_job(), **with_variables(request.job, variables, ()), "nodes": nodes, "program": program}
    return request.job.model_copy(update=changes)


def calculated(job: Job, variant: Variant, plan: Plan) -> Job:
    """The job with the formulas in its program's words calculated, by the ranks of its plan.

    Raises:
        InputError: a formula cannot be calculated.
    """
    numbers = {"nodes": job.intent.nodes, "ranks": plan.layout.ranks}
    program = filled(job.intent.program, numbers, variant.arguments)
    return replace(job, intent=job.intent.model_copy(update={"program": program}))


def workspace_of(workspace: Workspace, variant: Variant, runs: Path) -> Workspace:
    """The workspace of a run: its directory is below `runs`; a plain environment is first on PATH."""
    environ = {**workspace.environ, **_plain(variant, workspace.environ)}
    return replace(workspace, runs=runs, environ=environ)


def _plain(variant: Variant, environ: Mapping[str, str]) -> dict[str, str]:
    """The variables that activate an environment which Stackyard did not make."""
    if not variant.plain:
        return {}
    prefix = Prefix(Path(variant.plain))
    if not prefix.python.exists():
        raise InputError(
            f"{variant.plain} has no bin/python", hint="plain: names the directory of a virtual or conda environment"
        )
    kind = "CONDA_PREFIX" if (prefix.root / "conda-meta").is_dir() else "VIRTUAL_ENV"
    programs = ":".join(map(str, prefix.program_directories[:1]))
    return {"PATH": f"{programs}:{environ.get('PATH', '/usr/bin:/bin')}", kind: str(prefix.root)}


def identity(job: Job, variant: Variant) -> dict[str, str]:
    """What a variant runs in, as far as it can change under its name: a revision's module and hash, an image, a Python.

    An image file is known by its size and time: to read one of ten gigabytes before each run takes longer than the run.
    """
    stack, intent = job.context.stack, job.intent
    found = {key: value for key, value in (("module", stack.module), ("lock", stack.lock_hash)) if value}
    if intent.container:
        image = Path(intent.container)
        status = image.stat() if image.exists() else None
        found["container"] = str(image)
        found["image"] = f"{status.st_size} bytes, {status.st_mtime_ns}" if status else "not found"
    if variant.plain:
        found["plain"] = variant.plain
    if not (stack.module or intent.container) and (python := which("python", job.context.environ)):
        found["python"] = os.path.realpath(python)
    return found


def require_same(name: str, then: Mapping[str, str], now: Mapping[str, str]) -> None:
    """Raise InputError if a variant is not what it was when the study began."""
    changed = [key for key in sorted({*then, *now}) if then.get(key) != now.get(key)]
    if changed:
        was, is_now = (values.get(changed[0]) or "none" for values in (then, now))
        raise InputError(
            f"the variant {name} has changed since this study began: its {changed[0]} was {was}, and is {is_now}",
            hint="runs of two different things are not repeats: begin another study",
        )
