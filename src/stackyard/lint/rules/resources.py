"""Rules on cores, GPUs and threads."""

from __future__ import annotations

import re
from collections.abc import Iterator

from stackyard.core.findings import counted
from stackyard.lint.launches import Launch
from stackyard.lint.request import OTHER_CORES, gpus_of, number
from stackyard.lint.rules.base import Case, Hit, rule
from stackyard.lint.rules.schedulers.jsrun import sets_of
from stackyard.lint.shell.scope import ResolvedCommand
from stackyard.lint.shell.words import command_name, is_known, shown
from stackyard.lint.systems import of_program

_GPU_LISTS = ("CUDA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES")


_TO_OWN_CORES = re.compile(r"|(?:v|verbose|q|quiet|,|cores|threads|sockets|ldoms)+")
"""A --cpu-bind that leaves the number of cores to -c, unlike none, a map or a mask."""


@rule(
    "srun-cpus-not-inherited",
    evidence=("site",),
    why="Since Slurm 22.05, srun does not inherit --cpus-per-task from the batch script: each task gets one core",
    example="#SBATCH --cpus-per-task=8\nsrun python train.py",
    instead="srun --cpus-per-task=$SLURM_CPUS_PER_TASK python train.py",
)
def srun_cpus_not_inherited(case: Case) -> Iterator[Hit]:
    """An srun without -c in a job with --cpus-per-task; a note if the site's Slurm version is unknown."""
    request = case.script.request
    cpus = request.values.get("cpus-per-task", "")
    if not cpus or cpus == "1" or "SRUN_CPUS_PER_TASK" in case.script.code or (case.version and case.version < (22, 5)):
        return
    for launch in case.steps:
        is_given = launch.given("cpus-per-task", "cpus-per-gpu", "multi-prog")
        is_given = is_given or not _TO_OWN_CORES.fullmatch(launch.get("cpu-bind") or "")
        if launch.kind != "srun" or is_given or launch.doubtful:
            continue
        text = f"{cpus} cores per task are requested, but this srun has no --cpus-per-task"
        yield Hit(launch.line, text, "srun --cpus-per-task=$SLURM_CPUS_PER_TASK ...", None if case.version else "note")


@rule(
    "per-task-gres-linear",
    evidence=("site",),
    why="Since Slurm 24.11, select/linear rejects GPUs per task",
    example="srun --gpus-per-task=1 ./a.out",
    instead="srun --gpus-per-node=4 ./a.out",
)
def per_task_gres_linear(case: Case) -> Iterator[Hit]:
    """--gpus-per-task if the site's Slurm is 24.11 or newer with select/linear."""
    if case.site is None or not case.site.scheduler.linear or case.version < (24, 11):
        return
    lines = [case.script.request.lines["gpus-per-task"]] if "gpus-per-task" in case.script.request.lines else []
    lines += [step.line for step in case.steps if step.given("gpus-per-task", "tres-per-task")]
    for line in lines:
        yield Hit(line, "this Slurm rejects GPUs per task", "--gpus-per-node=N", "refused")


@rule(
    "gpus-per-task-mismatch",
    "refused",
    why="The tasks of a node cannot use more GPUs than are requested for the node",
    example="#SBATCH --gpus-per-node=4\n#SBATCH --ntasks-per-node=8\n#SBATCH --gpus-per-task=1",
    instead="#SBATCH --gpus-per-node=8",
)
def gpus_per_task_mismatch(case: Case) -> Iterator[Hit]:
    """Tasks per node times GPUs per task exceed the GPUs per node."""
    request = case.script.request
    have = request.gpus_per_node
    if case.script.scheduler != "slurm" or not have:
        return
    counts = [(request.line("gpus-per-task"), request.gpus_per_task, request.node_tasks)]
    counts += [(step.line, step.count("gpus-per-task"), case.step(step).per_node) for step in case.steps]
    for line, per_task, tasks in counts:
        if per_task and tasks and per_task * tasks > have:
            yield Hit(line, f"{counted(tasks, 'task')} x {counted(per_task, 'GPU')} = {per_task * tasks}, "
                      f"but {have} per node are requested", f"#SBATCH --gpus-per-node={per_task * tasks}")  # fmt: skip


