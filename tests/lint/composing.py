"""Composed batch scripts with what their jobs are, by the manuals: sbatch, srun, bsub, jsrun, qsub, flux-batch."""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from dataclasses import dataclass, field

from composing_tables import (
    AFTER,
    AROUND,
    BEFORE,
    FLUX_OPTIONS,
    FLUX_RUN_OPTIONS,
    LSF_OPTIONS,
    MPIRUN_OPTIONS,
    PBS_OPTIONS,
    SBATCH_OPTIONS,
    SRUN_OPTIONS,
)

UNKNOWN = -1
"""A number that the script does not determine: a note must say so."""
Rng = random.Random


@dataclass
class Truth:
    """What a script's job is. None: not compared."""

    nodes: int | None = None
    ranks: int | None = None
    cores: int | None = None
    gpus: int | None = None
    time_min: float | None = None
    memory_gib: float | None = None
    said: list[str] = field(default_factory=list)
    """Texts that the head of the job or a note must have."""
    program: tuple[str, ...] = ("./solve", "in.txt")
    lines: dict[str, str] = field(default_factory=dict)
    """Lines of the script, each with a text that the prologue, the variables or a note must have."""


@dataclass
class Made:
    """A script under construction."""

    head: list[str] = field(default_factory=list)
    launch: str = ""
    truth: Truth = field(default_factory=Truth)


def maybe(rng: Rng, share: float, text: str) -> list[str]:
    return [text] if rng.random() < share else []


def of_different_names(rng: Rng, options: list[tuple[str, str]], count: int) -> list[tuple[str, str]]:
    """Some of the options, none of which overrides another."""
    every = rng.sample(options, len(options))
    named = {re.sub("--constraint", "-C", each[0].split("=")[0].split()[0]): each for each in every}
    return list(named.values())[:count]


TIMES = {"30": 30, "1:30": 1.5, "2:00:00": 120, "1-0": 1440, "1-12:30": 2190, "0-00:10:00": 10}


def slurm_extras(rng: Rng, made: Made) -> None:
    """Options that pass through, or are noted, but change no size."""
    value, minutes = rng.choice(list(TIMES.items()))
    made.head.append(f"{rng.choice(('--time=', '-t '))}{value}")
    made.truth.time_min = minutes
    for option, said in of_different_names(rng, SBATCH_OPTIONS, 3):
        made.head.append(option)
        made.truth.said.append(said)


def slurm(rng: Rng) -> Made:
    """sbatch(1): --nodes, --ntasks, --ntasks-per-node, --cpus-per-task, --gpus...; srun(1) inherits them."""
    made, truth = Made(), Truth()
    made.truth = truth
    nodes = rng.choice((None, 1, 2, 3, 4, "1-3"))
    tasks, each = rng.choice(((None, None), (6, None), (None, 4), (8, 4), (1, None), (7, None), (12, None), (8, 3)))
    cpus, exclusive = rng.choice((None, None, 1, 4)), rng.random() < 0.15
    if tasks and each and isinstance(nodes, int) and tasks > nodes * each:
        each = None  # sbatch rejects it
    made.head += [f"-N {nodes}"] if nodes else []
    made.head += [f"--ntasks={tasks}"] if tasks else []
    made.head += [f"--ntasks-per-node={each}"] if each else []
    made.head += [f"-c {cpus}"] if cpus else []
    made.head += ["--exclusive"] if exclusive else []
    count = nodes if isinstance(nodes, int) else None
    if not isinstance(nodes, int):
        count = 1 if (tasks or 1) == 1 and not each else (1 if tasks is None and nodes is None else None)
        count = tasks // each if tasks and each and tasks % each == 0 else None if tasks and each else count
    if tasks and count and tasks < count:
        count = tasks  # sbatch: fewer tasks than nodes, and the number of nodes is reduced
    every = tasks or (count * each if count and each else count)
    truth.nodes, truth.ranks, truth.cores = count or UNKNOWN, every or UNKNOWN, None if exclusive else (cpus or 1)
    _slurm_gpus(rng, made, count, tasks, each)
    _slurm_memory(rng, made)
    slurm_extras(rng, made)
    rng.choice((srun, srun, srun, mpirun_of_slurm))(rng, made, count, tasks, each, cpus)
    return made


