"""Rules on variables that the scheduler does not set because their option is missing, and on odd values."""

from __future__ import annotations

import re
from collections.abc import Iterator

from stackyard.lint.request import number
from stackyard.lint.rules.base import Case, Hit, rule
from stackyard.lint.rules.heads.head import read_by_scheduler
from stackyard.lint.shell.scope import ResolvedCommand

_TASKS = ("ntasks", "ntasks-per-node", "ntasks-per-gpu", "ntasks-per-socket", "ntasks-per-core", "ntasks-per-tres")
_SETTERS: dict[str, tuple[str, ...]] = {
    "SLURM_CPUS_PER_TASK": ("cpus-per-task",),
    "SLURM_GPUS_PER_NODE": ("gpus-per-node",),
    "SLURM_GPUS_PER_TASK": ("gpus-per-task",),
    "SLURM_GPUS": ("gpus",),
    "SLURM_NTASKS_PER_NODE": ("ntasks-per-node",),
    "SLURM_NTASKS": _TASKS,
    "SLURM_NPROCS": _TASKS,
    "SLURM_MEM_PER_NODE": ("mem",),
    "SLURM_MEM_PER_CPU": ("mem-per-cpu",),
    "SLURM_ARRAY_TASK_ID": ("array",),
    "SLURM_ARRAY_TASK_COUNT": ("array",),
}
"""The variables that sbatch sets only where one of these options is given (sbatch(1), OUTPUT ENVIRONMENT VARIABLES)."""
_INSTEAD = {
    "SLURM_GPUS_PER_NODE": "SLURM_GPUS_ON_NODE, which every job with GPUs has",
    "SLURM_CPUS_PER_TASK": "#SBATCH --cpus-per-task=1, or ${SLURM_CPUS_PER_TASK:-1}",
}


@rule(
    "variable-not-set",
    why="Slurm sets the variable only where its option is given: elsewhere it is empty",
    example="#SBATCH --ntasks=4\nexport OMP_NUM_THREADS=$SLURM_CPUS_PER_TASK",
    instead="#SBATCH --ntasks=4\n#SBATCH --cpus-per-task=8\nexport OMP_NUM_THREADS=$SLURM_CPUS_PER_TASK",
)
def variable_not_set(case: Case) -> Iterator[Hit]:
    """A variable of Slurm for an option that the head does not have; a note where the command line may have it."""
    script, head_options = case.script, case.script.request.values.keys()
    sizes = head_options & {"nodes", *_TASKS, "cpus-per-task"}
    if script.scheduler != "slurm" or script.is_filled_in or script.foreign or not sizes:
        return
    seen: set[str] = set()
    for command in script.commands:
        for name in _names(command) if command.argv[:1] not in (("echo",), ("printf",)) else ():
            options = _SETTERS.get(name)
            if options is None or name in seen or head_options & {*options, "tres-per-task"} or _is_known(case, name):
                continue
            seen.add(name)
            remedy = _INSTEAD.get(name, f"#SBATCH --{options[0]}=...")
            said = rf"sbatch\b[^\n]*--{options[0]}\b"  # how to submit it, in a comment
            note = name.startswith("SLURM_ARRAY") or re.search(said, script.text)
            flags = " or ".join(f"--{option}" for option in options[:2])
            yield Hit(command.line, f"{name} is not set without {flags}", remedy, "note" if note else None)


@rule(
    "array-index-of-other-pbs",
    why="PBS Pro and OpenPBS set PBS_ARRAY_INDEX for -J, Torque sets PBS_ARRAYID for -t: the other one is empty",
    example="#PBS -J 1-10\n./work $PBS_ARRAYID",
    instead="#PBS -J 1-10\n./work $PBS_ARRAY_INDEX",
)
def array_index_of_other_pbs(case: Case) -> Iterator[Hit]:
    """The index of an array by the name that the other PBS gives it."""
    options, pairs = case.script.request.values.keys(), {"J": ("PBS_ARRAYID", "PBS_ARRAY_INDEX")}
    pairs["t"] = ("PBS_ARRAY_INDEX", "PBS_ARRAYID")
    for option, (wrong, right) in pairs.items():
        if case.script.scheduler != "pbs" or option not in options or right in case.script.code:
            continue
        for command in case.script.commands:
            texts = [
                *(word.raw for word in command.command.words),
                *(assignment.raw for assignment in command.command.assignments),
            ]
            if re.search(rf"\${{?{wrong}\b", " ".join(texts)) and f"{wrong}=" not in case.script.code:
                yield Hit(command.line, f"{wrong} is not set with -{option}", f"${right}")
                return


