"""Rules on the variables of a job: those that the scheduler does not set, and what --export leaves of the others."""

from __future__ import annotations

import re
from collections.abc import Iterator

from stackyard.core.hints import nearest
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
    "SLURM_CPUS_PER_GPU": ("cpus-per-gpu",),
    "SLURM_MEM_PER_GPU": ("mem-per-gpu",),
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
    yield from _index(case)
    script, head_options = case.script, case.script.request.values.keys()
    sizes = head_options & {"nodes", *_TASKS, "cpus-per-task"}
    if script.scheduler != "slurm" or script.is_filled_in or script.foreign or not sizes:
        return
    seen: set[str] = set()
    inner = [each.resolved for each in script.inner if each.launch.kind == "srun" and not each.launch.remote]
    for command in (*script.commands, *inner):
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


_INDEXES = {"pbs": ("PBS_ARRAY_INDEX|PBS_ARRAYID", "-J 1-N"), "sge": ("SGE_TASK_ID", "-t 1-N"),
            "lsf": ("LSB_JOBINDEX", '-J "NAME[1-N]"')}  # fmt: skip


def _index(case: Case) -> Iterator[Hit]:
    """The index of an array in a job that is none, by its head."""
    values, kind = case.script.request.values, case.script.scheduler
    array = "array" in values or "t" in values or ("J" in values and (kind != "lsf" or "[" in (values["J"] or "")))
    if kind == "slurm" and "array" not in values and "%a" in (values.get("output") or ""):
        yield Hit(
            case.script.request.line("output"), "%a is the index of an array, which this job is not", "%j", "note"
        )
    names, remedy = _INDEXES.get(kind, ("", ""))
    for number, row in enumerate(case.script.rows, 1) if names and not array and not case.script.foreign else ():
        match = re.search(rf"\$\{{?({names})\b(?!:?[-+=?])", row)
        if match and not re.match(r"\s*(?:#|echo\b|(?:el)?if\b|.*-[zn] )", row):
            yield Hit(number, f"{match[1]} is not set, or no index, without an array", remedy, "note")
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


_OF_EACH = {
    "SLURM": """
        ARRAY_JOB_ID ARRAY_TASK_ID ARRAY_TASK_COUNT ARRAY_TASK_MAX ARRAY_TASK_MIN ARRAY_TASK_STEP
        CLUSTER_NAME CPUS_ON_NODE CPUS_PER_GPU CPUS_PER_TASK CPU_BIND DISTRIBUTION GPUS GPUS_ON_NODE
        GPUS_PER_NODE GPUS_PER_TASK GTIDS HINT JOBID JOB_ACCOUNT JOB_CPUS_PER_NODE JOB_GPUS JOB_ID JOB_NAME
        JOB_NODELIST JOB_NUM_NODES JOB_PARTITION JOB_QOS JOB_USER LAUNCH_NODE_IPADDR LOCALID MEM_PER_CPU
        MEM_PER_GPU MEM_PER_NODE NNODES NODEID NODELIST NPROCS NTASKS NTASKS_PER_NODE PROCID RESTART_COUNT
        STEP_GPUS STEP_ID STEP_NODELIST STEP_NUM_NODES STEP_NUM_TASKS SUBMIT_DIR SUBMIT_HOST TASKS_PER_NODE
        TASK_PID TMPDIR TOPOLOGY_ADDR
    """,
    "SLURMD": "NODENAME",
    "PBS": """
        ARRAYID ARRAY_INDEX ARRAY_ID JOBDIR JOBFS JOBID JOBNAME NCPUS NODEFILE GPUFILE NODENUM NP NUM_NODES
        NUM_PPN O_HOME O_HOST O_LOGNAME O_PATH O_QUEUE O_SHELL O_WORKDIR QUEUE TASKNUM TMPDIR
    """,
    "LSB": """
        BATCH_JID DJOB_HOSTFILE DJOB_NUMPROC HOSTS JOBID JOBINDEX JOBNAME MAX_NUM_PROCESSORS MCPU_HOSTS
        QUEUE SUB_HOST
    """,
    "SGE": "O_WORKDIR TASK_ID TASK_FIRST TASK_LAST",
}
"""The variables of each scheduler, without the prefix."""
_OF_SCHEDULERS = [f"{prefix}_{name}" for prefix, names in _OF_EACH.items() for name in names.split()]

_TAKEN_FOR = {
    "PBS_HOSTFILE": "PBS_NODEFILE", "PBS_NODELIST": "PBS_NODEFILE", "PBS_NODES": "PBS_NODEFILE",
    "PBS_JOB_ID": "PBS_JOBID", "PBS_WORKDIR": "PBS_O_WORKDIR", "PBS_SUBMIT_DIR": "PBS_O_WORKDIR",
    "SLURM_WORKDIR": "SLURM_SUBMIT_DIR", "SLURM_O_WORKDIR": "SLURM_SUBMIT_DIR",
    "SLURM_NUM_NODES": "SLURM_JOB_NUM_NODES",
    "SLURM_NUM_TASKS": "SLURM_NTASKS", "SLURM_NODEFILE": "SLURM_JOB_NODELIST", "SLURM_RANK": "SLURM_PROCID",
    "SLURM_LOCAL_RANK": "SLURM_LOCALID", "SLURM_TASK_ID": "SLURM_ARRAY_TASK_ID", "SLURM_NGPUS": "SLURM_GPUS",
    "LSB_HOSTFILE": "LSB_DJOB_HOSTFILE", "LSB_JOB_ID": "LSB_JOBID", "LSB_NPROCS": "LSB_DJOB_NUMPROC",
}  # fmt: skip
"""Names that no scheduler has, by the rule of another one or of another tool, and what is meant."""


@rule(
    "variable-misspelt",
    why="No scheduler sets a variable of this name: it is empty",
    example="#SBATCH --array=1-9\n./work $SLURM_ARRAY_TASKID",
    instead="#SBATCH --array=1-9\n./work $SLURM_ARRAY_TASK_ID",
)
def variable_misspelt(case: Case) -> Iterator[Hit]:
    """A variable with nearly the name of one of a scheduler."""
    inner = [each.resolved for each in case.script.inner]
    for command in (*case.script.commands, *inner) if case.script.is_batch else ():
        texts = (
            part.text
            for word in command.command.words
            for part in word.parts
            if part.kind in ("variable", "arithmetic")
        )
        values = (each.raw for each in command.command.assignments)
        for name in dict.fromkeys(re.findall(r"(?<![:-])\b[A-Z]{3,6}_[A-Z_]{2,}\b", " ".join((*texts, *values)))):
            tail = name.partition("_")[2]
            alike = [_TAKEN_FOR[name]] if name in _TAKEN_FOR else []
            alike += [one for one in _OF_SCHEDULERS if one.endswith(tail) and tail[:2] == "O_"]
            like = (
                "" if name in _OF_SCHEDULERS else next(iter((*alike, *nearest(name, _OF_SCHEDULERS, cutoff=0.9))), "")
            )
            if (
                like
                and not re.search(rf"\b{name}=|\b{name}:?-", case.script.code)
                and (name in _TAKEN_FOR or abs(len(like) - len(name)) < 3)
            ):
                yield Hit(command.line, f"no scheduler sets {name}: did you mean {like}?", f"${like}")
                return
