"""A job explained: the layout, each launcher's command with a reason for each word, the script's head, each rank."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from stackyard.core.errors import InputError
from stackyard.core.findings import Finding, counted
from stackyard.inputs.sites.sitemodels import Site
from stackyard.launch.jobs.job import stack_in_use
from stackyard.launch.jobs.nodelimit import require_few
from stackyard.launch.jobs.workspace import Workspace
from stackyard.launch.layout import placing
from stackyard.launch.layout.model import Layout
from stackyard.launch.plan import launchers
from stackyard.launch.plan.choosing import launcher_name
from stackyard.launch.plan.command import program_text, shown_words, started
from stackyard.launch.plan.context import PlanContext, plan_context, with_offer
from stackyard.launch.plan.make import make_plan, node_of
from stackyard.launch.plan.model import Allocation, BatchHead, Plan, PlannedRole, Reason
from stackyard.launch.plan.runtimes.entering import WHY
from stackyard.launch.records.naming import next_run
from stackyard.launch.request.intent import Intent
from stackyard.launch.run.causes.table import mistakes

IDENTITY = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
ALONE = ("NODE_RANK", "MASTER_ADDR", "MASTER_PORT")
"""The variables that rank.sh sets for a rank, and for a task that starts the ranks of its node (torchrun)."""
SET_BY_US = {
    "PYTHONUNBUFFERED": "output before a crash is in the log",
    "PYTHONFAULTHANDLER": "a crash (SIGSEGV) of Python leaves a stack trace",
    "STACKYARD_START_METHOD": "multiprocessing starts processes in this way, where the program does not choose",
}


@dataclass(frozen=True)
class JobExplanation:
    """One job, explained for several launchers.

    Attributes:
        layout: the layout by the site alone.
        own: the launcher that `launch` and `submit` use here.
        lines: by launcher: ``command``, ``reasons``, ``files`` and ``findings``, or ``cannot`` and ``hint``.
        head: the directives of the batch script, each with its reason; none without a scheduler.
        rank: the program of each rank, with the reasons.
        identity: the variables in which rank.sh passes a rank its identity.
        drawings: for a job with several roles, a drawing of each kind of node, with its heading.
    """

    layout: Layout
    own: str
    lines: dict[str, dict[str, Any]]
    head: tuple[str, tuple[Reason, ...]]
    rank: tuple[str, tuple[Reason, ...]]
    findings: tuple[Finding, ...]
    identity: tuple[str, ...] = ()
    drawings: tuple[tuple[tuple[str, ...], Layout], ...] = ()


def stand_for(nodes: int) -> tuple[str, ...]:
    """Placeholders for the hosts, which are unknown before the allocation; mpirun and others name them."""
    return tuple(f"node{number}" for number in range(1, nodes + 1))


def explain(workspace: Workspace, intent: Intent, names: Iterable[str]) -> JobExplanation:
    """The job as each of the launchers in `names` would start it, the site's own first.

    It is planned for the same nodes as by `submit`: without a site file, for those that the scheduler reports, not for
    this machine.

    Raises:
        InputError: no launcher can start such a job: the layout, the program or the script's head is refused; or more
            nodes are requested than the revision may run on or the partition has.
        MissingError: a program that the plan needs was not found.
    """
    site = workspace.site
    stack = stack_in_use(workspace, intent.stack)
    require_few(workspace, intent, stack.folder)
    context = with_offer(replace(plan_context(site, workspace.environ, stack), allocation=None), intent, site)
    fixed = replace(context, allocation=Allocation(context.scheduler, "", stand_for(intent.nodes)))
    own = _own(intent, site, fixed) if context.scheduler != "none" else intent.launcher or "local"
    plans = {name: _plan(name, own, intent, site, fixed) for name in sorted(names, key=lambda name: name != own)}
    plan = _first_plan(plans.values())
    layout = plan.layout if intent.roles else placing.plan_layout(intent, node_of(intent, site, fixed))
    head = plan.head or BatchHead("", ())
    run = str(next_run(workspace.runs).root)
    of_images = (finding for wrapper in plan.wrappers for finding in wrapper.findings)
    return JobExplanation(
        layout, own, {name: _line(outcome, run) for name, outcome in plans.items()},
        (head.prefix, _in_run(head.reasons, run)),
        (program_text(plan), _in_run((*_of_each_rank(plan), *plan.stage.reasons), run)),
        (*head.findings, *of_images, *_of_causes(site)),
        ALONE if plan.program.ranks_per_task > 1 else IDENTITY, _drawings(plan),
    )  # fmt: skip


def _of_causes(site: Site) -> Iterator[Finding]:
    """Findings about mistakes in the site's causes of failures, which otherwise show only after a failed launch."""
    for mistake in mistakes(site.causes):
        message = f"the site's causes of failures are not tried: {mistake.message}"
        yield Finding("causes", "warning", message, remedy=mistake.hint or "", where=mistake.where)


def _own(intent: Intent, site: Site, context: PlanContext) -> str:
    """The launcher used here; with several roles the first role's."""
    first = intent.of_role(next(iter(intent.roles))) if intent.roles else intent
    return launcher_name(first, site.scheduler, context)


