"""The sizes of a script's launch as those of an intent: nodes, ranks, cores and GPUs."""

from __future__ import annotations

from dataclasses import replace

from stackyard.core.findings import counted
from stackyard.lint.fix.making import IntentDraft
from stackyard.lint.launches import AGENTS, RANKS, Launch
from stackyard.lint.request import OTHER_CORES, TASK_OPTIONS, number
from stackyard.lint.rules.base import Case
from stackyard.lint.rules.resources import launch_gpus
from stackyard.lint.rules.schedulers.jsrun import Sets, sets_of
from stackyard.lint.rules.torch import nnodes, ranks_per_agent
from stackyard.lint.shell.words import shown

_COUNTS = {
    *("nodes", "ntasks", "ntasks-per-node", "cpus-per-task", "np", "ppn", "nrs", "rs_per_host", "tasks_per_rs"),
    *("cpu_per_rs", "cores-per-task", "tasks-per-node", "depth", "nnodes", "num_machines", "num_nodes"),
}
_RANKS = ("ntasks", "np", "ppn", "ntasks-per-node", "ntasks-per-gpu", "map-by", "het-group", "hostfile", "host")
_GPUS = {"gpus-per-node", "gpus-per-task", "gpu_per_rs", "gpus", "gres"}


def sizes(case: Case, making: IntentDraft, launch: Launch | None, line: int, *, whole: bool = False) -> None:
    """Nodes, ranks on each, their cores and GPUs; a note for each number that the script does not determine.

    A launch that starts no ranks itself (a container) is one process, as a program without any launch is. `whole`: it
    uses the job in its own way, as Ray does, or is unknown, so that the head's ranks do not apply.
    """
    outer = launch
    if launch and not _starts_ranks(case, launch):
        launch = None
    launch = launch and replace(launch, doubtful=False)  # a program in a variable is taken as the program
    inner, total = _agent(case, outer if launch else None), None if whole else _all_ranks(case, launch)
    sets = sets_of(launch) if launch else None
    nodes = _nodes(case, making, launch, inner, total, line)
    per_node = _per_node(case, launch, nodes, total)
    cores, gpus = _cores(case, launch, nodes, per_node), _gpus(case, launch, total)
    if whole and gpus is None:
        gpus = next((launch_gpus(case, other) for other in case.launches if other.kind == "ray"), None)
    if sets:
        nodes, cores, gpus = _of_sets(making, sets, nodes)
        host = sets.host or _even(sets, nodes)
        per_node = host * sets.ranks if host else per_node
        if host and not sets.host and nodes and nodes > 1:
            making.note(
                line, f"jsrun without -r fills one node after the other: here {counted(per_node or 0, 'rank')} on each"
            )
    if inner:
        per_node, cores = _of_agent(case, making, inner, launch, nodes, cores, gpus)
    if launch:
        _note_filling(case, making, launch, nodes, per_node, line)
    cores = cores or _cores_of_gpus(making, gpus, per_node)
    making.values["nodes"], making.values["ranks_per_node"] = nodes, per_node
    making.values["cores_per_rank"] = cores or None
    _check_ranks(making, total if launch and inner is None else None, inner is not None, line)
    if not whole or all(other.kind != "ray" for other in case.launches):
        _check_cores(case, making, line)
    _share_gpus(making, line, gpus, per_node, outer)
    _threads(making, outer)
    for starter in (outer, inner if inner is not outer else None):
        _unknown_counts(making, starter, line)


def _cores_of_gpus(making: IntentDraft, gpus: int | None, per_node: int | None) -> int | None:
    """The cores of a rank by --cpus-per-gpu, which sbatch rejects together with a number per task."""
    value = making.script.request.values.get("cpus-per-gpu")
    if not value:
        return None
    passed = making.batch.get("scheduler_args", ())
    making.batch["scheduler_args"] = tuple(word for word in passed if "--cpus-per-gpu=" not in word)
    count = number(value)
    if count and gpus and per_node and count * gpus % per_node == 0:
        return count * gpus // per_node
    making.notes.append(f"--cpus-per-gpu={value}, which sbatch does not take beside cores_per_rank: check that")
    return None


def _note_filling(
    case: Case, making: IntentDraft, launch: Launch, nodes: int | None, per_node: int | None, line: int
) -> None:
    """Note ranks that aprun, mpirun or flux run would pack on the first nodes, but the job file spreads over all."""
    slots = case.script.request.node_tasks or case.script.request.node_cpus
    placed = launch.given("ppn", "hostfile", "map-by", "host", "depth", "rankfile", "nodes")
    if launch.kind not in ("mpirun", "aprun", "flux") or placed or not launch.given("np", "ntasks") or (nodes or 1) < 2:
        return
    if per_node and (launch.kind == "flux" or per_node != slots):
        making.note(line, f"{launch.word} fills one node after the other: here {counted(per_node, 'rank')} on each")


