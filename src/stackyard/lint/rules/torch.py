"""Rules on torchrun, deepspeed and accelerate: one agent per node, which starts that node's ranks."""

from __future__ import annotations

import re
from collections.abc import Iterator

from stackyard.core.findings import counted
from stackyard.lint.launches import AGENTS, Launch
from stackyard.lint.rules.base import Case, Hit, rule
from stackyard.lint.rules.resources import launch_gpus
from stackyard.lint.shell.words import TASK, is_known
from stackyard.lint.smallcommands import is_small

_ONE_EACH = {"srun": "srun --ntasks-per-node=1 ...", "jsrun": "jsrun -r1 -a1 ...", "mpirun": "mpiexec --ppn 1 ..."}
_MANY = re.compile(r"nnodes[= ]|rdzv|SLURM_(?:NNODES|JOB_NUM_NODES)|num_machines")


def _agents(case: Case) -> Iterator[Launch]:
    for launch in case.launches:
        if launch.kind in AGENTS and not launch.remote and not any(outer.kind in AGENTS for outer in launch.via):
            yield launch


def nnodes(launch: Launch) -> int | None:
    """Nodes that an agent expects: 1 by default; None if it is not a number."""
    names = {"torchrun": "nnodes", "deepspeed": "num_nodes", "accelerate": "num_machines"}
    text = launch.get(names[launch.kind])
    if text is None:
        return 1 if launch.kind == "torchrun" and not launch.doubtful else None
    return launch.count(names[launch.kind])


def ranks_per_agent(launch: Launch) -> int | None:
    """Ranks that an agent starts: torchrun 1 by default; None for gpu, auto or an unknown value."""
    if launch.kind == "torchrun":
        default = None if launch.doubtful else 1
        return launch.count("nproc_per_node") if launch.given("nproc_per_node") else default
    if launch.kind == "deepspeed":
        return launch.count("num_gpus")
    total, machines = launch.count("num_processes"), launch.count("num_machines") or 1
    return total // machines if total and total % machines == 0 else None


@rule(
    "srun-torchrun-per-gpu",
    why="torchrun starts all ranks of a node itself: one task per GPU makes N x N ranks",
    example="#SBATCH --ntasks-per-node=4\nsrun torchrun --nnodes=2 --nproc_per_node=4 train.py",
    instead="#SBATCH --ntasks-per-node=1\nsrun torchrun --nnodes=2 --nproc_per_node=4 train.py",
)
def srun_torchrun_per_gpu(case: Case) -> Iterator[Hit]:
    """Several tasks per node, each of which starts a torchrun (deepspeed, accelerate) for the whole node."""
    for launch in _agents(case):
        outer = launch.ranks_of
        if outer is None or outer.kind not in ("srun", "jsrun", "mpirun"):
            continue
        step = case.step(outer)
        if not step.per_node or step.per_node < 2:
            continue
        agents = nnodes(launch)
        if ranks_per_agent(launch) == 1 and (agents is None or agents == step.tasks):
            continue
        where = (
            outer.line
            if outer.given("ntasks-per-node", "ntasks", "tasks_per_rs")
            else case.script.request.line("ntasks-per-node", "ntasks")
        )
        yield Hit(launch.line,
                  f"{outer.kind} starts {step.per_node} {launch.kind} agents on each node (line {where})",
                  _ONE_EACH[outer.kind])  # fmt: skip


@rule(
    "torchrun-nodes",
    why="The rendezvous waits for --nnodes agents and rejects further ones",
    example="#SBATCH --nodes=4\nsrun torchrun --nnodes=2 --nproc_per_node=4 train.py",
    instead="srun torchrun --nnodes=$SLURM_NNODES ...",
)
def torchrun_nodes(case: Case) -> Iterator[Hit]:
    """--nnodes that is not the number of agents that srun starts."""
    for launch in _agents(case):
        outer = launch.ranks_of
        if outer is None or outer.kind != "srun" or launch.kind != "torchrun" or outer.command.command.within("loop"):
            continue
        step, agents = case.step(outer), nnodes(launch)
        if not step.tasks or not agents or step.per_node != 1 or outer.command.command.background:
            continue
        if agents != step.tasks and (launch.given("nnodes") or step.tasks > 1):
            yield Hit(launch.line, f"srun starts {step.tasks} torchrun agents, but --nnodes is {agents}",
                      f"torchrun --nnodes={step.tasks} ...")  # fmt: skip


