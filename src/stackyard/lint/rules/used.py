"""Rules on unused or overcommitted resources: cores that ranks must share, waiting ranks, GPUs of jsrun."""

from __future__ import annotations

import re
from collections.abc import Iterator

from stackyard.core.findings import counted
from stackyard.lint.launches import AGENTS, Launch, python_program
from stackyard.lint.request import number
from stackyard.lint.rules.base import Case, Hit, is_alone, rule
from stackyard.lint.rules.schedulers.jsrun import sets_of
from stackyard.lint.rules.torch import ranks_per_agent
from stackyard.lint.source import source_of


@rule(
    "ranks-share-a-core",
    why="Without --cpus-per-task a task has one core: all ranks that its torchrun starts, and their loaders, share it",
    example="#SBATCH --ntasks-per-node=1\nsrun torchrun --nproc_per_node=4 train.py",
    instead="#SBATCH --ntasks-per-node=1\n#SBATCH --cpus-per-task=32\nsrun -c 32 torchrun --nproc_per_node=4 train.py",
)
def ranks_share_a_core(case: Case) -> Iterator[Hit]:
    """An agent that starts more ranks than its task has cores; a note on whole nodes of a queue, under PBS and LSF."""
    if case.script.request.exclusive or case.script.is_filled_in or case.script.foreign:
        return
    if case.script.scheduler != "slurm":
        yield from _more_ranks_than_slots(case)
        return
    for launch in case.launches:
        own = ranks_per_agent(launch) if launch.kind in AGENTS and not launch.remote else None
        ranks = own or (_by_gpus(case, launch) if launch.kind in AGENTS and not launch.remote else None)
        cores = cores_of(case, launch.ranks_of) if ranks and ranks > 1 else None
        if cores is None or not ranks or cores >= ranks or launch.doubtful:
            continue
        text = f"{launch.kind} starts {ranks} ranks in a task with {counted(cores, 'core')}"
        doubt = case.shares_nodes is False or (own is None and launch.kind == "accelerate")  # its own file may say it
        remedy = f"#SBATCH --cpus-per-task={8 * ranks}" + (f"\nsrun -c {8 * ranks} ..." if launch.ranks_of else "")
        yield Hit(launch.line, text, remedy, "note" if doubt else None)


@rule(
    "one-core-with-gpu",
    why="Without --cpus-per-task a task has one core, unless the queue has DefCpuPerGPU: reading data, the GPU waits",
    example="#SBATCH --ntasks-per-node=4 --gpus-per-node=4\nsrun python train.py",
    instead="#SBATCH --ntasks-per-node=4 --gpus-per-node=4 --cpus-per-task=8\nsrun -c 8 python train.py",
)
def one_core_with_gpu(case: Case) -> Iterator[Hit]:
    """A Python program that has GPUs and one core in each task; a note for one GPU, and on whole nodes of a queue."""
    request, script = case.script.request, case.script
    if (
        script.scheduler != "slurm"
        or request.exclusive
        or script.is_filled_in
        or script.foreign
        or not request.node_gpus
    ):
        return
    starts: list[tuple[Launch | None, tuple[str, ...], int]] = [
        (step, case.python(step) or (), step.line)
        for step in case.steps if step.kind == "srun" and not step.doubtful and case.innermost(step)
    ]  # fmt: skip
    if not case.launches:
        starts = [(None, python_program(command.argv) or (), command.line) for command in script.commands]
    for step, program, line in starts:
        if program and program[0].endswith(".py") and cores_of(case, step) == 1 and _may_load_data(case, program):
            remedy = "#SBATCH --cpus-per-task=8" + ("\nsrun -c 8 ..." if step else "")
            text = f"{'each task of ' if step else ''}{program[0]} has GPUs and one core"
            small = request.node_gpus == 1 and (step is None or (case.step(step).tasks or 1) == 1)
            yield Hit(line, text, remedy, "note" if case.shares_nodes is False or small else None)
            return


