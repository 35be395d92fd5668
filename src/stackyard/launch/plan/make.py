"""An intent becomes a plan: layout, backend, wrappers, launch line and script head, with all reasons and findings."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from stackyard.change import EnvironmentChange
from stackyard.errors import InputError, MissingError
from stackyard.findings import refuse
from stackyard.host.mpi import find_mpi
from stackyard.launch.layout import nodes, placing
from stackyard.launch.layout.model import Layout, Node
from stackyard.launch.plan import backends, containers, launchers, profilers, schedulers, slurm_nodes
from stackyard.launch.plan.model import (
    Allocation,
    BatchHead,
    BatchRequest,
    LaunchLine,
    LaunchRequest,
    Plan,
    RankProgram,
    Wrapper,
)
from stackyard.launch.plan.script import CARRIED, CARRIED_PREFIXES
from stackyard.launch.request.intent import Intent
from stackyard.spec.sitemodels import NodeKind, Scheduler, Site

SHARED_BY_SRUN = frozenset(
    ("--time", "--account", "--partition", "--qos", "--constraint", "--reservation", "--dependency", "--job-name",
     "--mem", "--exclusive", "--switches", "--gres", "--gpus-per-node", "--mail-type", "--mail-user")
)  # fmt: skip
"""Options of sbatch that srun understands too, for a launch that makes its own allocation."""


@dataclass(frozen=True)
class StackInUse:
    """The revision that a job runs with; all empty: what the person has in his shell."""

    module: str = ""
    folder: str = ""
    prefix: str = ""
    lock_hash: str = ""
    change: EnvironmentChange = field(default_factory=EnvironmentChange)


@dataclass(frozen=True)
class PlanContext:
    """What a plan depends on besides intent and site.

    Attributes:
        allocation: the nodes in hand, or None (not yet, or never: one machine).
        environ: the variables of the person's shell.
        offer: what the scheduler says of the nodes; None: not asked (`with_offer`).
    """

    scheduler: str = "none"
    allocation: Allocation | None = None
    stack: StackInUse = field(default_factory=StackInUse)
    environ: Mapping[str, str] = field(default_factory=dict)
    offer: slurm_nodes.Offer | None = None


def surroundings(
    site: Site, environ: Mapping[str, str], stack: StackInUse | None = None, *, launcher: str = ""
) -> PlanContext:
    """What is here: the site's scheduler, else the one on this machine, and the allocation that we are in.

    Args:
        launcher: what the person wants to start ranks with at once: ``local`` needs no scheduler, and outside of an
            allocation mpirun and mpiexec start them on this machine too.
    """
    kind = "none" if launcher == "local" else site.scheduler.kind or schedulers.detect(dict(environ))
    allocation = None if kind == "none" else schedulers.get(kind, site.scheduler).allocation(dict(environ))
    if allocation is None and launcher in ("mpirun", "mpich"):
        kind = "none"
    return PlanContext(kind, allocation, stack or StackInUse(), environ=dict(environ))


def with_offer(context: PlanContext, intent: Intent, site: Site) -> PlanContext:
    """The same, with what Slurm says of the nodes in hand; or, where there are none yet, of those to be had.

    Where the site describes its nodes and Slurm cannot be asked (a script for another cluster), nothing is added.

    Raises:
        InputError: the partition has fewer nodes than are asked for.
    """
    if context.scheduler != "slurm":
        return context
    if context.allocation is not None:
        here = os.uname().nodename.partition(".")[0]
        counted = site.scheduler.gpu_request != "none"  # else Slurm knows of no GPUs, and that says nothing
        some = not site.nodes or any(each.gpu.count or each.domains for each in site.nodes.values())
        offer = slurm_nodes.of_allocation(
            context.allocation, context.environ, here=here, described=bool(site.nodes),
            gpus=counted and some and intent.gpus_per_rank != 0,
        )  # fmt: skip
        return replace(context, offer=offer if counted else replace(offer, gpus=None))
    kind = site.nodes[nodes.pick_kind(site, intent).kind] if site.nodes else NodeKind()
    queue = intent.batch.queue or kind.queue or site.scheduler.queue
    there = slurm_nodes.of_partition(queue)
    wanted = intent.nodes + intent.spare
    if there is not None and wanted > there.nodes:
        raise InputError(
            f"{wanted} nodes are asked for, and partition {there.partition} has {there.nodes}",
            hint=f"-N {max(1, there.nodes - intent.spare)}, or another partition with -p; `sinfo -s` lists them",
        )
    return replace(context, offer=there)


def make_plan(
    intent: Intent,
    site: Site,
    context: PlanContext,
    *,
    hosts: Sequence[str] | None = None,
    head: bool = False,
    program: Sequence[str] | None = None,
) -> Plan:
    """The whole plan. Pure but for looking at the program's imports and for a container's runtime on PATH.

    Args:
        hosts: exactly these hosts of the allocation; None: its first ones.
        head: also the head of a batch script.
        program: run this on every rank instead of the intent's program (the gate does).

    Raises:
        InputError: the request contradicts itself, the site or the nodes in hand; the message says what to change.
        MissingError: a program that the plan needs is not here.
    """
    _check_program(intent, program)
    node = _node(intent, site, context)
    layout = placing.plan_layout(intent, node, tuple(hosts) if hosts is not None else _hosts(intent, context))
    if site.nodes:
        refuse(layout.findings)
    if context.allocation is not None and context.offer is not None:
        slurm_nodes.need(layout, context.offer, oversubscribe=intent.oversubscribe)
    refuse(layout.findings)
    made = _program(intent, site, layout, context, program)
    refuse(made.findings)
    scheduler = site.scheduler
    name = _launcher_name(intent, scheduler, context)
    line = _with_mpi(launchers.get(name).line(_request(intent, site, context, made, hosts)), name, context, head)
    if name == "srun" and context.allocation is None and not head:
        own = {word.split("=")[0].split()[0] for word in (*site.scheduler.options, *intent.batch.scheduler_args)}
        line = _own_allocation(line, _head(intent, site, layout, context), own)
    wrappers = _wrappers(intent, site, made, context)
    return Plan(
        layout, made, line, wrappers, context.stack.change,
        variables=rank_variables(intent, site, node.kind),
        cwd=intent.cwd or str(Path.cwd()),
        head=_head(intent, site, layout, context) if head else None,
        reasons=(*made.reasons, *line.reasons, *(r for w in wrappers for r in w.reasons)),
        findings=(*layout.findings, *made.findings, *line.findings, *(f for w in wrappers for f in w.findings)),
    )  # fmt: skip


def _node(intent: Intent, site: Site, context: PlanContext) -> Node:
    """What the site says of its nodes; else what the scheduler says; else this machine."""
    if not site.nodes and not intent.node_kind and context.offer is not None and context.offer.node is not None:
        return context.offer.node
    return nodes.pick_kind(site, intent)


def _check_program(intent: Intent, program: Sequence[str] | None) -> None:
    if not intent.program and not program:
        raise InputError("say which program to run", hint="stackyard launch -N 2 train.py --epochs 3")


def _hosts(intent: Intent, context: PlanContext) -> tuple[str, ...]:
    """The hosts to use of those in hand."""
    if context.allocation is None:
        if context.scheduler == "none" and intent.nodes > 1:
            hint = "use -N 1, or a machine with a scheduler; `scheduler.kind` in site.yaml says which one is there"
            raise InputError(f"{intent.nodes} nodes are asked for, and there is only this machine", hint=hint)
        return (os.uname().nodename,) if context.scheduler == "none" else ()
    have = context.allocation.hosts
    if intent.nodes > len(have):
        hint = f"ask for -N {len(have)}, or for a larger allocation"
        raise InputError(f"{intent.nodes} nodes are asked for, and this allocation has {len(have)}", hint=hint)
    return have[: intent.nodes]


def _program(
    intent: Intent, site: Site, layout: Layout, context: PlanContext, program: Sequence[str] | None
) -> RankProgram:
    """What the backend makes of it. The gate's own program is wired up as the backend's ranks are, but run as it is."""
    launcher = _launcher_name(intent, site.scheduler, context)
    backend_context = backends.BackendContext(in_container=bool(intent.container), launcher=launcher)
    if program is None:
        name, reason = backends.choose(intent)
        made = backends.get(name).program(intent, layout, backend_context)
        return replace(made, reasons=(*reason, *made.reasons))
    name, _ = backends.choose(intent)
    wired = name == "mpi" or (name == "horovod" and intent.controller != "gloo")
    plain = intent.model_copy(update={"program": tuple(program)})
    made = backends.get("mpi" if wired else "any").program(plain, layout, backend_context)
    return made


def _with_mpi(line: LaunchLine, name: str, context: PlanContext, batch_job: bool) -> LaunchLine:
    """The mpirun or mpiexec of the stack where it has one: the launcher and the ranks must be of one MPI."""
    if name not in ("mpirun", "mpich"):
        return line
    mpi = find_mpi(context.stack.change.apply(context.environ))
    own = mpi is not None and bool(context.stack.prefix) and mpi.program.is_relative_to(context.stack.prefix)
    if mpi is None or (batch_job and not own):  # what is on PATH here says nothing of the nodes
        return line
    if mpi.launcher != name:
        hint = f"--launcher {mpi.launcher} writes its options, or put the other MPI first on PATH"
        raise InputError(f"{mpi.program} is no program that {name}'s options are for", hint=hint)
    return replace(line, words=(str(mpi.program), *line.words[1:])) if own else line


def _launcher_name(intent: Intent, scheduler: Scheduler, context: PlanContext) -> str:
    if intent.launcher:
        return intent.launcher
    if context.scheduler == "none" and backends.choose(intent)[0] == "mpi":
        mpi = find_mpi(context.stack.change.apply(context.environ))
        if mpi is None:
            hint = "load a stack that has an MPI (--with), or put its mpiexec on PATH"
            raise MissingError("the program uses MPI, and there is no mpiexec here to start its ranks", hint=hint)
        return mpi.launcher
    if context.scheduler == "none":
        return "local"
    if scheduler.kind:
        return launchers.default_name(scheduler)
    return launchers.default_name(scheduler.model_copy(update={"kind": context.scheduler}))


def _request(
    intent: Intent, site: Site, context: PlanContext, made: RankProgram, hosts: Sequence[str] | None
) -> LaunchRequest:
    allocation = context.allocation
    inside = hosts is None and (allocation is None or len(allocation.hosts) == intent.nodes)
    kind = site.nodes.get(made.layout.node.kind, NodeKind())
    return LaunchRequest(
        made.layout,
        site.scheduler,
        mpi=made.mpi,
        gpu_aware_mpi=made.mpi and kind.gpu.count > 0,
        inside=inside,
        args=(*site.scheduler.launcher_options, *intent.launcher_args),
        variables=tuple(sorted(n for n in context.environ if n in CARRIED or n.startswith(CARRIED_PREFIXES))),
    )


def _own_allocation(line: LaunchLine, head: BatchHead, own: Collection[str]) -> LaunchLine:
    """An srun outside of an allocation makes one: it is told what sbatch would have been told, and what was to be
    passed through as it is (`own`, by option)."""
    words = [d for d in head.directives if d[0].split("=")[0] in SHARED_BY_SRUN or d[0].split("=")[0] in own]
    given = {word.split("=")[0] for word in line.words}
    more = tuple(word for directive in words for word in directive if directive[0].split("=")[0] not in given)
    return replace(line, words=(line.words[0], *more, *line.words[1:]))


def _wrappers(intent: Intent, site: Site, made: RankProgram, context: PlanContext) -> tuple[Wrapper, ...]:
    """The image outermost, then the profilers: they must see the program, not the container's runtime."""
    found: list[Wrapper] = []
    if intent.container:
        found.append(
            containers.wrap(
                intent, site, made.layout, context.stack.change, program=made, stack_root=context.stack.folder,
                environ=context.environ,
            )
        )  # fmt: skip
    return (*found, *profilers.wrap(intent.profile, made.layout.ranks))


