"""Rules on sizes: tasks against nodes, launches against the job's request."""

from __future__ import annotations

import re
from collections.abc import Iterator

from stackyard.lint.launches import Launch
from stackyard.lint.rules.base import Case, Hit, rule
from stackyard.lint.rules.schedulers.jsrun import sets_of


@rule(
    "tasks-mismatch",
    why="With --ntasks, --ntasks-per-node is only an upper limit",
    example="#SBATCH --nodes=4\n#SBATCH --ntasks=8\n#SBATCH --ntasks-per-node=4",
    instead="#SBATCH --ntasks=16",
)
def tasks_mismatch(case: Case) -> Iterator[Hit]:
    """--ntasks that is not nodes times --ntasks-per-node."""
    request = case.script.request
    if case.script.scheduler != "slurm" or not (request.nodes and request.tasks and request.tasks_per_node):
        return
    product = request.nodes * request.tasks_per_node
    if request.tasks != product:
        yield Hit(
            request.line("ntasks"),
            f"{request.nodes} nodes x {request.tasks_per_node} tasks = {product}, but --ntasks is {request.tasks}",
            f"#SBATCH --ntasks={product}",
            "refused" if request.tasks > product else None,
        )


@rule(
    "more-tasks-than-job",
    why="A step cannot be larger than its job: srun fails with 'More processors requested than permitted'",
    example="#SBATCH --ntasks=4\nsrun -n 8 ./a.out",
    instead="#SBATCH --ntasks=8\nsrun -n 8 ./a.out",
)
def more_tasks_than_job(case: Case) -> Iterator[Hit]:
    """An srun or a flux run with more nodes, or an srun with more CPUs, than its job has."""
    request = case.script.request
    for launch in case.launches:
        nodes = launch.count("nodes") if launch.kind == "flux" == case.script.scheduler else None
        if nodes and request.nodes and nodes > request.nodes:
            text = f"flux run requests {nodes} nodes in a job of {request.nodes}"
            yield Hit(launch.line, text, f"flux run -N {request.nodes} ...", "refused")
        if (
            case.script.scheduler != "slurm"
            or launch.kind != "srun"
            or launch.given("overcommit", "jobid", "het-group")
            or launch.remote
        ):
            continue
        nodes, tasks = launch.count("nodes"), launch.count("ntasks")
        if nodes and case.nodes and nodes > case.nodes:
            yield Hit(launch.line, f"srun requests {nodes} nodes in a job of {case.nodes}",
                      f"srun -N {case.nodes} ...", "refused")  # fmt: skip
        elif tasks and request.all_tasks and not request.exclusive and "overcommit" not in request.values:
            have = request.all_tasks * (request.cpus_per_task or 1)
            need = tasks * (launch.count("cpus-per-task") or 1)
            roomy = request.values.keys() & {"cpus-per-gpu", "mincpus", "threads-per-core", "ntasks-per-core"}
            if need > have and tasks > request.all_tasks and not roomy:
                yield Hit(launch.line,
                          f"srun starts {tasks} tasks ({need} CPUs) in a job of {request.all_tasks} ({have} CPUs)",
                          f"#SBATCH --ntasks={tasks}", "note" if _whole_nodes(case) else None)  # fmt: skip


def _whole_nodes(case: Case) -> bool:
    """Whether a job probably has whole nodes although its head has no --exclusive."""
    request = case.script.request
    return (
        case.shares_nodes is False
        or request.values.get("mem") == "0"
        or bool(request.gpus_per_node)
        or bool(case.site is None and request.nodes and not request.cpus_per_task)
    )


@rule(
    "more-ranks-than-slots",
    why="Open MPI reads its slots from the scheduler and rejects more ranks than tasks",
    example="#SBATCH --ntasks=4\nmpirun -np 8 ./a.out",
    instead="#SBATCH --ntasks=8\nmpirun -np 8 ./a.out",
)
def more_ranks_than_slots(case: Case) -> Iterator[Hit]:
    """An mpirun with more ranks than the job has tasks; a note unless the MPI is known to be Open MPI."""
    request = case.script.request
    one = 1 if "cpus-per-task" in request.values and "nodes" not in request.values else None
    alone = (request.nodes or one) if not any(name.startswith("ntasks") for name in request.values) else None
    tasks = request.all_tasks or (alone if case.script.scheduler == "slurm" and not request.exclusive else None)
    for launch in case.launches:
        ranks = launch.count("np")
        if launch.kind != "mpirun" or not ranks or not tasks or ranks <= tasks or launch.via or launch.remote:
            continue
        if launch.given("oversubscribe", "host", "hostfile") or launch.word.endswith("mpt") or case.is_helper(launch):
            continue
        mapping = launch.get("map-by") or ""
        sure = "openmpi" in case.script.code.lower() and "overs" not in mapping.lower()
        yield Hit(launch.line, f"{launch.word} starts {ranks} ranks in a job of {tasks} tasks",
                  f"request {ranks} tasks, or start {tasks} ranks", None if sure else "note")  # fmt: skip


