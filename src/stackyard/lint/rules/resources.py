"""Rules on cores, GPUs and threads."""

from __future__ import annotations

import re
from collections.abc import Iterator

from stackyard.lint.launches import Launch
from stackyard.lint.rules.base import Case, Hit, rule
from stackyard.lint.scope import Resolved
from stackyard.lint.words import is_known, shown

_GPU_LISTS = ("CUDA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES")


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
        given = launch.given("cpus-per-task", "cpu-bind", "cpus-per-gpu", "exact", "multi-prog")
        exact = any(o.written == "exclusive" for o in launch.reading.options)
        if launch.kind != "srun" or given or exact or launch.doubtful:
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
    lines += [each.line for each in case.steps if each.given("gpus-per-task", "tres-per-task")]
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
    per_task, tasks, have = request.gpus_per_task, request.tasks_per_node, request.gpus_per_node
    if case.script.scheduler == "slurm" and per_task and tasks and have and per_task * tasks > have:
        yield Hit(
            request.line("gpus-per-task"),
            f"{tasks} tasks x {per_task} GPUs = {per_task * tasks}, but {have} per node are requested",
            f"#SBATCH --gpus-per-node={per_task * tasks}",
        )


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
    kind, asked = case.node_kind, case.script.request.gpus_per_node
    if kind and kind.gpu.count and asked and asked > kind.gpu.count:
        yield Hit(
            case.script.request.line("gpus-per-node", "gres", "gpus", "l.select"),
            f"{asked} GPUs per node are requested, but the site's nodes have {kind.gpu.count}",
            f"request {kind.gpu.count}",
        )


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
        yield Hit(
            request.line("cpus-per-task"),
            f"{tasks} tasks x {cpus} CPUs = {used}, but a node has {threads}",
            f"#SBATCH --cpus-per-task={threads // tasks}",
            "refused",
        )
    elif used * 2 <= kind.cores:
        yield Hit(
            request.line("cpus-per-task"),
            f"{kind.cores - used} of {kind.cores} cores of each node stay idle",
            f"#SBATCH --cpus-per-task={kind.cores // tasks}",
        )


@rule(
    "threads-over-cores",
    why="Threads that share a core run in turns: the program gets slower",
    example="#SBATCH --cpus-per-task=4\nexport OMP_NUM_THREADS=16",
    instead="export OMP_NUM_THREADS=$SLURM_CPUS_PER_TASK",
)
def threads_over_cores(case: Case) -> Iterator[Hit]:
    """OMP_NUM_THREADS greater than the cores of a task."""
    cpus = case.script.request.cpus_per_task
    if case.script.scheduler != "slurm" or not cpus or case.script.request.exclusive:
        return
    for launch in case.launches:
        value = launch.environment.get("OMP_NUM_THREADS")
        have = case.step(launch).cpus or cpus if launch.kind == "srun" else cpus
        if value and value.text.isdecimal() and int(value.text) > have and not case.is_helper(launch):
            yield Hit(value.line, f"{value.text} threads on {have} cores", f"export OMP_NUM_THREADS={have}")
            return


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
        numbers = [int(each) for each in text.split(",") if each.strip().isdecimal()]
        if line in seen or not numbers or not is_known(text):
            continue
        seen.add(line)
        outside = have is not None and have > 0 and max(numbers) >= have
        alone = not resolved.command.background and not resolved.command.within("loop") and persists
        fewer = have is not None and len(set(numbers)) < have and alone and _set_once(case, name)
        if outside:
            yield Hit(line, f"{name}={text} names GPU {max(numbers)}, but the job has {have}", "remove the line")
        elif fewer:
            yield Hit(
                line,
                f"{name}={text} hides {(have or 0) - len(set(numbers))} of the {have} GPUs of each node",
                "remove the line, or request fewer GPUs",
            )
        else:
            yield Hit(line, f"{name}={text} is hard-coded: its order decides which GPU is cuda:0", severity="note")