def _unknown_counts(making: IntentDraft, launch: Launch | None, line: int) -> None:
    for option in launch.reading.options if launch else ():
        if option.name in _COUNTS and number(option.value) is None:
            making.note(line, f"{option.name} is {shown(option.value)}: check nodes, ranks_per_node and cores_per_rank")


def _starts_ranks(case: Case, launch: Launch) -> bool:
    return any(member.kind in (*RANKS, *AGENTS, "horovodrun") for member in case.chain(launch))


def _agent(case: Case, launch: Launch | None) -> Launch | None:
    return next((member for member in case.chain(launch) if member.kind in AGENTS), None) if launch else None


def _nodes(
    case: Case, making: IntentDraft, launch: Launch | None, inner: Launch | None, total: int | None, line: int
) -> int | None:
    request = case.script.request
    step = case.step(launch).nodes if launch and launch.given("nodes", "nodelist") else None
    if launch and launch.kind == "srun" and step and step != request.nodes and not launch.given("ntasks"):
        _note_inherited(making, launch, line)
    if launch and launch.kind == "flux" and launch.given("nodes"):
        step = launch.count("nodes")
    if inner and request.nodes and nnodes(inner) == request.nodes:
        step = None  # one agent for each node, started in a loop
    if launch and launch.kind == "mpirun" and total and launch.count("ppn") and launch.given("np"):
        step = -(-total // (launch.count("ppn") or 1))
    if step is None and total and request.nodes and total < request.nodes and inner is None:
        step = total
    if step and request.nodes and step != request.nodes:
        making.note(line, f"the job has {counted(request.nodes, 'node')}, and this launch uses {step}: nodes is {step}")
    nodes = step or request.nodes
    if request.scheduler == "slurm" and nodes and request.tasks and request.tasks < nodes:
        making.note(line, f"sbatch gives {counted(request.tasks, 'task')} no more nodes: nodes is {request.tasks}")
        nodes = request.tasks
    per_node = request.tasks_per_node
    if nodes is None and request.tasks and per_node and request.tasks % per_node == 0:
        return request.tasks // per_node
    if nodes is None and total:
        together = "hosts=1" in (request.values.get("R") or "").replace(" ", "")
        if total > 1 and not together:
            making.note(line, f"{total} ranks on nodes that the scheduler chooses: nodes is 1")
        return 1
    if nodes is None:
        making.note(line, "the number of nodes is not in the script: nodes is 1")
    return nodes


def _note_inherited(making: IntentDraft, launch: Launch, line: int) -> None:
    """Note an srun on a part of the job without sizes, which inherits SLURM_NTASKS and SLURM_NNODES (srun manual)."""
    tasks = making.script.request.values.get("ntasks")
    if tasks or not launch.given("nodes"):
        inherited = f"--ntasks={tasks}" if tasks else "the number of nodes"
        making.note(line, f"srun inherits {inherited} of the head: check nodes and ranks_per_node")


def _all_ranks(case: Case, launch: Launch | None) -> int | None:
    """The total number of ranks: of the launch, else of the head, else one."""
    request = case.script.request
    if launch is None:
        return 1
    if launch.given("ntasks", "np", "nrs") or launch.kind == "jsrun":
        return _step_tasks(case, launch)
    if launch.kind in AGENTS:
        return None if request.tasks else 1
    if launch.kind == "mpirun" and _ppr(launch):
        per_node = launch.count("ppn")
        return per_node * case.nodes if per_node and case.nodes else None
    own = _step_tasks(case, launch) or request.all_tasks
    unsaid = request.values.keys() & TASK_OPTIONS or launch.kind in ("mpirun", "ibrun")  # as many as it has slots
    unsaid = unsaid or (launch.kind == "srun" and "nodes" in request.values and not launch.given("nodes"))
    return own or (None if unsaid else 1)


def _ppr(launch: Launch) -> bool:
    """Whether Open MPI's mapping sets the number of ranks on each node, socket or other resource."""
    return (launch.get("map-by") or "").lower().startswith("ppr:")


def _step_tasks(case: Case, launch: Launch) -> int | None:
    if launch.kind == "flux":
        nodes, per_node = launch.count("nodes"), launch.count("tasks-per-node")
        if launch.given("ntasks"):
            return launch.count("ntasks")
        return nodes * (per_node or 1) if nodes else (None if launch.given("nodes", "cores", "tasks-per-core") else 1)
    if launch.kind == "ibrun" and launch.count("ppn") and case.nodes and not launch.given("np"):
        return case.nodes * (launch.count("ppn") or 1)
    if launch.kind == "aprun" and not launch.given("np", "B"):
        return 1
    if launch.kind in ("horovodrun", "ibrun", "aprun"):
        return launch.count("np")
    return case.step(launch).tasks


def _per_node(case: Case, launch: Launch | None, nodes: int | None, total: int | None) -> int | None:
    if launch is None:
        return 1
    step, request = case.step(launch), case.script.request
    if launch.kind == "aprun" and total == 1:
        return 1
    own = launch.given("ntasks", "np") or launch.kind == "flux"
    ranks = _step_tasks(case, launch) if own else None
    if launch.kind in ("srun", "mpirun", "ibrun") and not launch.given(*_RANKS):
        ranks = request.tasks  # beside it, --ntasks-per-node and ptile are the most that a node may have
    if ranks and nodes and not launch.given("ppn"):
        return ranks // nodes if ranks % nodes == 0 else None
    if step.per_node:
        return step.per_node
    per_node = launch.count("ppn") or launch.count("tasks-per-node")
    even = total // nodes if total and nodes and total % nodes == 0 else None
    if per_node or launch.given("np", "nrs") or _ppr(launch):
        return per_node
    sizeless = launch.kind in ("mpirun", "ibrun", "aprun") and not launch.given("ppn")
    return (request.node_tasks if sizeless else None) or even


def _cores(case: Case, launch: Launch | None, nodes: int | None, per_node: int | None) -> int | None:
    request = case.script.request
    if launch and launch.kind == "srun":
        return case.step(launch).cpus
    if launch and launch.kind == "flux":
        return launch.count("cores-per-task") or (None if launch.given("exclusive") else 1)
    if launch and launch.kind in ("mpirun", "aprun") and launch.count("depth"):
        return launch.count("depth")
    if per_node and (launch is None or launch.kind in AGENTS):  # all cores of the job on its node
        cores = _node_cores(case)
        return cores // per_node if cores else None
    if not request.cores or not per_node:
        return request.cpus_per_task
    count = max(1, request.cores // ((request.nodes or nodes or 1) * per_node))
    return count if count > 1 or request.cpus_per_task else None


def _node_cores(case: Case) -> int | None:
    """The cores of the job on a node: those of its tasks, of which each has one unless the head says more."""
    request = case.script.request
    if request.node_cpus:
        return request.node_cpus
    if request.values.keys() & OTHER_CORES or not (request.cpus_per_task or request.node_tasks):
        return request.cpus_per_task
    return (request.cpus_per_task or 1) * (request.node_tasks or 1)


def _gpus(case: Case, launch: Launch | None, total: int | None) -> int | None:
    request = case.script.request
    if launch and launch.kind == "srun":
        per_task, per_node = (
            launch.count("gpus-per-task"),
            case.step(launch).per_node or _per_node(case, launch, 1, total),
        )
        count = per_task * per_node if per_task and per_node else launch_gpus(case, launch)
        return count or (request.gpus_per_task * per_node if request.gpus_per_task and per_node else count)
    if launch and launch.kind == "flux":
        tasks, nodes, per_task = (
            _step_tasks(case, launch),
            launch.count("nodes") or request.nodes or 1,
            launch.count("gpus-per-task"),
        )
        return (
            per_task * tasks // nodes
            if per_task and tasks and nodes and tasks % nodes == 0
            else launch.count("gpus-per-node")
        )
    return request.node_gpus


def _of_sets(making: IntentDraft, sets: Sets, nodes: int | None) -> tuple[int | None, int | None, int | None]:
    cores = sets.cores // sets.ranks if sets.cores else None
    host = sets.host or _even(sets, nodes)
    gpus = sets.gpus * host if sets.gpus is not None and host else None
    needed = -(-sets.count // sets.host) if sets.count and sets.host else nodes
    if needed != nodes and nodes:
        making.notes.append(f"the job has {counted(nodes, 'node')}, and this launch uses {needed}: nodes is {needed}")
    if sets.cores and sets.cores % sets.ranks:
        making.notes.append(f"{sets.cores} cores of a resource set for {sets.ranks} ranks: check cores_per_rank")
    if sets.count and sets.host and sets.count % sets.host:
        making.notes.append(f"{sets.count} resource sets are not a multiple of {sets.host} on each node")
    return needed, cores, gpus


def _even(sets: Sets, nodes: int | None) -> int | None:
    """Sets on each node for a jsrun without -r, if all nodes can have the same number."""
    return sets.count // nodes if sets.count and nodes and sets.count % nodes == 0 else None


def _of_agent(
    case: Case,
    making: IntentDraft,
    inner: Launch,
    launch: Launch | None,
    nodes: int | None,
    cores: int | None,
    node_gpus: int | None,
) -> tuple[int | None, int | None]:
    """Ranks on each node and their cores under torchrun, accelerate or deepspeed."""
    ranks = ranks_per_agent(inner) or node_gpus
    if inner.ranks_of is None:  # in the batch script itself: all cores of the job on its node
        cores = _node_cores(case)
    if ranks_per_agent(inner) is None and ranks:
        making.note(inner.line, f"the ranks of {inner.kind} are not in the script: one for each of {ranks} GPUs")
    elif ranks is None:
        making.note(inner.line, f"the ranks of {inner.kind} on each node are not in the script: check ranks_per_node")
    if (agents := nnodes(inner)) and nodes and agents != nodes:
        making.note(inner.line, f"{inner.kind} expects {agents} nodes: nodes is {nodes}")
    alone = inner.ranks_of is None and not inner.remote and not inner.command.command.within("loop")
    if alone and (nodes or 1) > 1 and inner.kind != "deepspeed":
        making.note(inner.line, f"{inner.kind} starts on the first node only, the job file's on each of {nodes}")
    per_node = case.step(inner.ranks_of).per_node if inner.ranks_of else 1
    if per_node and per_node > 1:
        making.note(inner.line, f"{per_node} {inner.kind} agents on each node: the job file has the ranks of one")
    return ranks, cores // ranks if cores and ranks else cores


def _check_ranks(making: IntentDraft, ranks: int | None, agent: bool, line: int) -> None:
    nodes, per_node = making.values["nodes"], making.values["ranks_per_node"]
    if per_node is None and not agent:
        text = f"{ranks} ranks on {nodes} nodes" if ranks else "the ranks on each node are not in the script"
        making.note(line, f"{text}: check ranks_per_node and cores_per_rank")
    elif ranks and nodes and per_node and nodes * per_node != ranks:
        making.note(line, f"{ranks} ranks are wanted; the job file starts {nodes} x {per_node}")


def _check_cores(case: Case, making: IntentDraft, line: int) -> None:
    """Note cores that the head requests but the job file's ranks do not use."""
    nodes, per_node, cores = (making.values[name] for name in ("nodes", "ranks_per_node", "cores_per_rank"))
    requested = case.script.request.cores
    if not per_node or case.script.request.exclusive:
        slots = case.script.request.values.get("n")
        if case.script.scheduler == "lsf" and slots and not case.nodes and nodes in (None, 1):
            making.notes.append(f"-n {slots} on whole nodes whose number is not in the script: nodes is 1")
        return
    if cores is None:
        need = f"the head requests {counted(requested, 'core')}" if requested else "the script gives its ranks no cores"
        making.note(line, f"{need}, the job file as many as the site gives each rank: check cores_per_rank")
    elif requested is not None and (nodes or 1) * per_node * cores != requested:
        product = f"{nodes or 1} x {counted(per_node, 'rank')} x {counted(cores, 'core')}"
        making.note(
            line, f"the head requests {counted(requested, 'core')}, the job file {product}: check cores_per_rank"
        )


def _share_gpus(making: IntentDraft, line: int, gpus: int | None, per_node: int | None, launch: Launch | None) -> None:
    have = making.script.request.node_gpus
    if gpus is not None and have is not None and gpus != have:
        making.note(line, f"the head requests {counted(have, 'GPU')} on each node, the launch {gpus}")
    if gpus is None and launch and launch.given(*_GPUS):
        making.note(line, "the GPUs of the launch are not a plain number for each node: check gpus_per_rank")
    elif gpus is None and making.script.request.names_gpus:
        making.notes.append("the GPUs of the head are not a plain number for each node: check gpus_per_rank")
    elif gpus is None:
        making.notes.append("GPUs are not requested in the script: gpus_per_rank follows from the site's nodes")
    elif not per_node or gpus % per_node:
        making.note(line, f"{gpus} GPUs on each node for {per_node or 'some'} ranks: check gpus_per_rank")
    else:
        making.values["gpus_per_rank"] = gpus // per_node


def _threads(making: IntentDraft, launch: Launch | None) -> None:
    threads = launch.environment.get("OMP_NUM_THREADS") if launch else None
    if not launch or not threads or not threads.text.isdecimal() or not int(threads.text):
        return
    if any(
        kind == "function" and (number, kind) not in launch.command.command.blocks for number, kind in threads.blocks
    ):
        return  # another function's
    if int(threads.text) > (making.values["cores_per_rank"] or int(threads.text)):
        making.note(threads.line, f"{threads.text} threads on fewer cores: one thread for each core")
    else:
        making.values["threads_per_rank"] = int(threads.text)
