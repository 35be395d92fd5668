"""Rules on the steps of a job of Slurm: those that wait for each other, run in turn, or are larger than meant."""

from __future__ import annotations

from collections.abc import Iterator

from stackyard.lint.launches import Launch
from stackyard.lint.rules.base import Case, Hit, rule
from stackyard.lint.shell.words import shown


@rule(
    "steps-in-turn",
    why="Since Slurm 20.11 a step takes all cores and memory of its nodes: the next one waits for it",
    example="for i in 1 2 3 4; do\n  srun -n1 ./work.sh $i &\ndone\nwait",
    instead="for i in 1 2 3 4; do\n  srun -n1 --exact --mem=4G ./work.sh $i &\ndone\nwait",
)
def steps_in_turn(case: Case) -> Iterator[Hit]:
    """Several background steps without ``--exact``, ``--overlap`` or a number of CPUs."""
    if case.script.scheduler != "slurm" or (case.version and case.version < (20, 11)):
        return
    steps = [launch for launch in case.script.launches if _takes_its_nodes(launch)]
    repeated = any(step.command.command.within("loop") for step in steps)
    nodes = [step.count("nodes") or case.nodes or 0 for step in steps]
    apart = bool(case.nodes) and not repeated and sum(nodes) <= (case.nodes or 0)  # each on nodes of its own
    doubt = repeated and any(node < (case.nodes or 0) for node in nodes)  # perhaps one for each node
    if steps and (len(steps) > 1 or repeated) and not apart and not doubt:
        yield Hit(steps[0].line, "these steps run one after the other: each takes all cores of its nodes",
                  "srun --exact -n N -c N --mem=... for each")  # fmt: skip


def _takes_its_nodes(launch: Launch) -> bool:
    """Whether a step in the background does not say which cores it needs: it gets all of its nodes."""
    own = ("exact", "exclusive", "overlap", "cpus-per-task", "relative", "nodelist", "jobid", "het-group", "pack-group")
    background = launch.kind == "srun" and launch.command.command.background and not launch.via and not launch.remote
    return background and not launch.given(*own) and not launch.doubtful


@rule(
    "steps-share-no-gpus",
    why="A step without GPUs of its own takes all of the job: the next one waits until it ends",
    example="#SBATCH --gres=gpu:2\nsrun --exact -n1 python a.py &\nsrun --exact -n1 python b.py &\nwait",
    instead="#SBATCH --gres=gpu:2\nsrun --exact -n1 --gres=gpu:1 python a.py &\n...",
)
def steps_share_no_gpus(case: Case) -> Iterator[Hit]:
    """Several steps at the same time in a job with GPUs, none of which says how many it needs."""
    names = (
        "gres",
        "gpus",
        "gpus-per-task",
        "gpus-per-node",
        "gpus-per-socket",
        "overlap",
        "tres-per-task",
        "nodelist",
    )
    if not case.script.request.names_gpus or case.script.scheduler != "slurm" or (case.nodes or 0) > 1:
        return
    steps = [launch for launch in case.script.launches if launch.kind == "srun" and launch.command.command.background
             and not launch.via and not launch.remote]  # fmt: skip
    repeated = any(step.command.command.within("loop") for step in steps)
    if steps and (len(steps) > 1 or repeated) and not any(step.given(*names) or step.doubtful for step in steps) \
            and any(step.given("exact", "exclusive", "cpus-per-task") for step in steps):  # fmt: skip
        yield Hit(
            steps[0].line, "each of these steps takes all GPUs of the job: they run in turn", "srun --gres=gpu:1 ..."
        )


@rule(
    "steps-one-by-one",
    "note",
    why="A step in the foreground ends before the next one starts: the cores of the other tasks stay idle",
    example="#SBATCH --ntasks=8\nfor i in 1 2 3; do\n  srun -n1 ./work $i\ndone",
    instead="#SBATCH --ntasks=8\nfor i in 1 2 3; do\n  srun -n1 --exact ./work $i &\ndone\nwait",
)
def steps_one_by_one(case: Case) -> Iterator[Hit]:
    """A loop over steps of one task, in a job with several tasks that nothing else starts."""
    tasks = case.script.request.all_tasks or 0
    steps = [step for step in case.steps if step.kind == "srun"]
    if tasks < 2 or not steps or len(steps) != len(case.steps) or any(step.doubtful or step.remote for step in steps):
        return
    alone = all(step.count("ntasks") == 1 and step.command.command.within("loop")
                and not step.command.command.background and not step.given("cpus-per-task", "nodelist")
                for step in steps)  # fmt: skip
    if alone and case.in_turn:
        yield Hit(steps[0].line, f"one of {tasks} tasks runs at a time", "srun -n1 --exact ... & in the loop, and wait")


