"""`Run`: a job with its run directory and its record, from which a launch or a submission starts."""

from __future__ import annotations

import hashlib
from dataclasses import asdict
from pathlib import Path
from typing import Any, Literal

from stackyard.core.late import dataclass
from stackyard.host.run import clock
from stackyard.host.run.identity import hostname, whoami
from stackyard.inputs.reading.imagename import is_image_name
from stackyard.launch.jobs.job import Job
from stackyard.launch.plan.carried import carried
from stackyard.launch.plan.command import first_rank, launch_command, program_text
from stackyard.launch.plan.model import Plan
from stackyard.launch.records.origin import code_state, versions
from stackyard.launch.records.paths import RunPaths
from stackyard.launch.records.record import RunRecord, write_record
from stackyard.launch.request.intent import Intent

How = Literal["launch", "submit", "deploy", "bench", "tune"]


@dataclass(frozen=True)
class Run:
    """A recorded job.

    Attributes:
        plan: the plan, as far as known before nodes are allocated.
        script: the text of job.sh; empty for a launch.
    """

    job: Job
    paths: RunPaths
    plan: Plan | None = None
    script: str = ""


def record_run(run: Run, how: How) -> Run:
    """Write the record of a run that is about to start; returns the run."""
    job, plan, workspace = run.job, run.plan, run.job.workspace
    write_record(
        run.paths,
        RunRecord(
            run.paths.name, clock.stamp(), how,
            workspace.command(job.intent.program),
            job.asked.recorded().model_dump(mode="json"), scheduler=job.context.scheduler,
            plan=plan_json(plan, str(run.paths.root)) if plan else {},
            stack={k: v for k, v in asdict(job.context.stack).items() if k != "change" and v},
            site=_site(job), code=code_state(Path(job.intent.cwd or Path.cwd()), _program(job.intent)),
            environment=_environment(job, plan),
            versions=versions(), yard=str(workspace.yard.root), user=whoami(), host=hostname(), again_of=job.again_of,
        ),
    )  # fmt: skip
    if is_image_name(job.intent.container):
        from stackyard.launch.jobs.pulled import note_digest  # late: for images of registries

        note_digest(job.intent.container, run.paths, waits=how == "submit")
    return run


def _program(intent: Intent) -> tuple[str, ...]:
    """The program whose code is recorded; of several roles the first one's."""
    return next((role.program for role in intent.roles.values()), intent.program)


def _site(job: Job) -> dict[str, str]:
    file = job.workspace.site_file
    return {"file": str(file), "sha256": hashlib.sha256(file.read_bytes()).hexdigest()} if file else {}


def _environment(job: Job, plan: Plan | None) -> dict[str, Any]:
    """The shell variables that a job needs; the stack's changes and the variables of every rank, in order."""
    shell = {"shell": carried(job.workspace.environ)}
    if plan is None:
        return shell
    return {**shell, "stack": plan.change.to_json(), "ranks": plan.shown}


def plan_json(plan: Plan, step: str) -> dict[str, Any]:
    """A plan as plain values: the exact command, the program, the layout, reasons and findings.

    Args:
        step: the run directory in the command.
    """
    return {
        "command": launch_command(plan, step),
        "program": program_text(plan),
        "cwd": plan.cwd,
        "layout": _layout_json(plan),
        "files": dict(plan.line.files),
        "variables": plan.shown,
        **({"stage": [list(item) for item in plan.stage.items]} if plan.stage.items else {}),
        "reasons": [asdict(reason) for reason in plan.reasons],
        "findings": [finding.to_json() for finding in plan.findings],
        **({"roles": [_role_json(plan, index) for index in range(len(plan.roles))]} if plan.roles else {}),
    }


def _role_json(plan: Plan, index: int) -> dict[str, Any]:
    """One of several programs as JSON values; `first_rank` is the global number of its first rank."""
    role = plan.roles[index]
    own = role.plan
    return {
        "name": role.name, "first_node": role.first, "first_rank": first_rank(plan, index),
        "serves": role.serves, "program": program_text(own),
        "cwd": own.cwd, "variables": own.shown, "layout": _layout_json(own),
    }  # fmt: skip


def _layout_json(plan: Plan) -> dict[str, Any]:
    layout = plan.layout
    return {
        "nodes": layout.nodes,
        "ranks": layout.ranks,
        **({"ranks_of_nodes": [[p.nodes, p.ranks_per_node] for p in layout.alike]} if layout.hosts_differ else {}),
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
    }