def _may_load_data(case: Case, program: tuple[str, ...]) -> bool:
    """Whether a program may have loaders; not where its source is found and has no framework for training."""
    source = source_of(program, case.directories)
    frameworks = {"torch", "tensorflow", "keras", "jax", "lightning", "pytorch_lightning", "mxnet", "paddle", "horovod"}
    return source is None or bool(source.imports & {*frameworks, "transformers", "accelerate", "fastai", "monai"})


def _more_ranks_than_slots(case: Case) -> Iterator[Hit]:
    """An agent in the script of PBS or LSF with more ranks than the job has cores on its node."""
    for launch in case.launches:
        ranks = ranks_per_agent(launch) if launch.kind in AGENTS and not launch.remote else None
        have = case.slots if launch.ranks_of is None else None
        if ranks and have and have < ranks and not launch.doubtful:
            text = f"{launch.kind} starts {ranks} ranks in a job with {counted(have, 'core')} on its node"
            reason = "Where the site binds a job to its cores, all ranks and their loaders share these"
            yield Hit(launch.line, text, f"request {8 * ranks} cores", "note", reason)


def _by_gpus(case: Case, launch: Launch) -> int | None:
    """The ranks of an agent that starts one for each GPU it sees, if the head says how many these are."""
    name = {"torchrun": "nproc_per_node", "deepspeed": "num_gpus", "accelerate": "num_processes"}[launch.kind]
    text = launch.get(name)
    if text is None and (launch.kind == "torchrun" or launch.given("config_file", "hostfile", "include", "exclude")):
        return None
    if text is not None and not re.search(r"^(?:gpu|auto)$|nvidia-smi|rocm-smi|CUDA_VISIBLE_DEVICES", text):
        return None
    return case.script.request.node_gpus


def cores_of(case: Case, outer: Launch | None) -> int | None:
    """The cores of a task of a launch, or of the script itself; None if something else than -c determines them."""
    request = case.script.request
    others = {"cpus-per-gpu", "mincpus", "tres-per-task", "cores-per-socket", "threads-per-core", "overcommit"}
    if request.values.keys() & others or "SRUN_CPUS_PER_TASK" in case.script.code:
        return None
    head = request.values.get("cpus-per-task")
    count = request.cpus_per_task if head else 1
    if outer is None:
        tasks = case.head_tasks_per_node or (None if request.values.keys() & {"ntasks", "ntasks-per-node"} else 1)
        return tasks * count if tasks and count else None
    if outer.kind != "srun" or outer.doubtful or outer.given(*others, "exclusive", "exact", "cpu-bind"):
        return None
    if outer.given("jobid") and not re.search(r"SLURM_JOB_?ID", outer.get("jobid") or ""):
        return None  # in another job
    return outer.count("cpus-per-task") if outer.given("cpus-per-task") else count


@rule(
    "world-size",
    why="Ranks wait until WORLD_SIZE of them have joined: with fewer tasks they wait until they time out",
    example="#SBATCH --ntasks=1\nexport WORLD_SIZE=4\nsrun python train.py",
    instead="#SBATCH --ntasks=4\nsrun bash -c 'WORLD_SIZE=$SLURM_NTASKS exec python train.py'",
)
def world_size(case: Case) -> Iterator[Hit]:
    """WORLD_SIZE that is not the number of tasks."""
    for launch in case.steps:
        value, tasks = launch.environment.get("WORLD_SIZE"), case.step(launch).tasks
        inside = case.inside_agent(launch)
        size = number(value.text) if value and value.exported else None
        if value is None or inside or not size or not tasks or size == tasks or not is_alone(launch):
            continue
        text = f"WORLD_SIZE is {size}, but {launch.word} starts {counted(tasks, 'task')}"
        yield Hit(launch.line, text, f"export WORLD_SIZE={tasks}, or start {size} tasks")


