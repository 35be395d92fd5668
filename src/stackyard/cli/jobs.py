"""What `launch`, `submit`, `explain` and `deploy --on` share: the stack in use and the record of a run."""

from __future__ import annotations

import hashlib
import os
import sys
import time
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stackyard.cli.context import Context
from stackyard.launch.records.paths import RunPaths
from stackyard.launch.records.record import RunRecord, code_state, hostname, read_run, versions, whoami, write_record

if TYPE_CHECKING:
    from stackyard.launch.plan.make import PlanContext, StackInUse
    from stackyard.launch.plan.model import Plan
    from stackyard.launch.request.intent import Intent
    from stackyard.spec.sitemodels import Site


def stack_in_use(context: Context, site: Site, name: str, folder: str = "") -> StackInUse:
    """The revision that a job runs with; nothing where none is named.

    Args:
        folder: the revision's own folder, for a run that is carried out or repeated exactly.

    Raises:
        InputError: there is no such revision.
    """
    from stackyard.launch.plan.make import StackInUse

    if not name:
        return StackInUse()
    from stackyard.expose.published import change_of
    from stackyard.yard import catalogue
    from stackyard.yard.layout import RevisionPaths
    from stackyard.yard.record import read_record

    built = read_record(RevisionPaths.of(folder).record) if folder else catalogue.record_of(context.yard(), name)
    return StackInUse(built.module, built.path, built.prefix, built.input_hash, change_of(built, site))


def default_nodes(hosts: tuple[str, ...] | None) -> int:
    """How many nodes a launch takes where nobody says: all of the allocation, else this machine."""
    return len(hosts) if hosts else 1


def make_record(
    context: Context,
    how: str,
    paths: RunPaths,
    intent: Intent,
    plan: Plan | None,
    plan_context: PlanContext,
    **more: Any,
) -> RunRecord:
    """The record of a run that is about to start."""
    file = context.site_file()
    site = {"file": str(file.absolute()), "sha256": hashlib.sha256(file.read_bytes()).hexdigest()} if file else {}
    stack = {k: v for k, v in asdict(plan_context.stack).items() if k != "change" and v}
    environment: dict[str, Any] = {"shell": _shell_variables()}
    if plan is not None:
        environment["stack"] = plan.change.to_json()
        environment["ranks"] = {**plan.variables, **plan.program.variables}
    made = RunRecord(
        paths.name, time.strftime("%Y-%m-%dT%H:%M:%S%z"), how, tuple(sys.argv), intent.model_dump(mode="json"),
        scheduler=plan_context.scheduler, plan=plan_json(plan, str(paths.root)), stack=stack, site=site,
        code=code_state(Path(intent.cwd or Path.cwd()), intent.program), environment=environment,
        versions=versions(), yard=str(context.yard().root), user=whoami(), host=hostname(), **more,
    )  # fmt: skip
    write_record(paths, made)
    return made


def restore(paths: RunPaths) -> list[str]:
    """Give this shell what the shell of a recorded run had, and say in what else the world has changed since.

    Only variables that matter to a job were recorded and come back: PATH, LD_LIBRARY_PATH, NCCL_... and their like.
    """
    kept = read_run(paths)
    shell = {name: value for name, value in kept.environment.get("shell", {}).items() if name != "SLURM_CONF"}
    different = sorted(name for name, value in shell.items() if os.environ.get(name) != value)
    os.environ.update(shell)
    said = [f"as in run {paths.name}, not as in this shell: {', '.join(different)}"] if different else []
    code = code_state(Path(kept.code.get("folder", ".")), tuple(kept.intent.get("program", ())))
    for key, what in (("program_sha256", "the program"), ("commit", "the commit"), ("changes_sha256", "local changes")):
        if kept.code.get(key) != code.get(key):
            said.append(f"{what} is not what it was in run {paths.name}: `stackyard runs diff` shows it afterwards")
    return said


def plan_json(plan: Plan | None, step: str) -> dict[str, Any]:
    """A plan as plain values: the exact command, the program, the layout's numbers, reasons, findings."""
    from stackyard.launch.plan.script import launch_command, program_text

    if plan is None:
        return {}
    layout = plan.layout
    return {
        "command": launch_command(plan, step),
        "program": program_text(plan),
        "cwd": plan.cwd,
        "layout": {
            "nodes": layout.nodes,
            "ranks": layout.ranks,
            "ranks_per_node": layout.ranks_per_node,
            "cores_per_rank": layout.cores_per_rank,
            "gpus_per_rank": layout.gpus_per_rank,
            "threads_per_rank": layout.threads,
            "gpu_visibility": layout.gpu_visibility,
            "distribution": layout.distribution,
            "node_kind": layout.node.kind,
            "assumed": list(layout.node.assumed),
            "hosts": list(layout.hosts),
            "slots": [asdict(slot) for slot in layout.slots],
        },
        "files": dict(plan.line.files),
        "variables": {**plan.variables, **plan.program.variables},
        "reasons": [asdict(reason) for reason in plan.reasons],
        "findings": [finding.to_json() for finding in plan.findings],
    }


def _shell_variables() -> dict[str, str]:
    from stackyard.launch.plan.script import carried

    return carried(os.environ)


def global_words(context: Context, yard: str = "") -> list[str]:
    """The global options that make another start of this program see the same yard and site."""
    words = ["--yard", yard or str(context.yard().root)]
    file = context.site_file()
    return [*words, "--site", str(file.absolute())] if file else words
