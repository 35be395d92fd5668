"""Makes a plan from an intent: layout, backend, wrappers, launch line and script head, with reasons and findings."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

from stackyard.core.errors import InputError
from stackyard.core.findings import Finding, refuse
from stackyard.core.pymodules import module_of
from stackyard.core.secrets import is_secret
from stackyard.inputs.sites.sitemodels import NodeKind, Site
from stackyard.inputs.stacks.naming import safe
from stackyard.launch.layout import nodes, placing
from stackyard.launch.layout.model import Layout, Node
from stackyard.launch.plan import (
    backends,
    containers,
    launchers,
    offline,
    profilers,
    removing,
    schedulers,
    terminals,
)
from stackyard.launch.plan.allocated import left_over, own_allocation
from stackyard.launch.plan.backends.source import fork_findings, keras_findings, linked_mpi
from stackyard.launch.plan.carried import is_carried
from stackyard.launch.plan.choosing import is_spectrum, launcher_name, of_kind, with_mpi, with_pmi
from stackyard.launch.plan.context import PlanContext
from stackyard.launch.plan.inherited import is_within_step
from stackyard.launch.plan.model import (
    BatchHead,
    BatchRequest,
    LaunchLine,
    LaunchRequest,
    Plan,
    RankProgram,
    Stage,
    Wrapper,
)
from stackyard.launch.plan.queues import queue_findings
from stackyard.launch.plan.runtimes import entering
from stackyard.launch.plan.schedulers.slurm_nodes import need
from stackyard.launch.plan.staging import check_stage, plan_stage, stack_variables
from stackyard.launch.request.intent import Intent


def make_plan(
    intent: Intent,
    site: Site,
    context: PlanContext,
    *,
    hosts: Sequence[str] | None = None,
    head: bool = False,
    program: Sequence[str] | None = None,
) -> Plan:
    """The whole plan. It reads only the program's imports, and looks up a container runtime on PATH.

    Args:
        hosts: exactly these hosts of the allocation, which are used in its own order; None: its first ones.
        head: also the head of a batch script.
        program: run this on every rank instead of the intent's program (the preflight does).

    Raises:
        InputError: the request contradicts itself, the site or the allocated nodes.
        MissingError: a program that the plan needs was not found.
    """
    hosts = in_order(intent.hosts or None if hosts is None else hosts, context)
    if intent.roles and program is None:
        from stackyard.launch.plan.roles import plan_roles  # late: it is made of the parts of this module

        return plan_roles(backends.settled(intent), site, context, hosts, head)
    _check_program(intent, program)
    if intent.start_method and not site.launch.probe:
        raise InputError("the probe sets the start method, and launch.probe is false in site.yaml",
                         hint="call multiprocessing.set_start_method in the program")  # fmt: skip
    intent = backends.settled(intent)
    node = node_of(intent, site, context)
    # where the ranks run: with nodes described by the site, its findings come before the allocation's
    layout = placing.plan_layout(intent, node, tuple(hosts) if hosts is not None else hosts_of(intent, context))
    if site.nodes:
        refuse(layout.findings)
    if context.allocation is not None and context.offer is not None:
        need(layout, context.offer, oversubscribe=intent.oversubscribe)
    refuse(layout.findings)
    # what starts them: the backend's program first, since the launch line depends on it
    name = launcher_name(intent, site.scheduler, context)
    rank_program = program_of(intent, layout, name, program)
    refuse(rank_program.findings)
    line = launchers.get(name).line(launch_request(intent, site, context, rank_program, hosts, name))
    wrappers = wrappers_of(intent, site, rank_program, context)  # outermost first; some are words of the launcher
    line = entering.entered(line, wrappers, name)
    agents = entering.agents(
        line, wrappers, rank_program, of_kind(site.scheduler, context), queued=context.allocation is None and not head
    )
    line = with_mpi(removing.line_without(line, removing.removed(intent.launcher_args)), name, context, head)
    if name == "srun" and context.allocation is None and not head:
        line = own_allocation(intent, site, head_of(intent, site, layout, context), line)
    # what each rank has: variables, files copied to the nodes
    plain, private = variables_of(intent, site, node.kind, context)
    stage = stage_of(intent, site, layout, context) if program is None else Stage()
    own = job_variables(layout, line, context) | stack_variables(intent, context)
    return Plan(
        layout, rank_program, line, wrappers, context.stack.change, variables={**own, **plain}, private=private,
        cwd=intent.cwd or str(Path.cwd()),
        head=head_of(intent, site, layout, context) if head else None,
        reasons=(*rank_program.reasons, *line.reasons, *(r for w in wrappers for r in w.reasons), *stage.reasons,
                 *agents),
        findings=(
            *layout.findings, *threads_replaced(intent, layout, context), *unused_part(layout, context),
            *rank_program.findings, *line.findings,
            *(f for w in wrappers for f in w.findings),
        ),
        stage=stage, shared=tuple(path for path in (context.stack.prefix, *_image(context, stage)) if path),
        agents=tuple(word for reason in agents for word in reason.words),
    )  # fmt: skip


def _image(context: PlanContext, stage: Stage) -> tuple[str, ...]:
    """The file of the stack's image, unless each node gets a copy of it."""
    image = context.stack.image
    return () if image in (path for _, path in stage.items) else (image,)


