"""What `explain` says about a job: each launcher's line with the reason for each word, the script's head, each rank."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from stackyard.errors import InputError
from stackyard.findings import Finding
from stackyard.launch.plan import launchers
from stackyard.launch.plan.make import PlanContext, make_plan
from stackyard.launch.plan.model import Allocation, BatchHead, Plan, Reason
from stackyard.launch.plan.script import program_text, shown_words
from stackyard.launch.request.intent import Intent
from stackyard.spec.sitemodels import Site

IDENTITY = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
ALONE = ("NODE_RANK", "MASTER_ADDR", "MASTER_PORT")
"""What rank.sh sets for a task that is a rank, and for one that starts the ranks of its node (torchrun)."""


@dataclass(frozen=True)
class Explained:
    """One job on the launchers.

    Attributes:
        own: the launcher that `launch` and `submit` would take here.
        lines: by launcher: ``command``, ``reasons``, ``files`` and ``findings``, or ``cannot`` and ``hint``.
        head: the directives of the batch script, each with its reason; none without a scheduler.
        rank: what each rank runs, with the reasons for it.
        tells: the variables by which rank.sh tells it who it is.
    """

    own: str
    lines: dict[str, dict[str, Any]]
    head: tuple[str, tuple[Reason, ...]]
    rank: tuple[str, tuple[Reason, ...]]
    findings: tuple[Finding, ...]
    tells: tuple[str, ...] = ()


def stand_for(nodes: int) -> tuple[str, ...]:
    """Names that stand for the hosts, which nobody knows before there is an allocation; mpirun and others name them."""
    return tuple(f"node{number}" for number in range(1, nodes + 1))


def explain(intent: Intent, site: Site, context: PlanContext, names: Iterable[str], run: str) -> Explained:
    """The job as each of the launchers `names` would start it, the site's own first.

    Args:
        run: the folder that the next run would have; the script's head names it.

    Raises:
        InputError: no launcher could start such a job: the layout or the program is refused, or the script's head.
        MissingError: a program that the plan needs is not here.
    """
    kind: Any = context.scheduler
    fixed = PlanContext(kind, Allocation(kind, "", stand_for(intent.nodes)), context.stack, environ=context.environ)
    own = intent.launcher or launchers.default_name(site.scheduler.model_copy(update={"kind": kind}))
    plans: dict[str, Plan | InputError] = {}
    for name in sorted(names, key=lambda name: name != own):
        launchers.get(name)
        plans[name] = _plan(name, own, intent, site, fixed)
    plan = next((plan for plan in plans.values() if isinstance(plan, Plan)), None)
    if plan is None:
        raise next(error for error in plans.values() if isinstance(error, InputError))
    head = plan.head or BatchHead("", ())
    said = tuple(Reason(tuple(w.replace("{step}", run) for w in r.words), r.reason) for r in head.reasons)
    return Explained(
        own, {name: _line(made) for name, made in plans.items()}, (head.prefix, said),
        (program_text(plan), _of_each_rank(plan)), head.findings,
        ALONE if plan.program.ranks_per_task > 1 else IDENTITY,
    )  # fmt: skip


def _plan(name: str, own: str, intent: Intent, site: Site, context: PlanContext) -> Plan | InputError:
    """The plan with this launcher.

    What the site says of its own launcher's options does not hold for the others, nor does the MPI that is here.
    """
    if name != own:
        scheduler = site.scheduler.model_copy(update={"launcher_options": (), "mpi": ""})
        site = site.model_copy(update={"scheduler": scheduler})
        if context.scheduler == "none" and not intent.container:
            context = replace(context, environ={**context.environ, "PATH": ""})
    wanted = intent.model_copy(update={"launcher": name})
    try:
        return make_plan(wanted, site, context, head=context.scheduler != "none")
    except InputError as error:
        return error


def _line(made: Plan | InputError) -> dict[str, Any]:
    """With a container or a profiler the program is long: the line then names rank.sh, which runs it."""
    if isinstance(made, InputError):
        return {"cannot": made.message, "hint": made.hint or ""}
    line = made.line
    return {
        "command": f"{shown_words([*map(_bare, line.words)])} {'rank.sh' if made.wrappers else program_text(made)}",
        "reasons": [{"words": list(map(_bare, reason.words)), "reason": reason.reason} for reason in line.reasons],
        "files": dict(line.files),
        "findings": [finding.to_json() for finding in line.findings],
    }


def _bare(word: str) -> str:
    return word.replace("{step}/", "")


def _of_each_rank(plan: Plan) -> tuple[Reason, ...]:
    """What the backend and the wrappers say, and the variables that a rank of this job is given besides."""
    reasons = [*plan.program.reasons, *(reason for wrapper in plan.wrappers for reason in wrapper.reasons)]
    variables: Mapping[str, str] = {**plan.variables, **plan.program.variables}
    told = [reason for reason in reasons if reason.words]
    return (*told, *(Reason((f"{name}={value}",), _set(value)) for name, value in variables.items()))


def _set(value: str) -> str:
    holes = re.findall(r"\{(?:local_rank|node|run|user)\}", value)
    return f"set for every rank, with its own {' and '.join(holes)}" if holes else "set for every rank"
