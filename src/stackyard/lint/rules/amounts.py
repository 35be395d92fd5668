"""Rules on amounts: the memory and the cores that a program takes, against those of its job."""

from __future__ import annotations

import re
from collections.abc import Iterator

from stackyard.core.findings import counted
from stackyard.lint.launches import python_program, unwrapped
from stackyard.lint.request import mebibytes, number
from stackyard.lint.rules.base import Case, Hit, rule
from stackyard.lint.rules.used import cores_of
from stackyard.lint.shell.words import is_known, shown


@rule(
    "heap-over-memory",
    why="Java takes its heap and more: with all the memory of the job for the heap the scheduler ends the job",
    example="#SBATCH --mem=8G\nexport NXF_OPTS='-Xmx8g'",
    instead="#SBATCH --mem=8G\nexport NXF_OPTS='-Xmx6g'",
)
def heap_over_memory(case: Case) -> Iterator[Hit]:
    """A heap of Java as large as the memory of the job, or an option of a program that names more."""
    have = case.script.request.memory_mib
    for line, row in enumerate(case.script.code.splitlines() if have else (), 1):
        match = re.search(r"-Xmx(\d+)([gGmM])\b", row)
        heap = mebibytes(match[1] + match[2]) if match else None
        if have and heap and match and heap >= have:
            yield Hit(line, f"-Xmx{match[1]}{match[2]} is all the memory of the job",
                      f"-Xmx{int(heap * 0.75) // 1024 or 1}g")  # fmt: skip
            return
        used = _MEMORY.search(row)
        amount = int(used[1]) / 2**20 if used and used[1] else mebibytes(f"{used[2]}G") if used else None
        if have and used and amount and amount > have:
            yield Hit(line, f"{used[0].strip()} is more than the memory of the job", f"request {amount / 1024:.0f}G")
            return


_MEMORY = re.compile(r"\s--limit\w+RAM[ =](\d{9,})|\s--(?:localmem|max_memory|memory)[ =](\d+)G?\b")
"""Options that give a program its memory: bytes for STAR, else GiB."""


_LONG = re.compile(
    r"(?<!\S)--?(?:n?threads|num[-_]?threads|runThreadN|(?:n[-_]?|local)?cores|n?cpus|num[-_]cpus|(?:n[-_]?)?jobs)"
    r"[= ](\d+)\b"
    r"|\bparpool\((?:['\"]\w+['\"], *)?(\d+)\)|\bmc\.cores *= *(\d+)\b"
)
_SHORT = {
    **dict.fromkeys(("make", "ninja", "snakemake", "parallel", "gmake"), "-j"),
    **dict.fromkeys(("samtools", "sambamba"), "-@"),
    **dict.fromkeys(("bwa", "bwa-mem2", "minimap2", "fastqc", "spades.py", "iqtree2", "raxmlHPC-PTHREADS"), "-t"),
    **dict.fromkeys(("bowtie2", "bowtie", "hisat2", "tophat", "tophat2", "pigz", "cufflinks"), "-p"),
    **dict.fromkeys(("diamond", "blastp", "kraken2"), "-p"),
    "julia": "-t",
    "gmx": "-nt",
    "xargs": "-P",
    "relion_refine": "--j",
}
"""Programs whose number of threads or jobs is a short option."""


def _threads(words: tuple[str, ...]) -> int | None:
    """The threads or jobs that a command is told to use."""
    argv = list(unwrapped(list(words)))
    name = argv[0].rsplit("/", 1)[-1] if argv else ""
    text = shown(" ".join(argv))
    if re.search(r"--(?:executor|cluster|profile|slurm)\b", text):  # of snakemake: as many jobs of the scheduler
        return None
    short = _SHORT.get(name)
    match = re.search(rf"(?<!\S){re.escape(short)}[= ]?(\d+)(?!\S)", text) if short else None
    match = match or _LONG.search(text)
    return int(next(group for group in match.groups() if group)) if match else None


def _cores(case: Case) -> tuple[int | None, bool]:
    """The cores of the job on its first node, and whether the head names them."""
    request = case.script.request
    if case.script.scheduler != "slurm":
        return (case.slots, True) if case.script.scheduler in ("pbs", "lsf") else (request.tasks, True)
    named = bool(request.values.keys() & {"cpus-per-task", "ntasks", "ntasks-per-node"})
    return (None if request.exclusive else cores_of(case, None)), named