def node_of(intent: Intent, site: Site, context: PlanContext) -> Node:
    """The node as the site describes it, else as the scheduler reports it, else this machine."""
    if not site.nodes and not intent.node_kind and context.offer is not None and context.offer.node is not None:
        return context.offer.node
    return nodes.pick_kind(site, intent)


def _check_program(intent: Intent, program: Sequence[str] | None) -> None:
    if not intent.program and not program:
        raise InputError("no program given", hint="name it last: stackyard launch -N 2 train.py --epochs 3")


def hosts_of(intent: Intent, context: PlanContext) -> tuple[str, ...]:
    """The allocated hosts to use."""
    if context.allocation is None:
        if context.scheduler == "none" and intent.nodes > 1:
            hint = "use -N 1; on a cluster, set `scheduler.kind` in site.yaml"
            raise InputError(f"{intent.nodes} nodes requested, but no scheduler found: only this machine", hint=hint)
        return (os.uname().nodename,) if context.scheduler == "none" else ()
    have = context.allocation.hosts
    if intent.nodes > len(have):
        hint = f"use -N {len(have)}, or request a larger allocation"
        raise InputError(f"{intent.nodes} nodes requested, but this allocation has {len(have)}", hint=hint)
    return have[: intent.nodes]


_ALONE = backends.BackendContext()
_GLOO = "; or --controller gloo"


def program_of(
    intent: Intent,
    layout: Layout,
    launcher: str,
    program: Sequence[str] | None,
    role: backends.BackendContext = _ALONE,
) -> RankProgram:
    """The program as the backend runs it. The preflight's own program gets the backend's MPI wiring only.

    Args:
        role: has the role of the program, in a job with several.
    """
    backend_context = replace(role, in_container=bool(intent.container), launcher=launcher)
    if program is None:
        name, reason = backends.choose(intent)
        rank_program = backends.get(name).program(intent, layout, backend_context)
        if launcher == "local" and layout.ranks > 1 and backends.needs_mpi(intent):
            raise InputError(
                f"the program uses MPI, and the launcher local provides no PMI: each of the {layout.ranks} ranks would "
                "be rank 0 of 1",
                hint="leave out --launcher, or use --launcher mpirun or mpich" + _GLOO * (name == "horovod"),
            )
        over_mpi = name == "mpi" or rank_program.variables.get("HOROVOD_CONTROLLER") == "mpi"
        method = {"STACKYARD_START_METHOD": intent.start_method} if intent.start_method else {}
        return replace(
            rank_program, backend=name, variables={**rank_program.variables, **method},
            reasons=(*reason, *rank_program.reasons),
            findings=(*rank_program.findings, *fork_findings(intent, over_mpi=over_mpi),
                      *keras_findings(intent, layout.ranks)),
        )  # fmt: skip
    name, _ = backends.choose(intent)
    wired = name == "mpi" or (name == "horovod" and intent.controller != "gloo")
    plain = intent.model_copy(update={"program": tuple(program)})
    rank_program = backends.get("mpi" if wired else "any").program(plain, layout, backend_context)
    return rank_program


def in_order(hosts: Sequence[str] | None, context: PlanContext) -> Sequence[str] | None:
    """Hosts in the order of the allocation, in which srun numbers nodes and ranks."""
    if hosts is None or context.allocation is None:
        return hosts
    place = {host: number for number, host in enumerate(context.allocation.hosts)}
    return sorted(hosts, key=lambda host: place.get(host, len(place)))


