"""Rules on the number of processes that a program expects, and on its knowledge of the others."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from stackyard.core.findings import counted
from stackyard.lint.launches import AGENTS, RANKS, Launch, python_program
from stackyard.lint.request import number
from stackyard.lint.rules.base import Case, Hit, rule
from stackyard.lint.rules.rendezvous import is_set
from stackyard.lint.rules.torch import nnodes
from stackyard.lint.shell.scope import ResolvedCommand
from stackyard.lint.shell.words import shown
from stackyard.lint.source import source_of


def _per_node(case: Case, launch: Launch) -> int | None:
    """Tasks that a launch starts on each node; mpirun without a number starts those of the job."""
    if launch.kind == "mpirun" and not launch.given("np", "ppn", "hostfile", "host") and not launch.doubtful:
        return case.head_tasks_per_node
    return case.step(launch).per_node


@rule(
    "ranks-over-node-gpus",
    evidence=("source",),
    why="Each rank takes the GPU with the number of its local rank: those beyond the last one fail",
    example="#SBATCH --ntasks-per-node=8 --gres=gpu:4\nsrun python train.py   (which uses Horovod)",
    instead="#SBATCH --ntasks-per-node=4 --gres=gpu:4\nsrun python train.py",
)
def ranks_over_node_gpus(case: Case) -> Iterator[Hit]:
    """More ranks on each node than GPUs, of a program with one GPU per rank."""
    have = case.script.request.node_gpus
    for launch in case.steps if have else ():
        ranks, source = _per_node(case, launch), case.source(launch)
        if not ranks or not have or ranks <= have or case.inside_agent(launch):
            continue
        if source is None:
            said = re.search(r"horovod|\bhvd\b|_hvd", case.script.text, re.I) and "MPS" not in case.script.code
            if said and case.python(launch):
                text = f"{launch.word} starts {ranks} ranks of Horovod on each node with {counted(have, 'GPU')}"
                yield Hit(launch.line, text, f"start {have} ranks on each node")
            continue
        jax = case.program_source(case.python(launch)) if "jax" in source.imports else ""
        by_rank = "horovod" in source.imports or source.device_line or case.group(launch) is not None
        by_rank = by_rank or bool(re.search(r"distributed\.initialize\(\s*\)", jax))
        if by_rank and "MPS" not in case.script.code:
            text = f"{launch.word} starts {ranks} ranks of {source.file} on each node with {counted(have, 'GPU')}"
            yield Hit(launch.line, text, f"start {have} ranks on each node")


@rule(
    "jax-one-gpu",
    evidence=("source",),
    why="Under Slurm, jax.distributed gives each process the one GPU of its local rank: the others stay idle",
    example="#SBATCH --ntasks-per-node=1 --gpus-per-node=4\nsrun python train.py   (jax.distributed.initialize())",
    instead="#SBATCH --ntasks-per-node=4 --gpus-per-node=4\nsrun python train.py",
)
def jax_one_gpu(case: Case) -> Iterator[Hit]:
    """Fewer tasks than GPUs on a node, of a program that calls jax.distributed.initialize without local_device_ids."""
    have = case.script.request.node_gpus or 0
    for launch in case.steps:
        ranks = _per_node(case, launch)
        one_each = case.script.request.gpus_per_task == 1 or launch.get("gpus-per-task") == "1"
        text = case.program_source(case.python(launch)) if ranks and (ranks < have or one_each) else ""
        if (
            re.search(r"distributed\.initialize\(", text)
            and re.search(r"\bjax\b", text)
            and "local_device_ids" not in text
        ):
            if one_each:
                text = "each task sees one GPU, and jax.distributed takes that of its local rank"
                yield Hit(launch.line, text, "leave out --gpus-per-task, or local_device_ids=0")
                continue
            message = (
                f"{counted(ranks or 0, 'task')} on each node with {have} GPUs: jax.distributed uses one GPU per task"
            )
            yield Hit(launch.line, message, f"#SBATCH --ntasks-per-node={have}, or local_device_ids=range({have})")


_DEVICES = re.compile(r"--(?:(?:trainer[.-])?(?:devices|gpus|num[-_]gpus|n[-_]?gpus?))[= ](\d+)\b")


@rule(
    "lightning-without-srun",
    evidence=("source",),
    why="In a job of Slurm, Lightning takes its ranks from the tasks: one task trains on one GPU, or stops",
    example="#SBATCH --gres=gpu:4\npython train.py   (with Trainer(devices=4))",
    instead="#SBATCH --ntasks-per-node=4 --gres=gpu:4\nsrun python train.py",
)
def lightning_without_srun(case: Case) -> Iterator[Hit]:
    """A program with Lightning and several devices that the script starts itself, or by a step of one task."""
    if case.script.scheduler != "slurm" or re.search(
        r"SLURM_NTASKS=|unset\s+SLURM|LightningEnvironment", case.script.code
    ):
        return
    starts: list[tuple[ResolvedCommand | Launch, tuple[str, ...]]] = []
    if not case.launches:
        starts = [(command, words) for command in case.script.commands if (words := python_program(command.argv))]
    for launch in case.steps:
        if launch.kind == "srun" and case.step(launch).per_node == 1 and not case.inside_agent(launch):
            starts.append((launch, case.python(launch) or ()))
    for at, program in starts:
        source = source_of(program, case.directories)
        if source is None or not source.imports & {"lightning", "pytorch_lightning"}:
            continue
        named = _DEVICES.search(" ".join(program[1:]))
        devices = int(named[1]) if named else source.devices or 0
        own = isinstance(at, Launch) and source.devices  # of rule lightning-devices
        if devices > 1 and not own and "LightningEnvironment" not in case.program_source(program):
            text = f"{source.file} has {devices} devices, and one task of Slurm"
            yield Hit(at.line, text, f"#SBATCH --ntasks-per-node={devices} and srun python {program[0]}")
            return


_NODES = re.compile(r"(?:--(?:trainer[.-])?num[-_]nodes|trainer\.num_nodes)[= ](\d+)\b")


@rule(
    "lightning-nodes",
    evidence=("source",),
    why="Lightning multiplies num_nodes by devices: with another number of tasks it waits, or stops",
    example="#SBATCH --nodes=2\nsrun python train.py   (with Trainer(devices=4, num_nodes=1))",
    instead="#SBATCH --nodes=2\nsrun python train.py   (with Trainer(devices=4, num_nodes=2))",
)
def lightning_nodes(case: Case) -> Iterator[Hit]:
    """Another number of nodes for Lightning than those of the step."""
    for launch in case.steps:
        nodes, program = case.step(launch).nodes, case.python(launch) or ()
        source = case.source(launch)
        if (
            launch.kind != "srun"
            or not nodes
            or source is None
            or not source.imports & {"lightning", "pytorch_lightning"}
        ):
            continue
        named = _NODES.search(" ".join(program[1:]))
        calls = re.findall(r"\bTrainer\(([^()]*(?:\([^()]*\)[^()]*)*)\)", case.program_source(program))
        said = [match[1] for call in calls if (match := re.search(r"num_nodes\s*=\s*(\d+)\b", call))]
        plain = len(calls) == 1 and "**" not in calls[0] and "num_nodes" not in calls[0] and "*" not in calls[0]
        count = int(named[1]) if named else int(said[0]) if len(said) == 1 == len(calls) else 1 if plain else nodes
        if count != nodes and not case.inside_agent(launch):
            yield Hit(
                launch.line, f"num_nodes is {count}, and the step has {nodes} nodes", f"Trainer(num_nodes={nodes})"
            )


_READS = re.compile(r"environ\[\s*[\"'](RANK|LOCAL_RANK|WORLD_SIZE|MASTER_ADDR)[\"']\s*\](?!\s*=(?!=))")


_FINDS = re.compile(r"MPI\.COMM_WORLD|mpi4py|submitit|idr_torch|KeyError")


def _guarded(text: str, name: str) -> bool:
    """Whether a program looks first whether a variable is set, or sets it itself."""
    return bool(re.search(rf"[\"']{name}[\"']\s+(?:not\s+)?in\s|environ\.get\(\s*[\"']{name}|"
                          rf"environ\[\s*[\"']{name}[\"']\s*\]\s*=(?!=)|setdefault\(\s*[\"']{name}", text))  # fmt: skip


@rule(
    "rank-variable-not-set",
    evidence=("source",),
    why="srun, mpirun, jsrun and flux do not set RANK, LOCAL_RANK and WORLD_SIZE: the program ends with a KeyError",
    example="srun python train.py   (which reads os.environ['RANK'])",
    instead="srun bash -c 'RANK=$SLURM_PROCID LOCAL_RANK=$SLURM_LOCALID exec python train.py'",
)
def rank_variable_not_set(case: Case) -> Iterator[Hit]:
    """A program that reads a variable of torchrun, and is started without torchrun."""
    for launch in case.launches:
        outer = launch if launch.kind in RANKS else launch.ranks_of
        agent = any(member.kind in (*AGENTS, "horovodrun") for member in (launch, *launch.via))
        if outer is None or agent or not case.innermost(launch) or case.is_helper(launch):
            continue
        group = case.group(launch)
        text = case.program_source(case.python(launch))
        names = [] if _FINDS.search(text) else list(dict.fromkeys(_READS.findall(text)))
        known = (*(group.needs if group else ()), *(name for name in names if _guarded(text, name)))
        missing = [name for name in names if name not in known and not is_set(case, launch, name)]
        if missing:
            file = Path((case.python(launch) or ("",))[0]).name
            pairs = {"RANK": "$SLURM_PROCID", "LOCAL_RANK": "$SLURM_LOCALID", "WORLD_SIZE": "$SLURM_NTASKS"}
            settings = " ".join(f"{name}={pairs.get(name, '...')}" for name in missing)
            text = f"{file} reads {', '.join(missing)}, which nothing sets"
            yield Hit(launch.line, text, f"{outer.word} ... bash -c '{settings} exec python {file}'")


_PARALLEL = re.compile(r"(?:--tensor[-_]parallel[-_]size|--tp(?:-size)?|-tp)[= ](\d+)\b")


@rule(
    "tensor-parallel-over-gpus",
    why="Each part of the model needs its own GPU: the server stops at its start",
    example="#SBATCH --gres=gpu:4\nvllm serve MODEL --tensor-parallel-size 8",
    instead="#SBATCH --gres=gpu:4\nvllm serve MODEL --tensor-parallel-size 4",
)
def tensor_parallel_over_gpus(case: Case) -> Iterator[Hit]:
    """A server of vLLM or SGLang that splits a model over more GPUs than the job has on a node."""
    have = case.script.request.node_gpus
    for command in case.script.commands if have and not re.search(r"\bray\b|dist-init", case.script.code) else ():
        words = " ".join(command.argv)
        parts = _PARALLEL.search(words) if re.search(r"\b(?:vllm|sglang)\b", words) else None
        if parts and have and int(parts[1]) > have:
            yield Hit(command.line, f"the model is split over {parts[1]} GPUs, and a node has {have}",
                      f"{parts[0][: -len(parts[1])]}{have}")  # fmt: skip


@rule(
    "accelerate-separate-worlds",
    why="Without --num_machines and --machine_rank the ranks of each node form a group of their own: each trains alone",
    example="#SBATCH --nodes=2 --ntasks-per-node=1\nsrun accelerate launch --num_processes 8 train.py",
    instead="srun bash -c 'accelerate launch --num_machines 2 --machine_rank $SLURM_NODEID --num_processes 8 "
    "--main_process_ip $MASTER_ADDR train.py'",
)
def accelerate_separate_worlds(case: Case) -> Iterator[Hit]:
    """accelerate on each of several nodes, which is told of one, or not which one it is."""
    for launch in case.launches:
        outer = launch.ranks_of
        if launch.kind != "accelerate" or outer is None or launch.doubtful:
            continue
        if launch.given("config_file"):
            fixed = re.search(r"(?m)^machine_rank: *\d", case.script.text) and "num_machines" in case.script.text
            if fixed and not launch.given("machine_rank") and (case.step(outer).nodes or 1) > 1:
                text = "every node has the machine rank of the configuration"
                yield Hit(launch.line, text, "--machine_rank $SLURM_NODEID, in each task")
            continue
        nodes = case.step(outer).nodes
        if not nodes or nodes < 2 or "ACCELERATE_" in case.script.code:
            continue
        if not launch.given("num_machines") or nnodes(launch) == 1:
            yield Hit(
                launch.line, f"accelerate runs on {nodes} nodes, and is told of one", f"--num_machines {nodes} ..."
            )
        elif not launch.given("machine_rank"):
            yield Hit(launch.line, "every node has the machine rank 0", "--machine_rank $SLURM_NODEID, in each task")


@rule(
    "hostfile-without-slots",
    why="DeepSpeed stops at a host without a number of slots",
    example="scontrol show hostnames > hostfile\ndeepspeed --hostfile hostfile train.py",
    instead="scontrol show hostnames | sed 's/$/ slots=4/' > hostfile\ndeepspeed --hostfile hostfile train.py",
)
def hostfile_without_slots(case: Case) -> Iterator[Hit]:
    """A file of plain host names for deepspeed."""
    code = case.script.code
    for launch in case.launches if "slots" not in code else ():
        name = shown(launch.get("hostfile") or "") if launch.kind == "deepspeed" else None
        if name and re.search(rf"(?m)^[^\n]*hostnames[^\n]*>\s*[\"']?\S*{re.escape(Path(name).name)}", code):
            yield Hit(launch.line, f"{Path(name).name} has no slots", "hostnames ... | sed 's/$/ slots=GPUS/'")


@rule(
    "tf-config-missing",
    evidence=("source",),
    why="Without TF_CONFIG or a cluster resolver, MultiWorkerMirroredStrategy runs each worker alone",
    example="srun python train.py   (with MultiWorkerMirroredStrategy())",
    instead="SlurmClusterResolver() for the strategy, or TF_CONFIG in each task",
)
def tf_config_missing(case: Case) -> Iterator[Hit]:
    """TensorFlow's strategy for several workers, which is not told of the others."""
    for launch in case.steps:
        text, tasks = case.program_source(case.python(launch)), case.step(launch).tasks
        if tasks and tasks > 1 and "MultiWorkerMirroredStrategy" in text \
                and not re.search(r"TF_CONFIG|ClusterResolver", text + case.script.code):  # fmt: skip
            yield Hit(launch.line, f"{tasks} workers, and nothing sets TF_CONFIG", "SlurmClusterResolver()")


