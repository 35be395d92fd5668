"""The plan of a job with several roles: each role planned separately, and one launch line for all of them.

All ranks share one MPI_COMM_WORLD, since one launch line starts them: MPI_Init waits for every rank of it, and so does
MPI_Finalize. So either all roles are MPI programs or none is, and none of them may be one that only serves the others.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from stackyard.core.errors import InputError
from stackyard.core.findings import refuse
from stackyard.inputs.sites.sitemodels import Site
from stackyard.launch.layout.model import Layout
from stackyard.launch.layout.roles import PlacedRole, place_roles, rank_in_role, together, whole_nodes
from stackyard.launch.plan import backends, launchers, make, removing, terminals
from stackyard.launch.plan.allocated import own_allocation
from stackyard.launch.plan.choosing import launcher_name, with_mpi
from stackyard.launch.plan.context import PlanContext
from stackyard.launch.plan.model import LaunchLine, Plan, PlannedRole, RankProgram
from stackyard.launch.plan.runtimes import entering
from stackyard.launch.plan.schedulers.slurm_nodes import need
from stackyard.launch.request.intent import Intent


@dataclass(frozen=True)
class _Case:
    """The inputs shared by the plans of all roles. `attached`: the rank and role that get your terminal or input."""

    intent: Intent
    site: Site
    context: PlanContext
    launcher: str
    attached: tuple[str, int] = ("", 0)


def plan_roles(intent: Intent, site: Site, context: PlanContext, hosts: Sequence[str] | None, head: bool) -> Plan:
    """The whole plan; `make.make_plan` has the arguments.

    Raises:
        InputError: the request contradicts itself, the site or the allocated nodes; or the launcher cannot express it.
        MissingError: a program that the plan needs was not found.
    """
    node = make.node_of(intent, site, context)
    names = tuple(hosts) if hosts is not None else make.hosts_of(intent, context)
    placed = place_roles(intent, node, names[: intent.nodes])
    for role in placed:
        refuse(role.layout.findings)
    case = _Case(intent, site, context, _launcher(intent, site, context))
    # a role's ranks, and its tasks: what the launcher starts (torchrun once per node, whatever the ranks)
    programs = _programs(intent, placed, case.launcher)
    _check(intent, placed, programs)
    tasks = [replace(role, layout=rank_program.layout) for role, rank_program in zip(placed, programs, strict=True)]
    layout, every = together(placed, names[: intent.nodes]), together(tasks, names[: intent.nodes])
    if context.allocation is not None and context.offer is not None:
        for part in layout.alike:
            need(whole_nodes(part), context.offer, oversubscribe=intent.oversubscribe)
    rank = terminals.rank_of(intent, every)
    case = case if rank is None else replace(case, attached=rank_in_role(every, tasks, rank))
    program = RankProgram(every, (), mpi=any(rank_program.mpi and rank_program.certain for rank_program in programs))
    # one launch line starts all roles; each role differs by the variables and words of its ranks
    line = _line(case, program, layout, hosts, head)
    roles = tuple(_role(case, role, rank_program, line) for role, rank_program in zip(placed, programs, strict=True))
    stage = make.stage_of(intent, site, layout, context)
    return Plan(
        layout, program, line, (), context.stack.change,
        variables=_common(roles), private=_private(roles),
        cwd=intent.cwd or str(Path.cwd()),
        head=make.head_of(intent, site, whole_nodes(layout), context) if head else None,
        reasons=(*line.reasons, *(reason for role in roles for reason in role.plan.reasons), *stage.reasons),
        findings=(
            *layout.findings, *line.findings, *(finding for role in roles for finding in role.plan.findings),
            *dict.fromkeys(f for role in placed for f in make.threads_replaced(
                intent.of_role(role.name), role.layout, context)),
        ),
        roles=roles, stage=stage,
    )  # fmt: skip


def _programs(intent: Intent, placed: Sequence[PlacedRole], launcher: str) -> list[RankProgram]:
    """The program of each role; a backend gets the ranks of all roles that have it too."""
    own = [intent.of_role(role.name) for role in placed]
    names = [backends.choose(one)[0] for one in own]
    programs = []
    for one, name, role in zip(own, names, placed, strict=True):
        alike = {other.name: other.layout.ranks for other, its in zip(placed, names, strict=True) if its == name}
        context = backends.BackendContext(role=role.name, roles=alike, serves=intent.roles[role.name].serves)
        programs.append(make.program_of(one, role.layout, launcher, None, context))
    return programs


def _launcher(intent: Intent, site: Site, context: PlanContext) -> str:
    """The launcher of all roles; without a scheduler one that starts MPI programs, if a role is one."""
    names = [launcher_name(intent.of_role(name), site.scheduler, context) for name in intent.roles]
    return next((name for name in names if name != "local"), names[0])


def _check(intent: Intent, placed: Sequence[PlacedRole], programs: Sequence[RankProgram]) -> None:
    for role, program in zip(placed, programs, strict=True):
        refuse(program.findings)
        if program.sidecar:
            raise InputError(
                f"cannot start {role.name} as a role: its backend needs a helper program on the first node (the "
                "rendezvous server of Horovod's gloo controller), which a job has for one program only",
                hint="use controller: mpi, with which all roles are MPI programs; or start it as a job of its own",
            )
    mpi = [role.name for role, program in zip(placed, programs, strict=True) if program.mpi and program.certain]
    others = [role.name for role in placed if role.name not in mpi]
    if mpi and others:
        raise InputError(
            f"{' and '.join(mpi)} would wait for ever in MPI_Init: {' and '.join(others)} is not an MPI program",
            hint="one launch line starts all roles, in one MPI_COMM_WORLD: let each role call MPI_Init (backend: mpi), "
            "or none; or submit two jobs",
        )
    served = [name for name in mpi if intent.roles[name].serves]
    if served:
        raise InputError(
            f"{' and '.join(served)} is an MPI program and cannot serve: the others would wait for it in MPI_Finalize",
            hint="leave out serves: true, and end it by a message from the other ranks",
        )


def _line(case: _Case, program: RankProgram, layout: Layout, hosts: Sequence[str] | None, head: bool) -> LaunchLine:
    intent, site, context = case.intent, case.site, case.context
    request = make.launch_request(intent, site, context, program, hosts, case.launcher)
    line = removing.line_without(launchers.get(case.launcher).line(request), removing.removed(intent.launcher_args))
    line = with_mpi(line, case.launcher, context, head)
    if case.launcher != "srun" or context.allocation is not None or head:
        return line
    if program.layout.hosts_differ:
        raise InputError(
            "srun cannot request the nodes of roles with different ranks per node",
            hint=f"use `stackyard submit`, or launch within salloc -N {intent.nodes} --exclusive",
        )
    return own_allocation(intent, site, make.head_of(intent, site, whole_nodes(layout), context), line)


def _role(case: _Case, role: PlacedRole, program: RankProgram, line: LaunchLine) -> PlannedRole:
    """The separate plan of a role."""
    site, context, (name, rank) = case.site, case.context, case.attached
    own = terminals.in_role(case.intent.of_role(role.name), rank if name == role.name else None)
    wrappers = make.wrappers_of(own, site, program, context)
    entering.refuse_in_roles(wrappers, role.name)
    plain, private = make.variables_of(own, site, role.layout.node.kind, context)
    plan = Plan(
        role.layout, program, line, wrappers, context.stack.change,
        variables={**make.job_variables(role.layout, line, context), **plain}, private=private,
        cwd=own.cwd or str(Path.cwd()),
        reasons=(*program.reasons, *(reason for wrapper in wrappers for reason in wrapper.reasons)),
        findings=(*program.findings, *(finding for wrapper in wrappers for finding in wrapper.findings)),
    )  # fmt: skip
    return PlannedRole(role.name, role.first, case.intent.roles[role.name].serves, plan)


def _common(roles: Sequence[PlannedRole]) -> dict[str, str]:
    """The variables that the ranks of all roles have with the same value."""
    first, others = roles[0].plan.variables, [role.plan.variables for role in roles[1:]]
    return {name: value for name, value in first.items() if all(own.get(name) == value for own in others)}


def _private(roles: Sequence[PlannedRole]) -> dict[str, str]:
    """The possibly secret values of all roles: a file of the job keeps them until its start, one for each name.

    Raises:
        InputError: two roles have different values of one.
    """
    variables: dict[str, tuple[str, str]] = {}
    for role in roles:
        for name, value in role.plan.private.items():
            other, before = variables.setdefault(name, (role.name, value))
            if before != value:
                raise InputError(
                    f"{name}: {other} and {role.name} have different values, which may be secret",
                    hint="use two names, or one value under variables: of the job",
                )
    return {name: value for name, (_, value) in variables.items()}