@rule(
    "more-threads-than-cores",
    why="Threads or jobs beyond the cores of the job wait for each other, or the scheduler ends the job",
    example="#SBATCH --cpus-per-task=4\nsamtools sort -@ 16 in.bam",
    instead="#SBATCH --cpus-per-task=4\nsamtools sort -@ $SLURM_CPUS_PER_TASK in.bam",
)
def more_threads_than_cores(case: Case) -> Iterator[Hit]:
    """A number of threads or jobs on a command line that is larger than the cores; a note where the head names none."""
    if case.script.is_filled_in or case.script.foreign or not case.script.is_batch:
        return
    cores, named = _cores(case)
    starts: list[tuple[int, tuple[str, ...], int | None, bool]] = []
    launched = {id(launch.command) for launch in case.script.launches}
    for command in case.script.commands:
        if command.argv and id(command) not in launched:
            starts.append((command.line, command.argv, cores, named))
    for launch in case.steps:
        if launch.kind == "srun" and not launch.doubtful and not launch.given("exclusive") and case.innermost(launch):
            own = cores_of(case, launch) if cores else None
            starts.append((launch.line, launch.program, own, named or launch.given("cpus-per-task")))
    for line, words, have, certain in starts:
        threads = _threads(words)
        if threads and have and threads > have and words[0] not in ("sbatch", "srun", "qsub", "bsub", "export", "ray"):
            yield Hit(line, f"{threads} threads or jobs on {counted(have, 'core')}", f"request {threads} cores",
                      None if certain else "note")  # fmt: skip
            return


@rule(
    "all-cores-of-node",
    "note",
    evidence=("source",),
    why="multiprocessing counts the cores of the node, not those of the job: the processes share the few that it has",
    example="#SBATCH --cpus-per-task=2\npython work.py   (with multiprocessing.Pool())",
    instead="Pool(len(os.sched_getaffinity(0)))",
)
def all_cores_of_node(case: Case) -> Iterator[Hit]:
    """A pool of as many processes as the node has cores, in a job with some of them."""
    cores, named = _cores(case)
    for command in case.script.commands if cores and named and not case.script.request.exclusive else ():
        program = python_program(command.argv)
        text = case.program_source(program)
        pool = re.search(r"\bPool\(\s*\)|(?:Pool|Executor)\([^)\n]*cpu_count\(\)|n_jobs\s*=\s*-1", text)
        if pool and not re.search(r"sched_getaffinity|process_cpu_count|_CPUS_PER_TASK|NSLOTS|NCPUS", text):
            text = f"{shown(program[0]) if program else ''} starts a process for each core of the node"
            yield Hit(command.line, f"{text}, and the job has {cores}", "Pool(len(os.sched_getaffinity(0)))")
            return


@rule(
    "memory-for-each-slot",
    "note",
    why="Grid Engine multiplies h_vmem by the slots of the job: it waits for a host with that much, or for ever",
    example="#$ -pe smp 8\n#$ -l h_vmem=48G",
    instead="#$ -pe smp 8\n#$ -l h_vmem=6G",
)
def memory_for_each_slot(case: Case) -> Iterator[Hit]:
    """A large amount of memory for each of several slots."""
    slots = case.script.request.tasks or 1
    for directive in case.script.directives if case.script.scheduler == "sge" and slots > 1 else ():
        match = re.search(r"\b(h_vmem|mem_free|s_vmem)=(\d+)([GgTt])", directive.text)
        total = int(match[2]) * slots * (1024 if match[3] in "Tt" else 1) if match else 0
        if match and total >= 256:
            yield Hit(directive.line, f"{match[1]}={match[2]}{match[3]} for each of {slots} slots is {total}G",
                      f"{match[1]}={max(1, int(match[2]) // slots)}{match[3]}")  # fmt: skip


