"""Rules on what is started where: loops over nodes, clusters of workers, copies of one program."""

from __future__ import annotations

import re
from collections.abc import Iterator

from stackyard.lint.launches import AGENTS
from stackyard.lint.rules.base import Case, Hit, rule


@rule(
    "node-loop-on-first-node",
    why="A loop over the nodes runs on the first of them: each of its programs starts there",
    example="for node in $nodes; do\n  torchrun --nnodes 2 --node_rank $rank train.py &\ndone",
    instead="for node in $nodes; do\n  srun -N1 -n1 -w $node torchrun --nnodes 2 --node_rank $rank train.py &\ndone",
)
def node_loop_on_first_node(case: Case) -> Iterator[Hit]:
    """An agent for each node in a loop, without a launcher that would start it there."""
    for launch in case.launches if (case.nodes or 0) > 1 else ():
        command = launch.command.command
        numbered = launch.given("node_rank", "machine_rank") and launch.kind in AGENTS
        if numbered and command.within("loop") and not launch.ranks_of and not launch.remote:
            yield Hit(launch.line, f"{launch.kind} starts each time on the first of {case.nodes} nodes",
                      f"srun -N 1 -n 1 -w NODE {launch.kind} ...")  # fmt: skip
            return


_WORKER = re.compile(r"\b(?:hq worker start|dask[- ]worker|start-(?:worker|slave)\.sh|ipengine|celery\s.*\bworker\b)")


@rule(
    "worker-on-first-node",
    why="The batch script runs on the first node: the workers of the others have to be started by a launcher",
    example="#PBS -l select=2:ncpus=64\nhq server start &\nhq worker start",
    instead="#PBS -l select=2:ncpus=64\nhq server start &\npbsdsh -- hq worker start",
)
def worker_on_first_node(case: Case) -> Iterator[Hit]:
    """A worker of HyperQueue, Dask, Spark or IPython that the script itself starts, in a job with several nodes."""
    other = r"\b(?:srun|ssh|pbsdsh|mpi(?:run|exec)|blaunch|jsrun|clush|pdsh|parallel|flux run|aprun)\b"
    for command in case.script.commands if (case.nodes or 0) > 1 and not re.search(other, case.script.code) else ():
        match = _WORKER.match(" ".join(command.argv))
        if match:
            start = {"slurm": "srun --ntasks-per-node=1", "pbs": "pbsdsh --", "lsf": "blaunch"}.get(
                case.script.scheduler, ""
            )
            yield Hit(
                command.line, f"{match[0]} runs on the first of {case.nodes} nodes", f"{start} {match[0]} ...".strip()
            )
            return


_KNOWS_RANKS = re.compile(
    r"mpi|distribut|horovod|hvd|PROCID|LOCALID|SLURM|RANK|jax|lightning|accelerate|deepspeed|submitit|dask|\bray\b|argv"
    r"|argparse|click|environ|h5py|petsc|firedrake|fenics|dolfin|MPI|schwimmbad|ipyparallel|gethostname|uuid|random",
    re.I,
)
_ALONE = re.compile(
    r"(?:.*/)?(?:cellranger|STAR|bwa|samtools|bcftools|bowtie2?|hisat2|t?blast[npx]|fastqc|salmon|kallisto|nextflow|snakemake"
    r"|canu|spades\.py|Trinity|gatk|minimap2|matlab|jupyter|make|orca|qp_run|abyss-pe|crest|xtb|g16|g09)"
)
"""Programs without MPI, or that start mpirun themselves."""


@rule(
    "copies-of-one-program",
    evidence=("source",),
    why="srun starts a program once for each task: without MPI each copy does the same work, and writes the same files",
    example="#SBATCH --ntasks=16\nsrun python work.py   (with multiprocessing.Pool(16))",
    instead="#SBATCH --ntasks=1 --cpus-per-task=16\nsrun -c 16 python work.py",
)
def copies_of_one_program(case: Case) -> Iterator[Hit]:
    """Several tasks of a program whose source, if it is found, knows nothing of ranks."""
    for launch in case.steps:
        tasks, program = case.step(launch).tasks, case.python(launch) or ()
        text = case.program_source(program)
        pool = re.search(r"\b(?:Pool|ProcessPoolExecutor|Parallel)\(", text)
        knows = _KNOWS_RANKS.search(re.sub(r"(?m)#.*$", "", text))
        if launch.kind == "srun" and tasks and tasks > 1 and text and not knows and not case.inside_agent(launch) \
                and len(program) == 1 and "array" not in case.script.request.values:  # fmt: skip
            most = " with processes of its own" if pool else ""
            yield Hit(launch.line, f"{tasks} copies of {program[0]}{most}, whose source does not use ranks",
                      "srun -n 1 -c CORES ..." if pool else "srun -n 1 ...")  # fmt: skip
            return
    manager = re.compile(r"\b(?:SlurmManager|addprocs_slurm)\b")
    for launch in case.steps:
        tasks = case.step(launch).tasks or launch.count("np") or 1
        if tasks > 1 and launch.kind in ("srun", "mpirun") and _ALONE.fullmatch((*launch.program, "")[0]):
            yield Hit(launch.line, f"{tasks} copies of {launch.program[0]}: not an MPI program", launch.program[0])
            return
        file = next((word for word in launch.program if word.endswith(".jl")), "")
        if launch.kind == "srun" and file and manager.search(case.text_of(file) or ""):
            yield Hit(
                launch.line, f"srun starts the manager of {file} in each task, and it starts the workers", "julia ..."
            )
            return