def _slurm_gpus(rng: Rng, made: Made, count: int | None, tasks: int | None, each: int | None) -> None:
    kind = rng.choice(
        ("", "", "--gpus-per-node={}", "--gres=gpu:{}", "--gres=gpu:a100:{}", "-G {}", "--gpus-per-task={}")
    )
    number = rng.choice((1, 2, 4))
    if not kind or (kind.startswith("--gpus-per-task") and not tasks and not each):  # sbatch rejects these
        return
    made.head.append(kind.format(number))
    if "a100" in kind:
        made.truth.said.append("a100")
    made.truth.gpus = number
    if kind.startswith("-G"):
        made.truth.gpus = number // count if count and number % count == 0 else UNKNOWN
    if kind.startswith("--gpus-per-task"):
        per_node = (
            (each if not tasks or tasks == (count or 0) * each else None)
            if each
            else (tasks // count if tasks and count and tasks % count == 0 else None)
        )
        made.truth.gpus = number * per_node if per_node else UNKNOWN if count else None


def _slurm_memory(rng: Rng, made: Made) -> None:
    kind = rng.choice(("", "--mem=16G", "--mem=4096", "--mem-per-cpu=2G", "--mem-per-gpu=8G", "--mem=0"))
    made.head += [kind] if kind else []
    made.truth.memory_gib = {"--mem=16G": 16, "--mem=4096": 4}.get(kind, 0)
    made.truth.said += [kind] if kind.startswith("--mem-per") else []


def srun(rng: Rng, made: Made, count: int | None, tasks: int | None, each: int | None, cpus: int | None) -> None:
    """A step inherits SLURM_NTASKS, SLURM_NNODES and SLURM_NTASKS_PER_NODE from the job."""
    truth, options = made.truth, list[str]()
    kind = rng.choice(("", "", "n", "Nn", "k", "N"))
    if kind == "n":
        number = rng.choice((1, 2, 4, tasks or 3))
        options.append(written(rng, made, rng.choice(("-n {}", "-n{}", "--ntasks={}", "--ntasks {}")), number))
        truth.ranks, truth.nodes = number, min(count, number) if count else (1 if number == 1 else UNKNOWN)
    elif kind == "Nn":
        options += [written(rng, made, "-N {}", 1), written(rng, made, "-n {}", 2)]
        truth.ranks, truth.nodes = 2, 1
    elif kind == "N":
        options.append(written(rng, made, "-N {}", 1))
        truth.ranks, truth.nodes = (tasks or each or 1), 1
    elif kind == "k" and count and not tasks and not each:
        options.append(written(rng, made, "--ntasks-per-node={}", 2))
        truth.ranks = 2 * count
    if rng.random() < 0.3:
        options.append(written(rng, made, rng.choice(("-c {}", "--cpus-per-task={}")), 2))
        truth.cores = 2
    for option, said in rng.sample(SRUN_OPTIONS, rng.choice((0, 0, 1, 2))):
        options.append(option)
        truth.said.append(said)
    if truth.gpus is not None and kind:
        truth.gpus = None  # per task or per node of another shape: the head's check is enough
    made.launch = " ".join(("srun", *options))


def written(rng: Rng, made: Made, option: str, number: int) -> str:
    """A number as scripts write it: plain, in a variable, computed."""
    form = rng.choice(("plain", "plain", "variable", "braces", "sum"))
    if form == "plain":
        return option.format(number)
    name = f"COUNT{len(made.truth.lines)}{rng.randrange(10)}"
    made.truth.lines[f"{name}={number}"] = ""
    texts = {"variable": f"${name}", "braces": f"${{{name}}}", "sum": f"$(({name} * 1))"}
    return option.format(texts[form])


def mpirun_of_slurm(
    rng: Rng, made: Made, count: int | None, tasks: int | None, each: int | None, cpus: int | None
) -> None:
    """mpirun(1): one rank for each slot, which are the job's tasks; -np fills one node after another."""
    truth, kind = made.truth, rng.choice(("", "np", "ppr"))
    words = [rng.choice(("mpirun", "mpiexec"))]
    if kind == "np":
        number = rng.choice((1, 2, 3, 4, tasks or 6))
        words.append(written(rng, made, rng.choice(("-np {}", "-n {}")), number))
        slots = each or (tasks // count if tasks and count and tasks % count == 0 else 1 if not tasks else None)
        truth.ranks, truth.cores = number, None
        truth.nodes = min(count, -(-number // slots)) if slots and count else (1 if number == 1 else UNKNOWN)
        truth.nodes = None if slots and count and number > slots * count else truth.nodes
    elif kind == "ppr" and count:
        words.append(written(rng, made, "--map-by ppr:{}:node", 2))
        truth.ranks = 2 * count
        truth.cores = None
    for option, said in rng.sample(MPIRUN_OPTIONS, rng.choice((0, 1, 1))):
        words.append(option)
        truth.said.append(said)
    truth.gpus = None if kind else truth.gpus
    made.launch = " ".join(words)


def pbs(rng: Rng) -> Made:
    """qsub(1B), pbs_resources(7B): select=N:ncpus=C:mpiprocs=M; one MPI process for each chunk without mpiprocs."""
    made = Made()
    truth = made.truth
    chunks, cpus = rng.choice((1, 2, 3)), rng.choice((1, 8, 16))
    procs, gpus = rng.choice((None, None, 1, 4, 8)), rng.choice((None, None, 1, 4))
    memory = rng.choice(("", "32gb", "4096mb", "500000kb"))
    form = rng.choice(("select", "select", "bare", "sum", "nodes", "ncpus"))
    parts = [f"ncpus={cpus}", *([f"mpiprocs={procs}"] if procs else []), *([f"ngpus={gpus}"] if gpus else [])]
    parts += [f"mem={memory}"] if memory else []
    rng.shuffle(parts)
    ranks: int | None = chunks * (procs or 1)
    if form == "select":
        made.head.append(f"-l select={chunks}:{':'.join(parts)}")
    elif form == "bare":
        made.head.append(f"-l select={':'.join(parts)}")
        chunks, ranks = 1, procs or 1
    elif form == "sum":
        made.head.append(f"-l select={chunks}:{':'.join(parts)}+1:ncpus={cpus + 1}")
        chunks, ranks, gpus, memory = UNKNOWN, UNKNOWN, UNKNOWN if gpus else None, ""
    elif form == "nodes":
        made.head.append(f"-l nodes={chunks}:ppn={cpus}" + (f":gpus={gpus}" if gpus else ""))
        ranks, procs, memory = chunks * cpus, cpus, ""
    else:
        made.head.append(f"-l ncpus={cpus}")
        chunks, ranks, gpus, procs, memory = 1, 1, None, None, ""
    truth.nodes, truth.ranks, truth.gpus = chunks, ranks, gpus
    truth.cores = cpus // procs if procs and cpus % procs == 0 else None if form != "sum" else UNKNOWN
    truth.memory_gib = {"32gb": 32, "4096mb": 4, "500000kb": 500000 / 1024**2}.get(memory, 0)
    value, minutes = rng.choice([("1:00:00", 60), ("30:00", 30), ("3600", 60), ("00:05:30", 5.5)])
    made.head.append(f"-l walltime={value}")
    truth.time_min = minutes
    for option, said in of_different_names(rng, PBS_OPTIONS, 2):
        made.head.append(option)
        truth.said.append(said)
    words = [rng.choice(("mpirun", "mpiexec"))]
    if rng.random() < 0.5:
        number = rng.choice((1, 2, 3, 4, 16))
        words.append(written(rng, made, rng.choice(("-np {}", "-n {}")), number))
        truth.ranks = number
        slots = procs or 1
        fits = form in ("select", "bare", "nodes") and number <= slots * chunks
        truth.nodes = (
            min(chunks, -(-number // slots)) if fits else 1 if chunks == 1 else None if number > slots else UNKNOWN
        )
        truth.cores = truth.gpus = None
        if rng.random() < 0.3 and form != "sum" and number % chunks == 0:
            words.append(f"-ppn {number // chunks}")
            truth.nodes = chunks
    made.launch = " ".join(words)
    return made


def lsf(rng: Rng) -> Made:
    """bsub(1): -n slots, span[ptile=..], span[hosts=1]; -nnodes with jsrun(1)."""
    made = Made()
    truth = made.truth
    value, minutes = rng.choice([("60", 60), ("1:30", 90), ("0:05", 5), ("100:00", 6000)])
    made.head.append(f"-W {value}")
    truth.time_min = minutes
    for option, said in of_different_names(rng, LSF_OPTIONS, 2):
        made.head.append(option)
        truth.said.append(said)
    if rng.random() < 0.5:
        jsrun(rng, made)
        return made
    slots, form = rng.choice((1, 4, 7, 8)), rng.choice(("", "ptile", "hosts"))
    made.head.append(f"-n {slots}")
    truth.nodes, truth.ranks, truth.cores = (1 if slots == 1 else UNKNOWN), slots, 1
    if form == "ptile":
        made.head.append(f'-R "span[ptile={rng.choice((4, 2))}]"')
        tile = int(re.findall(r"\d+", made.head[-1])[0])
        truth.nodes = -(-slots // tile)
    elif form == "hosts":
        made.head.append('-R "span[hosts=1]"')
        truth.nodes = 1
    words = [rng.choice(("mpirun", "mpirun.lsf", "mpiexec"))]
    if rng.random() < 0.4:
        number = rng.choice((1, 2, slots))
        words.append(written(rng, made, "-np {}", number))
        truth.ranks = number
        tile = tile if form == "ptile" else max(slots, number)
        truth.nodes = -(-number // tile) if form or number == 1 else UNKNOWN
        truth.cores = None
    made.launch = " ".join(words)
    return made


def jsrun(rng: Rng, made: Made) -> None:
    truth, nodes = made.truth, rng.choice((1, 2, 4))
    made.head.append(f"-nnodes {nodes}")
    host, ranks, cores, gpus = rng.choice(((6, 1, 7, 1), (1, 6, 42, 6), (2, 4, 20, 2), (1, 1, 1, 0), (2, 1, 21, 3)))
    sets = rng.choice((host * nodes, host * nodes, host, host * nodes - 1 or 1))
    with_host = rng.random() < 0.7
    words = [written(rng, made, rng.choice(("-n {}", "-n{}", "--nrs {}", "--nrs={}")), sets)]
    words += [written(rng, made, rng.choice(("-r {}", "-r{}", "--rs_per_host {}")), host)] if with_host else []
    words += [f"-a {ranks}", f"-c {cores}", f"-g {gpus}"]
    words += [rng.choice(("-b packed:7", "-brs", "-d packed", "--smpiargs=-gpu", "-l gpu-cpu", "-E A=7"))]
    truth.said.append({"-E A=7": "'A': '7'", "-brs": "bind rs"}.get(words[-1], words[-1].split()[-1].split("=")[-1]))
    if words[-1] == "-b packed:7" and cores // ranks == 7:
        truth.said.pop()
    rng.shuffle(words)
    truth.ranks = sets * ranks
    truth.cores = cores // ranks if cores % ranks == 0 else UNKNOWN
    truth.nodes = -(-sets // host) if with_host else UNKNOWN if nodes > 1 else 1
    truth.gpus = gpus * host if with_host and sets % host == 0 else None
    made.launch = "jsrun " + " ".join(words)


def flux(rng: Rng) -> Made:
    """flux-batch(1): -N, -n slots of -c cores and -g GPUs; flux-run(1): -N, -n, -c, -g of the step."""
    made = Made()
    truth = made.truth
    nodes, slots, cores = rng.choice(((2, None, None), (2, 8, 4), (1, 4, 1), (None, 4, 2), (4, 4, None)))
    made.head += [f"-N {nodes}"] if nodes else []
    made.head += [f"--nslots={slots}"] if slots else []
    made.head += [f"-c {cores}"] if cores else []
    value, minutes = rng.choice([("30", 30), ("1h", 60), ("90s", 1.5), ("30m", 30)])
    made.head.append(f"-t {value}")
    truth.time_min = minutes
    for option, said in rng.sample(FLUX_OPTIONS, 2):
        made.head.append(option)
        truth.said.append(said)
    step, number, each, gpus = rng.choice(((2, 8, 4, 1), (2, None, None, None), (None, 4, 2, None), (1, 4, 1, 1)))
    words = [f"-N {step}"] if step else []
    words += [written(rng, made, rng.choice(("-n {}", "-n{}", "--ntasks={}")), number)] if number else []
    words += [written(rng, made, rng.choice(("-c {}", "--cores-per-task={}")), each)] if each else []
    words += [f"-g {gpus}"] if gpus else []
    for option, said in rng.sample(FLUX_RUN_OPTIONS, rng.choice((0, 1))):
        words.append(option)
        truth.said.append(said)
    truth.ranks = number or step
    truth.nodes = step or (1 if nodes == 1 else UNKNOWN)
    truth.cores = each or 1 if number else None
    truth.gpus = gpus * number // step if gpus and number and step else None
    made.launch = " ".join((rng.choice(("flux run", "flux run", "flux submit")), *words))
    return made


TAGS: dict[str, tuple[str, Callable[[Rng], Made]]] = {
    "slurm": ("#SBATCH", slurm), "pbs": ("#PBS", pbs), "lsf": ("#BSUB", lsf), "flux": ("# flux:", flux),
}  # fmt: skip


def composed(kind: str, seed: int) -> tuple[str, Truth]:
    """A script and what its job is."""
    rng = random.Random(f"{kind}{seed}")
    tag, make = TAGS[kind]
    made = make(rng)
    rng.shuffle(made.head)
    before = rng.sample(list(BEFORE.items()), rng.choice((0, 1, 3)))
    if any("/work/a" in each for each in made.head):
        before = [each for each in before if each[0] != "cd /work/run"]  # it would take its place
    if ("-x" in made.head and kind == "lsf") or "-l place=scatter:excl" in made.head:
        made.truth.cores = None  # all cores of the node
    own = list(made.truth.lines)
    made.truth.lines = dict(before)
    around, said = rng.choice(AROUND)
    after = "" if around.startswith("exec") else rng.choice(list(AFTER))
    made.truth.said += [said, AFTER[after]]
    start = ["cd $PBS_O_WORKDIR"] if kind == "pbs" else []
    launch = around.format(" ".join((made.launch, *made.truth.program)))
    rows = [
        "#!/bin/bash",
        *(f"{tag} {each}" for each in made.head),
        *start,
        *own,
        *(b for b, _ in before),
        launch,
        after,
    ]
    return "\n".join(rows) + "\n", made.truth