@rule(
    "idle-nodes",
    why="Idle nodes are charged like the others",
    example="#SBATCH --nodes=4\nsrun -N 2 -n 8 ./a.out",
    instead="srun -N 4 -n 16 ./a.out",
)
def idle_nodes(case: Case) -> Iterator[Hit]:
    """Steps that use at most 90 % of the nodes of the job, if no two steps run concurrently."""
    nodes, steps = case.script.request.nodes, [*case.steps, *_horovodruns(case)]
    if not nodes or nodes == 1 or not steps or len(steps) != len([x for x in case.launches if not x.via]):
        return
    if any(step.command.command.background or step.command.command.within("loop") or step.remote for step in steps):
        return
    used = [_used(case, step) for step in steps if not step.given("relative", "multi-prog", "hostfile", "rankfile")]
    if used and len(used) == len(steps) and all(used) and max(count or 0 for count in used) <= 0.9 * nodes:
        most = max(count or 0 for count in used)
        launch = steps[0]
        options = {"srun": f"srun -N {nodes} ...", "jsrun": f"jsrun -n {nodes} -r 1 ..."}
        yield Hit(launch.line, f"the job has {nodes} nodes, but its launches use {most}", options.get(launch.kind, ""))


def _horovodruns(case: Case) -> list[Launch]:
    """The horovodruns that name their hosts; others start all ranks on this node, which another rule reports."""
    return [
        launch for launch in case.launches if launch.kind == "horovodrun" and not launch.via and launch.given("hosts")
    ]