def launch_request(
    intent: Intent, site: Site, context: PlanContext, program: RankProgram, hosts: Sequence[str] | None, launcher: str
) -> LaunchRequest:
    """The launcher's input: the tasks of a program, on all nodes of the allocation or on some of them."""
    allocation = context.allocation
    inside = hosts is None and (allocation is None or len(allocation.hosts) == intent.nodes)
    gpus = program.mpi and site.nodes.get(program.layout.node.kind, NodeKind()).gpu.count > 0
    scheduler = of_kind(site.scheduler, context)
    return LaunchRequest(
        program.layout,
        with_pmi(scheduler, context, linked_mpi(intent)) if launcher == "srun" and program.mpi else scheduler,
        mpi=program.mpi,
        gpu_aware_mpi=gpus,
        inside=inside,
        within_step=allocation is not None and is_within_step(context.environ),
        spectrum=gpus and launcher == "mpirun" and is_spectrum(context),
        args=removing.kept(intent.launcher_args),
        variables=tuple(sorted(filter(is_carried, context.environ))),
    )


def wrappers_of(intent: Intent, site: Site, program: RankProgram, context: PlanContext) -> tuple[Wrapper, ...]:
    """The wrappers, outermost first: terminal, image, profilers, which must trace the program and not the runtime."""
    wrappers = list(terminals.wrap(intent, program))
    if site.launch.offline:
        others = {*context.environ, *intent.passed, *rank_variables(intent, site, program.layout.node.kind)}
        wrappers.append(offline.wrap(others | context.stack.change.apply({}).keys()))
    if intent.container:
        wrappers.append(
            containers.wrap(
                intent, site, program.layout, context.stack.change, program=program, stack_root=context.stack.folder,
                environ=context.environ,
                passed=(*intent.passed, *rank_variables(intent, site, program.layout.node.kind)),
            )
        )  # fmt: skip
    return (*wrappers, *profilers.wrap(intent.profile, program.layout, program.ranks_per_task))


def stage_of(intent: Intent, site: Site, layout: Layout, context: PlanContext) -> Stage:
    """The files to copy to the nodes before the ranks start. Raises InputError."""
    return plan_stage(intent, site.nodes.get(layout.node.kind, NodeKind()), context)


def rank_variables(intent: Intent, site: Site, kind: str) -> dict[str, str]:
    """The variables of every rank: the network interfaces of the node kind, the site's, the kind's, your own.

    NCCL_SOCKET_IFNAME and GLOO_SOCKET_IFNAME follow from the node kind's `nics` unless the site sets them.
    """
    node = site.nodes.get(kind, NodeKind())
    variables: dict[str, str] = {}
    if node.nics:
        variables["NCCL_SOCKET_IFNAME"] = ",".join(node.nics)
        variables["GLOO_SOCKET_IFNAME"] = node.nics[0]
    return {**variables, **site.run_variables, **site.launch.variables, **node.variables, **intent.variables}


def job_variables(layout: Layout, line: LaunchLine, context: PlanContext) -> dict[str, str]:
    """Additional variables of a job: PYTHONFAULTHANDLER, unless it is set, and SLURM_CPUS_PER_TASK.

    Programs read the latter; a launcher without this option neither sets it nor passes it on.
    """
    variables = {} if "PYTHONFAULTHANDLER" in context.environ else {"PYTHONFAULTHANDLER": "1"}
    name = context.batch.cpus_variable
    if name not in context.environ or "-c" in line.words:
        return variables
    return {**variables, name: str(layout.cores_per_rank * layout.smt)}


def threads_replaced(intent: Intent, layout: Layout, context: PlanContext) -> tuple[Finding, ...]:
    """A note if your shell's OMP_NUM_THREADS differs from that of the ranks."""
    value = context.environ.get("OMP_NUM_THREADS", "")
    if value in ("", str(layout.threads)) or intent.threads_per_rank or "OMP_NUM_THREADS" in intent.variables:
        return ()
    return (
        Finding(
            "threads-replaced", "note", f"OMP_NUM_THREADS={value} of your shell is replaced by {layout.threads}",
            "one thread per core of a rank", f"use --threads-per-rank {value}, or --env OMP_NUM_THREADS={value}",
        ),
    )  # fmt: skip