def _set_once(case: Case, name: str) -> bool:
    return len(re.findall(rf"\b{name}=", case.script.code)) == 1


def _settings(case: Case, names: tuple[str, ...]) -> Iterator[tuple[Resolved, str, str, bool]]:
    """Every place where one of the variables is set: its value, and whether it applies to all later commands."""
    for resolved in case.script.commands:
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
            yield Hit(
                launch.line,
                f"of {len(values)} --export options only the last takes effect: {values[-1]}",
                f"srun --export={','.join(values)} ...",
            )
        elif launch.kind == "srun" and values and _drops_all(values[0]):
            yield Hit(
                launch.line,
                f"--export={values[0]} without ALL drops the rest of the environment",
                f"srun --export=ALL,{values[0]} ...",
                "note",
            )


def _drops_all(value: str) -> bool:
    names = value.split(",")
    return "=" in value and not {"ALL", "NONE", "NIL", "all"} & set(names) and not value.startswith("$")


@rule(
    "preload-comma",
    why="ld.so splits LD_PRELOAD at spaces and colons; a comma makes one file name of two",
    example="export LD_PRELOAD=/a/liba.so,/b/libb.so",
    instead="export LD_PRELOAD=/a/liba.so:/b/libb.so",
)
def preload_comma(case: Case) -> Iterator[Hit]:
    """LD_PRELOAD with commas as separators."""
    pattern = re.compile(r"\bLD_PRELOAD=(\"[^\"]*\"|'[^']*'|\S+)")
    for number, row in enumerate(case.script.text.splitlines(), 1):
        found = pattern.search(row) if not row.lstrip().startswith("#") else None
        if found and "," in found[1] and "--export" not in row[: found.start()]:
            yield Hit(number, f"LD_PRELOAD={found[1]} is separated by commas", found.group().replace(",", ":"))


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
    for resolved, name, text, _ in _settings(case, names):
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
        if launch.kind != "container" or "shifter" in launch.word or not have or _binds_gpus(case):
            continue
        unknown_words = any(not is_known(word) for word in launch.words[: len(launch.words) - len(launch.program)])
        if not launch.given("nv", "rocm", "nvccli") and not unknown_words:
            option = "--rocm" if _vendor(case) == "amd" else "--nv" if _vendor(case) == "nvidia" else "--nv or --rocm"
            yield Hit(
                launch.line,
                f"{launch.word} runs without {option} in a job with GPUs",
                f"{launch.word} exec {option} ...",
            )


_BINDING_MODULE = re.compile(r"\b(?:module|ml)\b[^\n;&|]*\b\S*(?:bindings?|singularity|apptainer|container)\S*", re.I)


def _binds_gpus(case: Case) -> bool:
    """Whether the script's modules or variables, or the site, give its containers the GPUs.

    AMD's devices are visible in a container as they are, and its libraries are a part of the image, so that an image
    for ROCm needs no option where the site has no other policy (LUMI: "Singularity containers").
    """
    code = case.script.code
    if any(name in code for name in ("_NV=", "_NVCCLI=", "_ROCM=", "_BIND")) or _BINDING_MODULE.search(code):
        return True
    policy = case.site.launch.container if case.site else None
    own = {"--nv", "--rocm", "--nvccli"} & set(policy.options) if policy else set()
    return bool(own) or bool(policy and policy.binds and _vendor(case) == "amd")


def _vendor(case: Case) -> str:
    return case.node_kind.gpu.vendor if case.node_kind else ""


def launch_gpus(case: Case, launch: Launch) -> int | None:
    """GPUs of a launch on each node: from its own option, else from the head."""
    for outer in (launch, *reversed(launch.via)):
        if outer.kind != "srun":
            continue
        for name in ("gpus-per-node", "gres", "gpus"):
            text = outer.get(name)
            if text:
                from stackyard.lint.request import gpus_of, number

                return gpus_of(text) if name == "gres" else (number(text.split(":")[-1]) if name != "gpus" else None)
    return case.script.request.node_gpus