@rule(
    "more-workers-than-cores",
    why="Each loader is a process: more of them than cores wait for each other, and some schedulers end the job",
    example="#PBS -l select=1:ncpus=8\npython train.py --num_workers 16",
    instead="#PBS -l select=1:ncpus=8\npython train.py --num_workers 7",
)
def more_workers_than_cores(case: Case) -> Iterator[Hit]:
    """More loaders on the command line than cores; with threads of the program, as many are too many."""
    cores = case.script.request.node_cpus if case.script.scheduler == "pbs" else case.script.request.cpus_per_task
    if not cores or case.launches or case.script.request.exclusive:
        return
    for command in case.script.commands:
        words = " ".join(python_program(command.argv) or ())
        workers = re.search(r"--(?:num[-_])?(?:data[-_])?workers?[= ](\d+)\b", words)
        threads = re.search(r"--(?:num[-_])?threads[= ](\d+)\b", words)
        count = int(workers[1]) if workers else 0
        if count > cores or (threads and count and count + int(threads[1]) > cores):
            more = f" and {threads[1]} threads" if threads else ""
            yield Hit(command.line, f"{count} workers{more} on {counted(cores, 'core')}",
                      f"request {count + int(threads[1] if threads else 1)} cores")  # fmt: skip
            return


@rule(
    "mpi-program-alone",
    "note",
    why="Without srun or mpirun a program with MPI is one rank",
    example="#SBATCH --ntasks=16\ngmx_mpi mdrun -s run.tpr",
    instead="#SBATCH --ntasks=16\nsrun gmx_mpi mdrun -s run.tpr",
)
def mpi_program_alone(case: Case) -> Iterator[Hit]:
    """A program whose name ends in mpi, or a parallel one of OpenFOAM, which the script itself starts, as one task."""
    tasks = case.script.request.all_tasks or 0
    cores = number(case.script.request.values.get("cpus-per-task") or "") or 1
    for command in case.script.commands if tasks <= 1 < cores else ():
        if re.match(r"\S*/orca\b|orca |\$\(which orca\)|\$\{?ORCA\w*\}?(?:/orca)? ", command.raw):
            yield Hit(command.line, "ORCA starts mpirun, which has one slot in this job", f"#SBATCH --ntasks={cores}")
    for command in case.script.commands if tasks > 1 and not case.launches else ():
        name = command.argv[0].rsplit("/", 1)[-1] if command.argv else ""
        parallel = name.endswith("Foam") and "-parallel" in command.argv
        if re.search(r"[._-]mpi$", name) or parallel:
            yield Hit(command.line, f"{name} starts as 1 rank in a job with {tasks} tasks", f"srun {name} ...")
            return