@rule(
    "memory-not-reserved",
    "note",
    why="-M ends a job that takes more; only rusage[mem=] makes LSF choose a host that has as much",
    example="#BSUB -M 16000",
    instead='#BSUB -M 16000\n#BSUB -R "rusage[mem=16000]"',
)
def memory_not_reserved(case: Case) -> Iterator[Hit]:
    """``-M`` of LSF without a reservation."""
    values = case.script.request.values
    limited = case.script.scheduler == "lsf" and "M" in values and "nnodes" not in values
    if limited and "rusage" not in (values.get("R") or "") and not case.script.request.exclusive:
        yield Hit(case.script.request.line("M"), f"-M {values['M']} is a limit, and reserves nothing",
                      f'#BSUB -R "rusage[mem={values["M"]}]"')  # fmt: skip


@rule(
    "rank-bound-to-core",
    "note",
    why="Open MPI binds each of one or two ranks to one core: all threads of the program run there",
    example="#SBATCH --ntasks=1 --cpus-per-task=64\nmpirun -np 1 ./solver --threads 64",
    instead="#SBATCH --ntasks=1 --cpus-per-task=64\nmpirun -np 1 --bind-to none ./solver --threads 64",
)
def rank_bound_to_core(case: Case) -> Iterator[Hit]:
    """One or two ranks of mpirun with several threads, or two mpiruns at once, and no word on binding."""
    beside = False
    for launch in case.steps:
        ranks, words = launch.count("np"), " ".join(launch.words[: len(launch.words) - len(launch.program)])
        said = re.search(r"bind|map-by|PE=|-ppn|-perhost|hydra|--cpus-per", words) or re.search(
            r"BINDING|HYDRA|I_MPI_PIN|bind_to|intel", case.script.code)  # fmt: skip
        if launch.kind == "mpirun" and launch.command.command.background and not said and case.innermost(launch):
            if beside and (case.nodes or 1) == 1:
                yield Hit(
                    launch.line, "Open MPI binds both mpiruns to the same cores, from the first on", "--bind-to none"
                )
                return
            beside = True
        value = launch.environment.get("OMP_NUM_THREADS")
        threads = _threads(launch.program) or (number(value.text) if value else None) or 1
        if launch.kind == "mpirun" and ranks and ranks <= 2 and threads > 1 and not said and case.innermost(launch):
            yield Hit(launch.line, f"{threads} threads of a rank that Open MPI binds to one core", "--bind-to none")
            return


@rule(
    "devices-over-gpus",
    evidence=("source",),
    why="Lightning stops where it has fewer GPUs than devices",
    example="#SBATCH --gres=gpu:1\nsrun python train.py   (with Trainer(devices=2))",
    instead="#SBATCH --gres=gpu:2\nsrun python train.py",
)
def devices_over_gpus(case: Case) -> Iterator[Hit]:
    """More devices of Lightning than GPUs of a node."""
    have = case.script.request.node_gpus
    for launch in case.steps if have else ():
        source = case.source(launch)
        if source and source.devices and have and source.devices > have and not case.inside_agent(launch):
            yield Hit(launch.line, f"{source.file} has {source.devices} devices, and a node {counted(have, 'GPU')}",
                      f"#SBATCH --gres=gpu:{source.devices}")  # fmt: skip
            return


@rule(
    "kokkos-gpus",
    "note",
    why="LAMMPS gives its ranks the GPUs that -k names: those beyond are idle, and the ranks share the others",
    example="#SBATCH --ntasks-per-node=4 --gres=gpu:4\nsrun lmp -k on g 1 -sf kk -in in.lj",
    instead="#SBATCH --ntasks-per-node=4 --gres=gpu:4\nsrun lmp -k on g 4 -sf kk -in in.lj",
)
def kokkos_gpus(case: Case) -> Iterator[Hit]:
    """Kokkos of LAMMPS on fewer GPUs than the job has on a node."""
    have = case.script.request.node_gpus or 0
    for launch in case.steps:
        text = " ".join(launch.program)
        match = re.search(r"(?:-k|-kokkos) on g(?:pus)? (\d+)\b", text) if is_known(text) or "-k on" in text else None
        per_node = launch.count("np") or case.step(launch).per_node or 1
        if match and int(match[1]) < have and per_node > 1:
            yield Hit(launch.line, f"g {match[1]}, and {have} GPUs on each node", f"-k on g {have}")