def _names(command: ResolvedCommand) -> Iterator[str]:
    """The variables of Slurm that the batch shell expands in a command."""
    assigned = (assignment.value for assignment in command.command.assignments if assignment.value is not None)
    texts = (part.text for word in (*command.command.words, *assigned) for part in word.parts
             if part.kind in ("variable", "arithmetic"))  # fmt: skip
    for text in texts:
        yield from _plain(text)


def _plain(text: str) -> list[str]:
    """The names in the text of a variable or of a sum; none where ``${NAME:-1}`` has a value for an empty one."""
    return [] if re.match(r"\w+:?[-=+?]", text) else re.findall(r"\bSLURM_\w+", text)


def _is_known(case: Case, name: str) -> bool:
    """Whether the script sets the variable itself, or looks whether it is set."""
    guarded = rf"\b{name}=|-[zn]\s+[\"']?\$\{{?{name}\b|-v\s+{name}\b|\$\{{{name}:?[-+=?]|\[\[?\s+[\"']?\$\{{?{name}\b"
    return bool(re.search(guarded, case.script.code))


_SHORT = re.compile(r"(?<!\S)-([A-Za-z])=(\S+)")


@rule(
    "equals-in-short-option",
    "refused",
    why="A short option takes its value without =: the sign becomes part of the value",
    example="#SBATCH -o=train.log",
    instead="#SBATCH -o train.log",
)
def equals_in_short_option(case: Case) -> Iterator[Hit]:
    """``-N=2``, which sbatch rejects, or ``-o=FILE``, which names another file."""
    for directive in read_by_scheduler(case) if case.script.scheduler in ("slurm", "lsf", "pbs") else ():
        for letter, value in _SHORT.findall(directive.text.partition(" #")[0]):
            taken = case.script.scheduler == "slurm" and letter in "oeiJA"
            text = f"-{letter}={value}: the value is '={value}'"
            yield Hit(directive.line, text, f"{directive.tag} -{letter} {value}", "warning" if taken else None)


@rule(
    "gpus-not-even",
    "note",
    why="--gpus is for the whole job: its nodes get different numbers of GPUs, and tasks without one wait or fail",
    example="#SBATCH --nodes=2\n#SBATCH --gpus=3",
    instead="#SBATCH --nodes=2\n#SBATCH --gpus-per-node=2",
)
def gpus_not_even(case: Case) -> Iterator[Hit]:
    """A total of GPUs that the nodes cannot share equally."""
    request = case.script.request
    count = number((request.values.get("gpus") or "").split(":")[-1]) if case.script.scheduler == "slurm" else None
    if count and request.nodes and count % request.nodes:
        text = f"{count} GPUs on {request.nodes} nodes"
        yield Hit(request.line("gpus"), text, f"--gpus-per-node={-(-count // request.nodes)}")


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


_ONE_HOST = re.compile(r"span\[\s*(?:hosts\s*=\s*1|ptile)", re.I)