def rank_variables(intent: Intent, site: Site, kind: str) -> dict[str, str]:
    """The variables of every rank: the network interfaces of the node kind, the site's, the kind's, the person's own.

    NCCL_SOCKET_IFNAME and GLOO_SOCKET_IFNAME follow from the node kind's `nics` unless the site says otherwise.
    """
    node = site.nodes.get(kind, NodeKind())
    found: dict[str, str] = {}
    if node.nics:
        found["NCCL_SOCKET_IFNAME"] = ",".join(node.nics)
        found["GLOO_SOCKET_IFNAME"] = node.nics[0]
    return {**found, **site.run_variables, **site.launch.variables, **node.variables, **intent.variables}


def _head(intent: Intent, site: Site, layout: Layout, context: PlanContext) -> BatchHead:
    """The directives of the batch script, spare nodes included."""
    kind = site.nodes.get(layout.node.kind, NodeKind())
    options = intent.batch
    request = BatchRequest(
        layout,
        options,
        site.scheduler,
        queue=options.queue or kind.queue or site.scheduler.queue,
        constraint=options.constraint or kind.constraint,
        nodes=intent.nodes + intent.spare,
        output=options.output or ("{step}/batch-{index}.log" if options.array else "{step}/batch.log"),
        name=options.name or job_name(intent),
        node_local_disk=options.local_disk and bool(kind.local_disk),
    )
    return schedulers.get(context.scheduler, site.scheduler).head(request)