@rule(
    "step-waits-for-step",
    why="The step in the background has all cores of its nodes until it ends: the other one waits for that",
    example="srun ./server &\nsrun ./client",
    instead="srun --overlap ./server &\nsrun --overlap ./client",
)
def step_waits_for_step(case: Case) -> Iterator[Hit]:
    """A step in the foreground, while one in the background has the same nodes."""
    own = ("exact", "exclusive", "overlap", "relative", "nodelist", "jobid", "het-group", "pack-group", "nodes")
    if case.script.scheduler != "slurm" or (case.version and case.version < (20, 11)):
        return
    steps = [
        launch for launch in case.script.launches if launch.kind == "srun" and not launch.via and not launch.remote
    ]
    waits = [waiting.line for waiting in case.script.commands if waiting.argv[:1] == ("wait",)]
    for at, first in enumerate(steps):
        command = first.command.command
        if not command.background or first.given(*own) or first.doubtful or command.within("function"):
            continue
        for later in steps[at + 1 :]:
            free = later.given("overlap", "jobid", "nodelist", "relative", "het-group", "exact") or later.doubtful
            waited = any(first.line < line < later.line for line in waits)
            apart = free or waited or later.command.command.background or later.command.command.blocks != command.blocks
            if not apart:
                text = f"this step waits until that of line {first.line} has ended"
                yield Hit(later.line, text, "srun --overlap for both")
                return


@rule(
    "step-fills-node",
    why="In a job with --exclusive and no number of tasks, srun -c starts as many tasks as fit into the whole nodes",
    example="#SBATCH --exclusive --cpus-per-task=4\nsrun -c 4 python train.py",
    instead="#SBATCH --exclusive --cpus-per-task=4\nsrun -n 1 -c 4 python train.py",
)
def step_fills_node(case: Case) -> Iterator[Hit]:
    """srun with cores for each task, and no number of tasks, in a job that has whole nodes."""
    values = case.script.request.values
    tasks = any(name.startswith("ntasks") for name in values)
    by_variable = "SRUN_CPUS_PER_TASK" in case.script.code
    for launch in case.steps if case.script.scheduler == "slurm" and "exclusive" in values and not tasks else ():
        own = launch.given("ntasks", "ntasks-per-node", "ntasks-per-gpu", "exclusive") or launch.doubtful
        if launch.kind == "srun" and not own and (launch.given("cpus-per-task") or by_variable):
            cores = launch.get("cpus-per-task") or values.get("cpus-per-task") or "its"
            text = f"srun starts a task for every {shown(cores)} cores of the nodes"
            yield Hit(launch.line, text, f"srun -n {case.nodes or 1} ...")
            return


@rule(
    "tasks-per-node-ignored",
    why="A step inherits the number of tasks of its job, and then ignores --ntasks-per-node: srun only warns",
    example="#SBATCH --nodes=2 --ntasks-per-node=8\nsrun --ntasks-per-node=1 ./setup.sh",
    instead="#SBATCH --nodes=2 --ntasks-per-node=8\nsrun -n 2 --ntasks-per-node=1 ./setup.sh",
)
def tasks_per_node_ignored(case: Case) -> Iterator[Hit]:
    """An srun with another ``--ntasks-per-node`` than the head, and no number of tasks."""
    tasks, nodes = case.script.request.all_tasks, case.nodes
    for launch in case.script.launches if case.script.scheduler == "slurm" and tasks and nodes else ():
        count = launch.count("ntasks-per-node")
        other = launch.given("ntasks", "ntasks-per-gpu", "jobid", "het-group") or launch.doubtful
        if (
            launch.kind == "srun"
            and count
            and not other
            and not launch.via
            and tasks
            and nodes
            and count * nodes != tasks
        ):
            at = launch.count("nodes") or nodes
            text = f"--ntasks-per-node={count} is ignored: this step starts the {tasks} tasks of the job"
            yield Hit(launch.line, text, f"srun -N {at} -n {at * count} --ntasks-per-node={count} ...")