@rule(
    "slots-on-several-hosts",
    why="Without a rule on nodes the scheduler takes cores where they are free: a program without MPI uses one host's",
    example="#SBATCH --ntasks=16\nexport OMP_NUM_THREADS=16\n./simulate",
    instead="#SBATCH --ntasks=1\n#SBATCH --cpus-per-task=16\nexport OMP_NUM_THREADS=16\n./simulate",
)
def slots_on_several_hosts(case: Case) -> Iterator[Hit]:
    """Several tasks or slots for one process, and no number of nodes: a note where it does not name that number."""
    script, request = case.script, case.script.request
    if script.launches or script.is_filled_in or script.foreign or script.inner or request.nodes or request.exclusive:
        return
    if re.search(r"\b(?:mpi\w*|srun|ssh|pbsdsh|blaunch|jsrun|aprun|prun|parallel|charmrun)\b|hostfile|HOSTS\b|NODELIST",
                 script.code):  # fmt: skip
        return
    if script.scheduler == "lsf":
        slots, where = number((request.values.get("n") or "").split(",")[0]), request.line("n")
        apart = not _ONE_HOST.search(request.values.get("R") or "") and "nnodes" not in request.values
        remedy = '#BSUB -R "span[hosts=1]"'
    elif script.scheduler == "slurm":
        slots, where = request.tasks, request.line("ntasks")
        apart = not request.values.keys() & {"ntasks-per-node", "array", "ntasks-per-gpu", "nodelist"}
        remedy = f"#SBATCH --ntasks=1 --cpus-per-task={slots}"
    else:
        return
    if not slots or slots < 2 or not apart:
        return
    names = "SLURM_NTASKS|SLURM_NPROCS|LSB_DJOB_NUMPROC|LSB_MAX_NUM_PROCESSORS"
    uses = re.search(
        rf"(?:threads|THREADS|workers|cpus?|cores|-[jptnT])[= ]*[\"']?(?:{slots}\b|\$\{{?(?:{names}))", script.code
    )
    text = f"{slots} cores can be on several hosts, and this script starts one process"
    yield Hit(where, text, remedy, None if uses else "note")


@rule(
    "export-value-cut",
    why="--export is a list: a comma ends a value, and what follows is taken for a name",
    example="#SBATCH --export=ALL,GPUS=0,1",
    instead="#SBATCH --export=ALL\nexport GPUS=0,1",
)
def export_value_cut(case: Case) -> Iterator[Hit]:
    """A value with a comma in ``--export``."""
    for directive in read_by_scheduler(case) if case.script.scheduler == "slurm" else ():
        for option in directive.options:
            items = option.value.split(",") if option.name == "export" and "$" not in option.value else []
            odd = next((item for item in items if item and not re.match(r"[A-Za-z_{<]\w*", item)), "")
            if odd and not re.search(r"['\"]", directive.text):
                yield Hit(directive.line, f"{odd!r} in --export is not a name", "export it in the script")


@rule(
    "export-replaces-environment",
    "note",
    why="With names and without ALL the job, and so its steps, have only these variables of the shell that submits",
    example="#SBATCH --export=DATA=/scratch/data",
    instead="#SBATCH --export=ALL,DATA=/scratch/data",
)
def export_replaces_environment(case: Case) -> Iterator[Hit]:
    """``--export=NAME=value`` without ALL in the head."""
    value = case.script.request.values.get("export") or ""
    if case.script.scheduler == "slurm" and "=" in value and not re.search(r"(?i)\b(?:all|none|nil)\b", value):
        yield Hit(case.script.request.line("export"), f"--export={value} leaves out the rest", f"--export=ALL,{value}")


@rule(
    "nodelist-over-nodes",
    "refused",
    why="sbatch rejects a list with more hosts than the job may have",
    example="#SBATCH --nodes=1\n#SBATCH --nodelist=n[01-04]",
    instead="#SBATCH --nodes=4\n#SBATCH --nodelist=n[01-04]",
)
def nodelist_over_nodes(case: Case) -> Iterator[Hit]:
    """More hosts in ``--nodelist`` than ``--nodes``."""
    value, nodes = case.script.request.values.get("nodelist") or "", case.script.request.nodes
    if case.script.scheduler != "slurm" or not nodes or not re.fullmatch(r"[\w.,\[\]-]+", value) or "/" in value:
        return
    count = sum(_hosts(item) for item in re.findall(r"(?:[^,\[]|\[[^\]]*\])+", value))
    if count > nodes:
        yield Hit(case.script.request.line("nodelist"), f"{count} hosts, and --nodes={nodes}", f"--nodes={count}")


def _hosts(item: str) -> int:
    """The number of hosts in ``n[01-04,7]``."""
    count = 1
    for inside in re.findall(r"\[([^\]]*)\]", item):
        ranges = (part.partition("-") for part in inside.split(","))
        count *= sum(
            int(last) - int(first) + 1 if first.isdecimal() and last.isdecimal() else 1 for first, _, last in ranges
        )
    return count