def _drawings(plan: Plan) -> tuple[tuple[tuple[str, ...], Layout], ...]:
    """The nodes of a job with several roles, block by block: the ranks of each role, and their resources."""
    drawings = []
    for block, part in zip(plan.layout.blocks, plan.layout.parts, strict=True):
        last = block.first + block.count - 1
        which = f"node {block.first}" if block.count == 1 else f"nodes {block.first} to {last}, each"
        lines = [f"{which} of {plan.layout.node.kind}"]
        for index in dict.fromkeys(block.roles):
            locals_ = [local for local, role in enumerate(block.roles) if role == index]
            lines.append(f"{_span(locals_)}: {plan.roles[index].name}, {_each(plan.roles[index].plan.layout)}")
        drawings.append((tuple(lines), replace(part, hosts=())))
    return tuple(drawings) if plan.roles else ()


def _span(numbers: list[int]) -> str:
    return f"local rank {numbers[0]}" if len(numbers) == 1 else f"local ranks {numbers[0]} to {numbers[-1]}"


def _each(layout: Layout) -> str:
    shares = [counted(layout.cores_per_rank, "core"), counted(layout.threads, "thread")]
    if layout.gpus_per_rank:
        shares.append(counted(layout.gpus_per_rank, "GPU"))
    return f"{', '.join(shares)} each" if layout.ranks_per_node > 1 else ", ".join(shares)


def _first_plan(plans: Collection[Plan | InputError]) -> Plan:
    """The plan of the first launcher that can start the job; if none can, raise the first one's error."""
    for plan in plans:
        if isinstance(plan, Plan):
            return plan
    raise next(error for error in plans if isinstance(error, InputError))


def _in_run(reasons: Iterable[Reason], run: str, *, bare: bool = False) -> tuple[Reason, ...]:
    """The reasons, with the run directory in words that name it; `bare`: files in it by their names."""
    every = ((tuple(map(_bare, r.words)) if bare else r.words, r.reason) for r in reasons)
    return tuple(Reason(tuple(word.replace("{step}", run) for word in words), reason) for words, reason in every)


def _plan(name: str, own: str, intent: Intent, site: Site, context: PlanContext) -> Plan | InputError:
    """The plan with this launcher.

    The site's launcher options and the MPI on this machine apply to the site's own launcher only.

    Raises:
        InputError: no such launcher.
    """
    launchers.get(name)
    if name != own:
        scheduler = site.scheduler.model_copy(update={"launcher_options": (), "mpi": ""})
        site = site.model_copy(update={"scheduler": scheduler})
        if context.scheduler == "none" and not intent.container:
            context = replace(context, environ={**context.environ, "PATH": ""})
    changed_intent = intent.model_copy(update={"launcher": name})
    try:
        return make_plan(changed_intent, site, context, head=context.scheduler != "none")
    except InputError as error:
        return error


def _line(outcome: Plan | InputError, run: str) -> dict[str, Any]:
    """The command as JSON values; with a container or profiler it ends with rank.sh, which has the long program."""
    if isinstance(outcome, InputError):
        return {"cannot": outcome.message, "hint": outcome.hint or ""}
    line = outcome.line
    script = " ".join(map(_bare, started(outcome)))
    program = script if outcome.wrappers or outcome.roles else program_text(outcome)
    agents = [Reason((*outcome.agents, "node.sh"), WHY)] if outcome.agents else []
    reasons = _in_run((*line.reasons, *agents), run, bare=True)
    words = [_bare(word).replace("{step}", run) for word in line.words]
    return {
        "command": f"{shown_words(words)} {program}",
        "reasons": [{"words": list(reason.words), "reason": reason.reason} for reason in reasons],
        "files": dict(line.files),
        "findings": [finding.to_json() for finding in line.findings],
    }


def _bare(word: str) -> str:
    return word.replace("{step}/", "")


def _of_each_rank(plan: Plan) -> tuple[Reason, ...]:
    """The reasons of the backend and the wrappers, then of the other variables of a rank; role by role."""
    if plan.roles:
        return tuple(
            replace(reason, reason=f"{role.name}: {reason.reason}")
            for role in plan.roles for reason in (*_of_role(role), *_of_each_rank(role.plan))
        )  # fmt: skip
    reasons = [*plan.program.reasons, *(reason for wrapper in plan.wrappers for reason in wrapper.reasons)]
    variables: Mapping[str, str] = plan.shown
    named = [reason for reason in reasons if reason.words]
    return (*named, *(Reason((f"{name}={value}",), _set(name, value)) for name, value in variables.items()))


def _of_role(role: PlannedRole) -> tuple[Reason, ...]:
    words = (f"STACKYARD_ROLE={role.name}", f"STACKYARD_ROLE_SIZE={role.plan.program.layout.ranks}")
    name = role.name.upper()
    ends = "ended when all ranks of the other roles have ended" if role.serves else "the job ends with its ranks"
    return (
        Reason(words, f"set for its ranks, with STACKYARD_ROLE_RANK; {ends}"),
        Reason((f"STACKYARD_ADDR_{name}", f"STACKYARD_PORT_{name}", f"STACKYARD_SIZE_{name}"),
               "address and port of its first node and its size, set for the ranks of every role"),
    )  # fmt: skip


def _set(name: str, value: str) -> str:
    if name in SET_BY_US:
        return SET_BY_US[name]
    holes = re.findall(r"\{(?:local_rank|node|run|user)\}", value)
    return f"set for every rank, with its own {' and '.join(holes)}" if holes else "set for every rank"