@rule(
    "more-gpus-than-node",
    "refused",
    evidence=("site",),
    why="No node of this kind has that many GPUs",
    example="#SBATCH --gpus-per-node=8   (on nodes with 4)",
    instead="#SBATCH --gpus-per-node=4",
)
def more_gpus_than_node(case: Case) -> Iterator[Hit]:
    """More GPUs per node than the site's nodes have."""
    kind, count = case.node_kind, case.script.request.gpus_per_node
    if kind and kind.gpu.count and count and count > kind.gpu.count:
        yield Hit(case.script.request.line("gpus-per-node", "gres", "gpus", "l.select"),
                  f"{count} GPUs per node are requested, but the site's nodes have {kind.gpu.count}",
                  f"request {kind.gpu.count}")  # fmt: skip


@rule(
    "idle-cores",
    evidence=("site",),
    why="An exclusive node is charged whole, including the cores that no task uses",
    example="#SBATCH --exclusive\n#SBATCH --ntasks-per-node=4\n#SBATCH --cpus-per-task=8   (on nodes with 64 cores)",
    instead="#SBATCH --cpus-per-task=16",
)
def idle_cores(case: Case) -> Iterator[Hit]:
    """Tasks that use at most half the cores of an exclusive node."""
    kind, request = case.node_kind, case.script.request
    tasks, cpus = request.node_tasks, request.cpus_per_task
    if not kind or not kind.cores or not tasks or not cpus or case.shares_nodes is not False:
        return
    used = tasks * cpus
    threads = kind.cores * kind.smt
    if used > threads:
        yield Hit(request.line("cpus-per-task"), f"{tasks} tasks x {cpus} CPUs = {used}, but a node has {threads}",
                  f"#SBATCH --cpus-per-task={threads // tasks}", "refused")  # fmt: skip
    elif used * 2 <= kind.cores:
        yield Hit(request.line("cpus-per-task"), f"{kind.cores - used} of {kind.cores} cores of each node stay idle",
                  f"#SBATCH --cpus-per-task={kind.cores // tasks}")  # fmt: skip