@rule(
    "loopback-between-nodes",
    why="lo reaches the same node only: ranks of several nodes never connect",
    example="#SBATCH --nodes=2\nexport NCCL_SOCKET_IFNAME=lo",
    instead="#SBATCH --nodes=2\nexport NCCL_SOCKET_IFNAME=ib0",
)
def loopback_between_nodes(case: Case) -> Iterator[Hit]:
    """The loopback interface for the connections of a job on several nodes."""
    names = ("NCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME", "TP_SOCKET_IFNAME", "UCX_NET_DEVICES", "RCCL_SOCKET_IFNAME")
    for launch in case.steps if (case.nodes or 0) > 1 else ():
        for name in names:
            value = launch.environment.get(name)
            if value and value.text == "lo" and (case.step(launch).nodes or 0) > 1:
                yield Hit(value.line, f"{name} is the loopback interface, on {case.nodes} nodes", f"unset {name}")
                return
    for number, row in enumerate(case.script.rows if (case.nodes or 0) > 1 else (), 1):
        if match := re.search(r"\|\| *echo +[\"']?(localhost|127\.0\.0\.1)\b", row):
            yield Hit(
                number, f"where this fails, each of {case.nodes} nodes connects to itself: {match[1]}", "|| exit 1"
            )


@rule(
    "program-on-one-of-nodes",
    "note",
    why="The other nodes of the job are charged and idle",
    example="#SBATCH --nodes=2\nsrun ... python -m verl.trainer.main_ppo trainer.nnodes=1",
    instead="#SBATCH --nodes=2\nsrun ... python -m verl.trainer.main_ppo trainer.nnodes=2",
)
def program_on_one_of_nodes(case: Case) -> Iterator[Hit]:
    """A program with Ray that is told of fewer nodes than the job has."""
    nodes = case.nodes or 0
    for launch in case.launches if nodes > 1 and re.search(r"\bray start\b", case.script.code) else ():
        match = re.search(r"(?<!\S)(?:\S+\.)?(?:nnodes|num_nodes)=(\d+)(?!\S)", " ".join(launch.words))
        if match and int(match[1]) < nodes and case.innermost(launch):
            row = next((n for n, text in enumerate(case.script.rows, 1) if match[0] in text), launch.line)
            yield Hit(row, f"{match[0]} in a job with {nodes} nodes", match[0].replace(match[1], str(nodes)))
            return


@rule(
    "address-of-itself",
    why="The variable is made of itself and was never set: rank 0 is looked for at an empty address",
    example='export MASTER_ADDR="${MASTER_ADDR}i"',
    instead="MASTER_ADDR=$(scontrol show hostnames $SLURM_JOB_NODELIST | head -n 1)i",
)
def address_of_itself(case: Case) -> Iterator[Hit]:
    """MASTER_ADDR whose only value is made of MASTER_ADDR."""
    settings = re.findall(r"(?m)^[ \t]*(?:export\s+)?MASTER_ADDR=(\S.*)$", case.script.code)
    own = [text for text in settings if re.search(r"\$\{?MASTER_ADDR\b(?!:)", text)]
    sourced = re.search(r"(?m)^[ \t]*(?:source|\.)\s+(?!\S*(?:activate|conda\.sh|bashrc|profile))", case.script.code)
    if own and len(own) == len(settings) and not sourced:
        line = next(number for number, row in enumerate(case.script.rows, 1) if "MASTER_ADDR=" in row)
        first = "MASTER_ADDR=$(scontrol show hostnames $SLURM_JOB_NODELIST | head -n 1)"
        yield Hit(line, "MASTER_ADDR is used in its own value, and never set before", first)