def job_name(intent: Intent) -> str:
    """The job's name where none is given: the program's, without folder and ending."""
    words = [w for w in intent.program if not w.startswith("-")]
    script = next((w for w in words if w.endswith(".py")), words[0] if words else "stackyard")
    return Path(script).stem or "stackyard"


def unused(given: Iterable[str], context: PlanContext) -> list[str]:
    """Of the fields of `BatchOptions` that a person has set for a launch, those that nothing will come of.

    Where nodes are in hand, or no scheduler gives them out, all of them; else those that srun cannot be told.
    """
    makes_one = context.scheduler == "slurm" and context.allocation is None
    return [name for name in given if not makes_one or name in ("array", "requeue", "output", "signal_s")]


def check_program(intent: Intent) -> None:
    """Raise InputError where the program is a script that is not there: no rank could start it.

    Programs without a folder in their name are looked up on the nodes, where the stack's PATH holds; what is inside an
    image cannot be seen from here.
    """
    _check_program(intent, None)
    word = intent.program[0]
    path = Path(intent.cwd or Path.cwd()) / word
    if (word.endswith(".py") or "/" in word) and not path.exists() and not intent.container:
        raise InputError(
            f"there is no {word} in {path.parent}", hint="name the program from the folder that you are in"
        )


def need_scheduler(context: PlanContext) -> None:
    """Raise MissingError where there is no scheduler to submit to."""
    if context.scheduler == "none":
        raise MissingError(
            "there is no scheduler here: neither sbatch, bsub, qsub nor flux was found",
            hint="`stackyard launch` runs here; for --dry-run, `scheduler.kind` in site.yaml names the cluster's",
        )