@rule(
    "lightning-devices",
    "refused",
    evidence=("script", "source"),
    why="Under Slurm, Lightning starts no processes itself and stops unless each device has its task",
    example="#SBATCH --ntasks-per-node=1\nsrun python train.py   (with Trainer(devices=4))",
    instead="#SBATCH --ntasks-per-node=4\nsrun python train.py",
)
def lightning_devices(case: Case) -> Iterator[Hit]:
    """Lightning's Trainer(devices=N), or --trainer.devices N, in a step with another number of tasks on each node."""
    for launch in case.steps:
        source, per_node = case.source(launch), case.step(launch).per_node
        named = _TRAINER_DEVICES.search(" ".join((case.python(launch) or launch.program)[1:]))
        devices = int(named[1]) if named else (source.devices if source else None) or 0
        if launch.kind != "srun" or case.inside_agent(launch) or devices < 1 or launch.doubtful:
            continue
        if per_node and per_node != devices:
            name = source.file if source else "the program"
            text = f"{name} has {counted(devices, 'device')}, but srun starts {counted(per_node, 'task')} on each node"
            yield Hit(launch.line, text, f"#SBATCH --ntasks-per-node={devices}")


_TRAINER_DEVICES = re.compile(r"(?<!\S)(?:--)?trainer\.(?:devices|gpus)[= ](\d+)(?!\S)")
"""On a command line: of LightningCLI, or of Hydra in templates for Lightning and in NeMo."""


def _in_turn(case: Case, launch: Launch) -> bool:
    """Whether nothing runs beside a launch, even if a loop or a function of the script starts it several times."""
    return is_alone(launch) or (case.in_turn and not launch.given("immediate") and not launch.remote)


@rule(
    "jsrun-one-gpu",
    why="The nodes of an LSF job in easy mode are its own: what its resource sets leave idle is charged",
    example="#BSUB -nnodes 1\njsrun -n1 -a1 -c42 -g1 python train.py",
    instead="jsrun -n6 -a1 -c7 -g1 python train.py",
)
def jsrun_one_gpu(case: Case) -> Iterator[Hit]:
    """Each jsrun of a job, one after another, uses one GPU on each of its whole nodes."""
    nodes, kind = case.script.request.nodes, case.node_kind
    have = kind.gpu.count if kind and kind.gpu.count else 4
    steps = [step for step in case.steps if step.kind == "jsrun"]
    if not nodes or have < 2 or len(steps) != len(case.steps) or any(launch.kind in AGENTS for launch in case.launches):
        return
    used = [_gpus_of_sets(launch, nodes, have) if _in_turn(case, launch) else None for launch in steps]
    most = max((count or nodes + 1 for count in used), default=nodes + 1)
    if most <= nodes:
        text = f"jsrun uses {counted(most, 'GPU')} on {counted(nodes, 'whole node')}"
        yield Hit(steps[0].line, text, f"{_rank_per_gpu(case, nodes)} ...   (one rank per GPU)")


def _gpus_of_sets(launch: Launch, nodes: int, have: int) -> int | None:
    """The GPUs of all resource sets of a jsrun; None if these are not known, have none, or several are on one node."""
    sets = sets_of(launch)
    if not sets or not sets.gpus or (sets.host or 1) * sets.gpus > 1:
        return None
    return sets.count or nodes * (sets.host or have)


def _rank_per_gpu(case: Case, nodes: int) -> str:
    """The resource sets that use all GPUs of the site's nodes; with placeholders where these are not known."""
    kind = case.node_kind
    if not kind or not kind.gpu.count:
        return "jsrun -r GPUS_OF_A_NODE -a1 -g1 -c CORES_OF_A_GPU"
    cores = kind.cores // kind.gpu.count if kind.cores else 1
    per_node, count = kind.gpu.count, kind.gpu.count * nodes
    return f"jsrun -n{count} -r{per_node} -a1 -g1 -c{cores}" + (f" -bpacked:{cores}" if cores > 1 else "")