@rule(
    "node-rank-fixed",
    why="Each agent needs the number of its node: with the same one the others are refused, or time out",
    example="srun torchrun --nnodes=2 --node_rank=0 --master_addr $MASTER_ADDR train.py",
    instead="srun bash -c 'torchrun --nnodes=2 --node_rank=$SLURM_NODEID --master_addr $MASTER_ADDR train.py'",
)
def node_rank_fixed(case: Case) -> Iterator[Hit]:
    """A number for the rank of the node, in a step on several nodes."""
    for launch in case.launches:
        outer = launch.ranks_of
        rank = launch.get("node_rank") or launch.get("machine_rank") if launch.kind in AGENTS else None
        if outer and rank and rank.isdecimal() and (case.step(outer).nodes or 0) > 1:
            yield Hit(
                launch.line, f"{launch.kind} has the node rank {rank} on every node", "$SLURM_NODEID, in each task"
            )


@rule(
    "agent-idle-gpus",
    "note",
    why="The GPUs of the job beyond its ranks are charged and idle",
    example="#SBATCH --gres=gpu:8\naccelerate launch --num_processes 4 train.py",
    instead="#SBATCH --gres=gpu:8\naccelerate launch --num_processes 8 train.py",
)
def agent_idle_gpus(case: Case) -> Iterator[Hit]:
    """accelerate with fewer processes than GPUs of its nodes."""
    have, agents = case.script.request.node_gpus or 0, [launch for launch in case.launches if launch.kind in AGENTS]
    for launch in agents if len(agents) == 1 else ():
        total, nodes = launch.count("num_processes"), launch.count("num_machines") or 1
        if launch.kind == "accelerate" and total and 1 <= total < have * nodes and not launch.doubtful:
            yield Hit(launch.line, f"{total} processes, and {have * nodes} GPUs", f"--num_processes {have * nodes}")