@rule(
    "torchrun-first-node-only",
    why="A batch script runs on the first node only: the rendezvous waits for the other nodes until it times out",
    example="#SBATCH --nodes=2\ntorchrun --nnodes=2 --nproc_per_node=4 train.py",
    instead="srun torchrun --nnodes=2 --nproc_per_node=4 train.py",
)
def torchrun_first_node_only(case: Case) -> Iterator[Hit]:
    """torchrun or accelerate in a job of several nodes, not started by srun; a note with --config_file."""
    nodes = case.script.request.nodes
    for launch in _agents(case):
        command = launch.command.command
        if launch.ranks_of or not nodes or nodes == 1 or not case.script.scheduler or command.within("function"):
            continue
        if launch.kind == "deepspeed":
            yield from _deepspeed(case, launch, nodes)
            continue
        several = command.background and len(list(_agents(case))) > 1  # perhaps one for each node, elsewhere
        if several or command.within("loop") or launch.given("deepspeed_hostfile"):
            continue
        expected = nnodes(launch)
        starts = {"slurm": "srun", "lsf": "jsrun -r1 -a1 -cALL_CPUS -gALL_GPUS", "flux": "flux run -N"}
        start = starts.get(case.script.scheduler, "mpiexec --ppn 1")
        text = f"{launch.kind} starts only on the first of {nodes} nodes"
        waits = (expected is not None and expected > 1) or (
            expected is None and bool(_MANY.search(" ".join(launch.words)))
        )
        many = len(list(_agents(case))) > 1
        yield Hit(
            launch.line,
            text + (f", but waits for {expected or 'all'} nodes" if waits else ""),
            f"{start} accelerate launch --num_machines={nodes} ..."
            if launch.kind == "accelerate"
            else f"{start} {launch.kind} --nnodes={nodes} ...",
            "note" if (many and not waits) or launch.given("config_file") else None,  # it may have a hostfile
        )


def _deepspeed(case: Case, launch: Launch, nodes: int) -> Iterator[Hit]:
    stated = (
        launch.given("hostfile", "launcher", "include")
        or "DLTS_HOSTFILE" in case.script.code
        or "/job/hostfile" in case.script.code
    )
    if not stated and all(is_known(word) for word in launch.words[:2]):
        yield Hit(launch.line, f"deepspeed without --hostfile uses only the first of {nodes} nodes",
                  "deepspeed --hostfile hosts.txt ...   (or srun with one task per GPU)")  # fmt: skip


@rule(
    "ranks-over-gpus",
    why="Each rank uses the GPU of its local rank: too many fail with 'invalid device ordinal', too few waste GPUs",
    example="#SBATCH --gpus-per-node=4\nsrun torchrun --nproc_per_node=8 train.py",
    instead="srun torchrun --nproc_per_node=4 train.py",
)
def ranks_over_gpus(case: Case) -> Iterator[Hit]:
    """An agent whose ranks per node differ from its GPUs."""
    agents = list(_agents(case))
    for launch in agents:
        ranks, outer = ranks_per_agent(launch), launch.ranks_of
        per_node = case.step(outer).per_node if outer else 1
        gpus = launch_gpus(case, outer or launch)
        alone = launch.given("num_machines") or (case.nodes == 1 and not launch.given("config_file"))
        if not ranks or not gpus or per_node != 1 or (launch.kind == "accelerate" and not alone):
            continue
        if ranks > gpus:
            yield Hit(launch.line, f"{ranks} ranks on each node with {gpus} GPUs", f"--nproc_per_node={gpus}")
        elif ranks < gpus and len(agents) == 1 and not launch.command.command.background \
                and not _is_model_parallel(launch):  # fmt: skip
            yield Hit(launch.line, f"{counted(ranks, 'rank')} on each node: {gpus - ranks} of {gpus} GPUs idle",
                      f"--nproc_per_node={gpus}", "note" if ranks == 1 else None)  # fmt: skip


def _is_model_parallel(launch: Launch) -> bool:
    return launch.environment.get("CUDA_VISIBLE_DEVICES") is not None


@rule(
    "rendezvous-id-per-rank",
    why="Agents join by this ID: if each task generates its own, no two agents join",
    example="srun bash -c 'torchrun --rdzv_id=$RANDOM ...'",
    instead="srun torchrun --rdzv_id=$SLURM_JOB_ID ...",
)
def rendezvous_id_per_rank(case: Case) -> Iterator[Hit]:
    """$RANDOM or a date as --rdzv_id in the shell of each task."""
    for launch in _agents(case):
        text = launch.get("rdzv_id") or ""
        drawn = re.search(r"\$RANDOM|\$\{RANDOM\}|date|uuidgen|\$\$", text)
        if drawn and launch.ranks_of and TASK in text:
            yield Hit(
                launch.line, f"each task generates its own --rdzv_id ({drawn.group()})", "--rdzv_id=$SLURM_JOB_ID"
            )


@rule(
    "torch-launch-old",
    "note",
    why="torch.distributed.launch has been deprecated since PyTorch 1.9; it passes --local_rank, not LOCAL_RANK",
    example="python -m torch.distributed.launch --nproc_per_node=4 train.py",
    instead="torchrun --nproc_per_node=4 train.py",
)
def torch_launch_old(case: Case) -> Iterator[Hit]:
    """The old python -m torch.distributed.launch."""
    lines = [launch.line for launch in _agents(case) if "torch.distributed.launch" in launch.words]
    for command in case.script.commands:  # inside a container that a program such as docker has already started
        at = command.argv.index("-m") if "-m" in command.argv[1:] else 0
        if at and command.argv[at + 1 : at + 2] == ("torch.distributed.launch",) and not is_small(command.argv):
            lines.append(command.line)
    for line in sorted(set(lines)):
        yield Hit(line, "torch.distributed.launch is deprecated", "torchrun ...")