def unused_part(layout: Layout, context: PlanContext) -> tuple[Finding, ...]:
    """Warnings about unused parts of the allocation."""
    return left_over(layout, context.environ) if context.allocation is not None else ()


def variables_of(intent: Intent, site: Site, kind: str, context: PlanContext) -> tuple[dict[str, str], dict[str, str]]:
    """The variables of every rank, separated into public ones and those that may be secret."""
    every = rank_variables(intent, site, kind)
    for name in intent.passed:
        if name not in intent.variables:
            if name not in context.environ:
                hint = f"export {name}=..., or pass --env {name}=...; values that may be secret are never recorded"
                raise InputError(f"{name} is not set: the job passes its value to every rank", hint=hint)
            every[name] = context.environ[name]
    private = {name for name, value in every.items() if name in intent.passed or is_secret(name, value)}
    return {k: v for k, v in every.items() if k not in private}, {k: v for k, v in every.items() if k in private}


def head_of(intent: Intent, site: Site, layout: Layout, context: PlanContext) -> BatchHead:
    """The directives of the batch script, spare nodes included; a queue that rejects the job is a finding."""
    kind = site.nodes.get(layout.node.kind, NodeKind())
    words = intent.batch.scheduler_args
    options = intent.batch.model_copy(update={"scheduler_args": removing.kept(words)})
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
        disk_constraint=kind.local_disk_constraint if options.local_disk else "",
        least_nodes=intent.least_nodes,
        restarts=intent.restarts,
    )
    head = schedulers.get(context.scheduler, site.scheduler).head(request)
    head = removing.head_without(head, removing.removed(words))
    return replace(head, findings=(*head.findings, *queue_findings(request)))


def job_name(intent: Intent) -> str:
    """The default job name: the program's, without directory, package and extension, in the syntax of module names.

    With several roles, their names.
    """
    if intent.roles:
        return safe("-".join(intent.roles))
    if module := module_of(intent.program):
        return safe(module.removesuffix(".__main__").split(".")[-1]) or "stackyard"
    words = [w for w in intent.program if not w.startswith("-")]
    script = next((w for w in words if w.endswith(".py")), words[0] if words else "stackyard")
    return safe(Path(script).stem) or "stackyard"


def unused(names: Iterable[str], context: PlanContext) -> list[str]:
    """The fields of `BatchOptions` that were set but have no effect on a launch.

    Inside an allocation, or without a scheduler, all of them; else those that srun has no option for.
    """
    makes_one = context.batch.makes_allocation and context.allocation is None
    return [name for name in names if not makes_one or name in ("array", "requeue", "output", "signal_s")]


def check_program(intent: Intent, stack_image: str = "") -> None:
    """Raise InputError if the program's script, or a file to stage, does not exist.

    Programs without a directory in their name are looked up on the nodes, with the stack's PATH; files inside an image
    are not visible here.
    """
    check_stage(intent, stack_image)
    for name in intent.roles:
        _check_script(intent.of_role(name))
    if not intent.roles:
        _check_script(intent)


def _check_script(intent: Intent) -> None:
    _check_program(intent, None)
    word = intent.program[0]
    if word == "-m":
        _check_module(intent.program)
        return
    path = Path(intent.cwd or Path.cwd()) / word
    if (word.endswith(".py") or "/" in word) and not path.exists() and not intent.container:
        raise InputError(
            f"{word} not found in {path.parent}", hint="give the program's path relative to the current directory"
        )
    if path.is_dir() and not intent.container:
        raise InputError(
            f"cannot run {word}: it is a directory", hint=f"name the program in it: {Path(word) / 'train.py'}"
        )


def _check_module(program: Sequence[str]) -> None:
    """Raise InputError if ``-m`` is not followed by a module name; whether it exists is known on the nodes only."""
    name = program[1] if len(program) > 1 else ""
    if not name or name.endswith(".py") or "/" in name or name.startswith("-"):
        said = f"{name} is not the name of a module" if name else "no module given"
        near = name.removesuffix(".py").strip("./").replace("/", ".")
        raise InputError(f"-m: {said}", hint=f"use -m {near or 'package.module'}, or give a script without -m")