@rule(
    "pmi-of-two-kinds",
    why="The library speaks another protocol than the one that srun offers: the ranks wait for it at their start",
    example="export I_MPI_PMI_LIBRARY=/usr/lib64/libpmi2.so\nsrun --mpi=pmix ./a.out",
    instead="export I_MPI_PMI_LIBRARY=/usr/lib64/libpmi2.so\nsrun --mpi=pmi2 ./a.out",
)
def pmi_of_two_kinds(case: Case) -> Iterator[Hit]:
    """Intel MPI's library for PMI-1 or PMI-2 with ``--mpi=pmix``, or that of PMIx with ``--mpi=pmi2``."""
    for launch in case.steps:
        value, kind = launch.environment.get("I_MPI_PMI_LIBRARY"), launch.get("mpi") or ""
        if launch.kind == "srun" and value and kind.startswith("pmi") and ("pmix" in value.text) != ("pmix" in kind):
            yield Hit(launch.line, f"--mpi={kind} with {Path(value.text).name}", "one kind of PMI for both")


@rule(
    "thread-mpi-options",
    "refused",
    why="Only the build of GROMACS without an MPI library has thread-MPI: gmx_mpi stops at its options",
    example="srun -n 2 gmx_mpi mdrun -ntmpi 2",
    instead="srun -n 2 gmx_mpi mdrun -ntomp 8",
)
def thread_mpi_options(case: Case) -> Iterator[Hit]:
    """``-ntmpi`` or ``-nt`` for gmx_mpi."""
    for command in case.script.commands:
        words = " ".join(command.argv)
        match = re.search(r"\b(?:gmx_mpi\S*\s+mdrun|mdrun_mpi)\b.*\s(-ntmpi|-nt)\s+([2-9]|\d\d+)\b", words)
        if match:
            yield Hit(command.line, f"gmx_mpi has no {match[1]}", "ranks by the launcher, -ntomp for threads")
            return


@rule(
    "image-without-slash",
    why="pyxis takes a name without a slash for an image of a registry, and tries to download it",
    example="srun --container-image=pytorch.sqsh python train.py",
    instead="srun --container-image=./pytorch.sqsh python train.py",
)
def image_without_slash(case: Case) -> Iterator[Hit]:
    """A file of enroot without a directory."""
    for line, row in enumerate(case.script.rows, 1):
        match = re.search(r"--container-image[= ][\"']?([\w.+-]+\.sqsh)\b", row)
        if match and (not row.lstrip().startswith("#") or row.startswith("#SBATCH")):
            yield Hit(line, f"{match[1]} is taken for an image of a registry", f"--container-image=./{match[1]}")
            return