def _packed(case: Case, launch: Launch) -> int | None:
    """Sets that jsrun, which fills one node after the other, puts at least on each: the site's, or 20 cores, 4 GPUs."""
    kind, sets = case.node_kind, sets_of(launch)
    if sets is None or launch.doubtful:
        return None
    fit = [(kind.cores if kind and kind.cores else 20) // sets.cores] if sets.cores else []
    fit += [(kind.gpu.count if kind else 4) // sets.gpus] if sets.gpus else []
    return max(1, min(fit)) if fit and sets.cores is not None and sets.gpus is not None else None


def _used(case: Case, launch: Launch) -> int | None:
    """An upper limit of the nodes that a launch uses; None if unknown."""
    if launch.kind == "srun":
        if launch.count("nodes"):
            return launch.count("nodes")
        return launch.count("ntasks") if launch.count("ntasks") and not launch.doubtful else None
    if launch.kind == "jsrun":
        sets = launch.count("nrs")
        host = launch.count("rs_per_host") or (None if launch.given("rs_per_host") else _packed(case, launch))
        return -(-sets // host) if sets and host else sets
    if launch.kind == "aprun":
        cores = case.script.request.node_tasks
        depth = launch.count("depth") or (0 if launch.given("depth") else 1)
        per_node = launch.count("ppn") or (max(1, cores // depth) if cores and depth else None)
        ranks = launch.count("np") or (1 if not launch.given("np", "B") else None)
        return -(-ranks // per_node) if ranks and per_node else None
    if launch.kind == "mpirun" and launch.given("ppn") and not launch.doubtful:
        ranks, per_node = launch.count("np"), launch.count("ppn")
        return -(-ranks // per_node) if ranks and per_node else None
    if launch.kind == "horovodrun":
        return launch.count("np") if not launch.doubtful else None
    if launch.kind in ("mpirun", "ibrun") and "mpi4py.futures" not in launch.program:  # which starts its workers itself
        return launch.count("np") if not launch.doubtful else None
    return None


_CLUSTER = re.compile(
    r"\bray[-_ ]?(?:start|up|cluster|head|worker|init)|start[-_]?ray|ip_head|RAY_ADDRESS|redis_password"
    r"|dask[- _](?:scheduler|worker|ssh|mpi|cluster)|start-(?:all|master|worker)\.sh|spark-submit"
)
"""A cluster of Ray, Dask or Spark on the job's nodes: its driver runs on the first one, as it should."""
_DRIVERS = frozenset({"ray", "dask", "distributed", "dask_jobqueue", "pyspark", "parsl", "submitit"})


@rule(
    "only-first-node",
    why="A batch script runs on the first node only; a launcher such as srun or mpirun starts ranks on the others",
    example="#SBATCH --nodes=4\npython train.py",
    instead="srun python train.py",
    evidence=("script", "source"),
)
def only_first_node(case: Case) -> Iterator[Hit]:
    """A Python program without a launcher in a job of several nodes; a note unless its source is distributed."""
    from stackyard.lint.launches import python_program
    from stackyard.lint.source import source_of

    nodes = case.script.request.nodes
    ranks = [launch for launch in case.launches if launch.kind != "container"]  # which starts no ranks
    if not nodes or nodes == 1 or ranks or not case.script.scheduler or _CLUSTER.search(case.script.code):
        return
    inside = {id(launch.command): launch.program for launch in case.launches}
    for resolved in case.script.commands:
        program = python_program(inside.get(id(resolved), resolved.argv))
        if not program or not program[0].endswith(".py"):
            continue
        source = source_of(program, case.directories)
        if source and source.imports & _DRIVERS:
            continue
        sure = bool(source and (source.group_line or source.imports & {"horovod", "mpi4py"}))
        preset = resolved.environment.keys() & {"MASTER_ADDR", "WORLD_SIZE"}
        options = " ".join(program[1:])
        sure = sure or bool(not source and (preset or re.search(r"--(?:world[-_]size|num[-_]nodes|nnodes)\b", options)))
        sure = sure and not re.search(r"host_?file|machine_?file", case.script.code, re.I)  # it may start the others
        start = {"slurm": "srun", "lsf": "jsrun", "flux": "flux run"}.get(case.script.scheduler, "mpiexec")
        yield Hit(resolved.line, f"{program[0]} runs only on the first of {nodes} nodes",
                  f"{start} python {program[0]} ...", None if sure else "note")  # fmt: skip
        return


@rule(
    "mpirun-localhost",
    why="Ranks on localhost all run on the first node",
    example="#SBATCH --nodes=2\nmpirun -np 8 -H localhost:8 ./a.out",
    instead="mpirun -np 8 ./a.out",
)
def mpirun_localhost(case: Case) -> Iterator[Hit]:
    """An mpirun or horovodrun on localhost in a job of several nodes."""
    nodes = case.script.request.nodes
    for launch in case.launches:
        hosts = launch.get("host") or launch.get("hosts") or ""
        names = {host.split(":")[0] for host in hosts.split(",") if host}
        if (
            launch.kind in ("mpirun", "horovodrun")
            and nodes
            and nodes > 1
            and names
            and names <= {"localhost", "127.0.0.1"}
        ):
            yield Hit(launch.line, f"all ranks run on the first of {nodes} nodes", f"{launch.word} without {hosts}")


@rule(
    "horovodrun-hosts",
    why="Without hosts, horovodrun starts all ranks on this node; it detects hosts only under LSF",
    example="#SBATCH --nodes=2\nhorovodrun -np 8 python train.py",
    instead="horovodrun -np 8 -H node1:4,node2:4 python train.py",
)
def horovodrun_hosts(case: Case) -> Iterator[Hit]:
    """A horovodrun on several nodes without -H or --hostfile."""
    nodes = case.script.request.nodes
    for launch in case.launches:
        is_given = launch.given("hosts", "hostfile", "host-discovery-script", "check-build")
        one = re.search(r"-H (\w[\w.-]*)(?= |$)", " ".join(launch.words)) if launch.kind == "horovodrun" else None
        if one and (launch.count("np") or 1) > 1:
            yield Hit(launch.line, f"{one[1]} has one slot, and -np is {launch.count('np')}", f"-H {one[1]}:GPUS")
        if launch.kind != "horovodrun" or is_given or (nodes or 1) == 1 or case.script.scheduler == "lsf" or launch.via:
            continue
        yield Hit(launch.line, f"horovodrun without hosts uses only the first of {nodes} nodes",
                  "horovodrun -np N -H host1:G,host2:G ...")  # fmt: skip


@rule(
    "launcher-in-launcher",
    why="srun starts one mpirun per task, and each mpirun starts all ranks",
    example="#SBATCH --ntasks=8\nsrun mpirun -np 8 ./a.out",
    instead="srun ./a.out",
)
def launcher_in_launcher(case: Case) -> Iterator[Hit]:
    """An mpirun, horovodrun or srun that srun starts several times."""
    for launch in case.launches:
        outer = launch.ranks_of
        again = launch.kind == "srun" and not launch.given("jobid", "overlap", "nodelist", "ntasks", "nodes")
        starts = launch.kind in ("mpirun", "horovodrun") or again
        if not starts or not outer or outer.kind not in ("srun", "jsrun") or case.is_helper(launch):
            continue
        tasks = case.step(outer).tasks
        if tasks and tasks > 1:
            yield Hit(launch.line, f"{outer.kind} starts {tasks} copies of {launch.word}",
                      f"{outer.kind} {' '.join(launch.program[:2])} ...")  # fmt: skip