@rule(
    "threads-over-cores",
    why="Threads that share a core run in turns: the program gets slower",
    example="#SBATCH --cpus-per-task=4\nexport OMP_NUM_THREADS=16",
    instead="export OMP_NUM_THREADS=$SLURM_CPUS_PER_TASK",
)
def threads_over_cores(case: Case) -> Iterator[Hit]:
    """OMP_NUM_THREADS greater than the cores of a task, or than all of the job on a node of PBS or LSF."""
    slurm = case.script.scheduler == "slurm"
    if slurm and not case.script.request.exclusive:
        yield from _threads_of_node(case)
    yield from _threads_of_sets(case)
    cpus = (case.script.request.cpus_per_task or _default_cores(case)) if slurm else case.slots
    if slurm and case.script.request.exclusive:
        yield from _threads_of_step(case)
    if not cpus or case.script.request.exclusive:
        return
    said = not slurm or bool(case.script.request.cpus_per_task)
    starts = [(launch.environment, launch) for launch in case.launches if not case.is_helper(launch)]
    plain = [(command.environment, None) for command in case.script.commands[-1:] if not case.launches]
    for environment, launch in (*starts, *plain):
        value = environment.get("OMP_NUM_THREADS")
        have = case.step(launch).cpus or cpus if launch and launch.kind == "srun" else cpus
        if slurm and launch is None:  # all cores of the job on its node
            have *= case.script.request.node_tasks or case.script.request.tasks or 1
        if slurm and launch and launch.kind == "mpirun":  # fewer ranks than tasks: each has the cores of several
            have *= max(1, (case.script.request.all_tasks or 0) // (launch.count("np") or 1 << 20))
        if value and value.text.isdecimal() and int(value.text) > have and (launch or value.exported):
            text = f"{value.text} threads on {counted(have, 'core')}"
            remedy = f"export OMP_NUM_THREADS={have}" if said else f"#SBATCH --cpus-per-task={value.text}"
            yield Hit(value.line, text, remedy, None if said else "note")
            return


def _threads_of_step(case: Case) -> Iterator[Hit]:
    """More threads than the cores that a step on whole nodes names for each task, which is bound to them."""
    for launch in case.steps:
        value, have = launch.environment.get("OMP_NUM_THREADS"), launch.count("cpus-per-task")
        bound = "none" not in (launch.get("cpu-bind") or "") and case.innermost(launch)
        if value and value.text.isdecimal() and have and int(value.text) > have and bound:
            yield Hit(value.line, f"{value.text} threads on {counted(have, 'core')}", f"export OMP_NUM_THREADS={have}")
            return


def _threads_of_sets(case: Case) -> Iterator[Hit]:
    """More threads of a rank of jsrun than hardware threads that its set has for it, four on each core (smt4)."""
    smt = re.search(r"\bsmt([124])\b", case.script.request.values.get("alloc_flags") or "smt4")
    for launch in case.steps:
        sets, value = sets_of(launch), launch.environment.get("OMP_NUM_THREADS")
        free = launch.get("bind") in ("none", "rs")  # each rank may use all cores of its set
        have = (sets.cores // (1 if free else sets.ranks)) if sets and sets.cores else 0
        if have and value and value.text.isdecimal() and int(value.text) > have * int(smt[1] if smt else 4):
            yield Hit(value.line, f"{value.text} threads on {counted(have, 'core')}", f"export OMP_NUM_THREADS={have}")
            return


def _default_cores(case: Case) -> int | None:
    """One core for each task that the head counts (sbatch manual, --cpus-per-task); None if it may get others."""
    request = case.script.request
    tasks = request.values.keys() & {"ntasks", "ntasks-per-node"}
    unsure = request.values.keys() & OTHER_CORES or case.shares_nodes is False or case.script.is_filled_in
    several = (request.nodes or 1) > 1  # which are mostly whole ones
    return 1 if tasks and not unsure and not several and "cpus-per-task" not in request.values else None


def _threads_of_node(case: Case) -> Iterator[Hit]:
    """As many threads in each of several tasks on a node as the job has cores there."""
    for launch in case.steps:
        value = launch.environment.get("OMP_NUM_THREADS")
        tasks = case.step(launch).per_node or 1
        if value and tasks > 1 and _ALL_CORES.fullmatch(shown(value.text)):
            text = f"each of {tasks} tasks on a node has as many threads as all of them have cores"
            yield Hit(value.line, text, "export OMP_NUM_THREADS=${SLURM_CPUS_PER_TASK:-1}")
            return


_ALL_CORES = re.compile(r"\$\{?(?:SLURM_CPUS_ON_NODE|SLURM_JOB_CPUS_PER_NODE)\}?|\$\(nproc\)")


@rule(
    "gpu-list-by-hand",
    why="The scheduler sets CUDA_VISIBLE_DEVICES to the GPUs of the job",
    example="#SBATCH --gpus-per-node=4\nexport CUDA_VISIBLE_DEVICES=0,1",
    instead="remove the line",
)
def gpu_list_by_hand(case: Case) -> Iterator[Hit]:
    """Hard-coded GPU numbers; a warning if they name fewer or other GPUs than the job requests."""
    have = case.script.request.node_gpus
    if not case.script.scheduler:
        return
    seen: set[int] = set()
    for resolved, name, text, persists in _settings(case, _GPU_LISTS):
        line = resolved.line
        if have == 1 and re.search(r"(?:SLURM_)?ARRAY_TASK_ID", text) and not is_known(text):
            yield Hit(
                line, f"{name} follows the array's index, and each of its jobs has one GPU, number 0", "remove the line"
            )
        numbers = [int(index) for index in text.split(",") if index.strip().isdecimal()]
        if line in seen or not numbers or not is_known(text):
            continue
        seen.add(line)
        outside = have is not None and have > 0 and max(numbers) >= have
        whole = persists or [id(launch.command) for launch in case.launches] == [id(resolved)]  # or of the only launch
        alone = not resolved.command.background and not resolved.command.within("loop") and whole
        fewer = have is not None and len(set(numbers)) < have and alone and _set_once(case, name)
        if numbers == [*range(have or 0)] and numbers:
            continue  # what the scheduler sets it to
        if outside:
            yield Hit(line, f"{name}={text} names GPU {max(numbers)}, but the job has {have}", "remove the line")
        elif fewer:
            yield Hit(line, f"{name}={text} hides {(have or 0) - len(set(numbers))} of the {have} GPUs of each node",
                      "remove the line, or request fewer GPUs")  # fmt: skip
        else:
            yield Hit(line, f"{name}={text} is hard-coded: its order decides which GPU is cuda:0", severity="note")


def _set_once(case: Case, name: str) -> bool:
    return len(re.findall(rf"\b{name}=", case.script.code)) == 1


def _settings(
    case: Case, names: tuple[str, ...], *, inside: bool = False
) -> Iterator[tuple[ResolvedCommand, str, str, bool]]:
    """Every place where one of the variables is set: its value, and whether it applies to all later commands.

    `inside`: also in the shells of tasks.
    """
    own = [command.resolved for command in case.script.inner] if inside else []
    for resolved in (*case.script.commands, *own):
        for word in resolved.argv[1:] if resolved.argv[:1] == ("export",) else ():
            name, equals, text = word.partition("=")
            if equals and name in names:
                yield resolved, name, text, True
        for assignment in resolved.command.assignments:
            value = resolved.environment.get(assignment.name)
            if assignment.name in names and value:
                yield resolved, assignment.name, value.text, not resolved.argv


@rule(
    "export-twice",
    why="srun and sbatch use only the last --export; separate names with commas",
    example="srun --export=ALL,A=1 --export=B=2 ./a.out",
    instead="srun --export=ALL,A=1,B=2 ./a.out",
)
def export_twice(case: Case) -> Iterator[Hit]:
    """Several --export options of one srun."""
    for launch in case.launches:
        values = [shown(o.value) for o in launch.reading.options if o.name == "export"]
        if launch.kind == "srun" and len(values) > 1 and len(set(values)) > 1:
            yield Hit(launch.line, f"of {len(values)} --export options only the last takes effect: {values[-1]}",
                      f"srun --export={','.join(values)} ...")  # fmt: skip
        elif launch.kind == "srun" and values and _drops_all(values[0]):
            yield Hit(
                launch.line,
                f"--export={values[0]} without ALL drops the rest of the environment",
                f"srun --export=ALL,{values[0]} ...",
                None if values[0].startswith(("OMP_", "CUDA_", "NCCL_")) or "PATH" not in values[0] else "note",
            )


def _drops_all(value: str) -> bool:
    names = value.split(",")
    return "=" in value and not {"ALL", "NONE", "NIL", "all"} & set(names) and not value.startswith("$")


@rule(
    "slow-path-left-on",
    "note",
    why="This is a debugging setting: it disables the fast path between GPUs",
    example="export NCCL_P2P_DISABLE=1",
    instead="remove the line once the cause is found",
)
def slow_path_left_on(case: Case) -> Iterator[Hit]:
    """NCCL_P2P_DISABLE, NCCL_IB_DISABLE, NCCL_SHM_DISABLE or CUDA_LAUNCH_BLOCKING left on."""
    names = ("NCCL_P2P_DISABLE", "NCCL_IB_DISABLE", "NCCL_SHM_DISABLE", "CUDA_LAUNCH_BLOCKING")
    for resolved, name, text, _ in _settings(case, names, inside=True):
        if text == "1":
            yield Hit(resolved.line, f"{name}=1 is left on")


@rule(
    "container-without-gpu",
    "note",
    why="Without --nv or --rocm a container does not see the GPU driver, unless the site adds the option",
    example="singularity exec torch.sif python train.py",
    instead="singularity exec --nv torch.sif python train.py",
)
def container_without_gpu(case: Case) -> Iterator[Hit]:
    """A container without a GPU option in a job with GPUs; a note, since modules and site files can add it."""
    have = case.script.request.node_gpus
    for launch in case.launches:
        system = of_program(command_name(launch.word))
        if launch.kind != "container" or (system and "gpu" not in system.table.flags) or not have or _binds_gpus(case):
            continue
        if not launch.given("nv", "rocm", "nvccli", "gpu", "nccl", "cuda-mpi", "device") and not _hides_options(launch):
            option = "--rocm" if _vendor(case) == "amd" else "--nv" if _vendor(case) == "nvidia" else "--nv or --rocm"
            option, verb = ("--gpu", "run") if system else (option, "exec")
            yield Hit(launch.line, f"{launch.word} runs without {option} in a job with GPUs",
                      f"{launch.word} {verb} {option} ...")  # fmt: skip


def _hides_options(launch: Launch) -> bool:
    """Whether a variable before a container's program may hold options, as $OPTIONS and unlike $IMAGE or -B $A:$A."""
    values = {option.value for option in launch.reading.options}
    words = launch.words[1 : len(launch.words) - len(launch.program)]
    unknown_words = [word for word in words if not is_known(word) and not word.startswith("-") and word not in values]
    return launch.reading.doubtful or any(not _IMAGE.search(shown(word)) for word in unknown_words)


_IMAGE = re.compile(r"\.(?:sif|simg|img|sqsh)$|(?i:image|img|sif|container)\w*\}?$")
_MODULES = re.compile(r"\b(?:module|ml)\b([^\n;&|]*)")
_BINDING = re.compile(r"bindings?|singularity|apptainer|container", re.I)
_PROGRAM = re.compile(r"(?:.*/)?(?:tacc-)?(?:singularity|apptainer)(?:-?(?:ce|pro))?(?:/[\w.+-]+)?", re.I)
"""A module that has the program alone, as ``singularity/3.11``: it adds no option to it."""


def _binds_gpus(case: Case) -> bool:
    """Whether the script's modules or variables, or the site, give its containers the GPUs.

    AMD's devices are visible in a container as they are, and its libraries are a part of the image, so that an image
    for ROCm needs no option where the site has no other policy (LUMI: "Singularity containers").
    """
    code = case.script.code
    modules = " ".join(_MODULES.findall(code)).split()
    if any(_BINDING.search(module) and not _PROGRAM.fullmatch(module) for module in modules):
        return True
    if any(name in code for name in ("_NV=", "_NVCCLI=", "_ROCM=", "_BIND")):
        return True
    policy = case.site.launch.container if case.site else None
    own = {"--nv", "--rocm", "--nvccli"} & set(policy.options) if policy else set()
    return bool(own) or bool(policy and policy.binds and _vendor(case) == "amd")


def _vendor(case: Case) -> str:
    return case.node_kind.gpu.vendor if case.node_kind else ""


def _on_each(count: int | None, nodes: int | None) -> int | None:
    return count // nodes if count and nodes and count % nodes == 0 else None


def launch_gpus(case: Case, launch: Launch) -> int | None:
    """GPUs of a launch on each node: from its own option, else from the head."""
    for outer in (launch, *reversed(launch.via)):
        if outer.kind != "srun":
            continue
        for name in ("gpus-per-node", "gres", "gpus"):
            text = outer.get(name)
            if text:
                count = gpus_of(text) if name == "gres" else number(text.split(":")[-1])
                return _on_each(count, case.step(outer).nodes) if name == "gpus" else count
    return case.script.request.node_gpus
