"""Rules on the containers that a scheduler starts: Pyxis, EDF, uenv, Shifter, podman-hpc, Sarus."""

from __future__ import annotations

import re
from collections.abc import Iterator
from fnmatch import fnmatchcase

from stackyard.core.findings import Severity
from stackyard.lint.launches import Launch
from stackyard.lint.rules.base import Case, Hit, rule
from stackyard.lint.shell.words import is_known, shown
from stackyard.lint.systems import EDF, PODMAN, PYXIS, UENV
from stackyard.lint.systems.uses import ContainerUse, Given, uses

_SLURM_INSIDE = re.compile(r"slurm|munge")


@rule(
    "batch-script-in-image",
    why="The script then starts in the image, on the first node: srun is not there, and nothing runs on other nodes",
    example="#SBATCH --nodes=2\n#SBATCH --container-image=./pytorch.sqsh\nsrun python train.py",
    instead="#SBATCH --nodes=2\nsrun --container-image=./pytorch.sqsh python train.py",
)
def batch_script_in_image(case: Case) -> Iterator[Hit]:
    """An image in the head of a script that uses several nodes, or starts ranks; a note where srun may be inside."""
    head = next((use for use in uses(case) if use.encloses and _head_image(use)), None)
    if not head or not (given := _head_image(head)):
        return
    bound = any(_SLURM_INSIDE.search(str(bind)) for bind, _ in head.binds[0])
    severity: Severity | None = "note" if bound or head.system is EDF else None
    srun = next((launch for launch in case.launches if launch.kind == "srun" and not launch.via), None)
    nodes = case.nodes or 0
    if srun or nodes > 1:
        what = f"it calls srun on line {srun.line}" if srun else f"{nodes - 1} of {nodes} nodes have nothing to do"
        yield Hit(given.line, f"--{given.name} puts the batch script itself into the image, and {what}",
                  f"srun --{given.name}={shown(given.value)} ...", severity)  # fmt: skip


def _head_image(use: ContainerUse) -> Given | None:
    return next((each for each in use.of("image") if each.place == "head"), None)


@rule(
    "container-without-image",
    why="Without an image the rest is ignored: the program runs on the host, with exit status 0",
    example="srun --container-mounts=/data:/data python train.py",
    instead="srun --container-image=./pytorch.sqsh --container-mounts=/data:/data python train.py",
)
def container_without_image(case: Case) -> Iterator[Hit]:
    """Options for a container, or a view of a uenv, and no image."""
    for use in uses(case):
        first = next((each for each in use.given if each.name not in ("uenv-passthrough", "repo")), None)
        named = use.image or any(each.name == "container-name" for each in use.given)
        hidden = use.launch is not None and use.launch.doubtful
        if use.system in (PYXIS, UENV) and first and not named and not hidden:
            option = "uenv" if use.system is UENV else "container-image"
            yield Hit(first.line, f"--{first.name} has no effect without --{option}", f"--{option}=...")
            return


@rule(
    "image-reference",
    why="Each program has its own grammar for images and mounts: Enroot ends a registry with #, Docker's with /",
    example="srun --container-image=nvcr.io/nvidia/pytorch:25.01-py3 --container-mounts=data:/data ./train",
    instead="srun --container-image=nvcr.io#nvidia/pytorch:25.01-py3 --container-mounts=./data:/data ./train",
)
def image_reference(case: Case) -> Iterator[Hit]:
    """An image, an EDF, a uenv or a mount in a form that its program rejects, or takes for something else."""
    for directive in case.script.directives if case.script.scheduler == "slurm" else ():
        cut = re.search(r"--container-image(?:=|\s+)([^\s#\"'\\]+)#([^\s\"']+)", directive.text)
        if cut and directive.state == "read":
            yield Hit(directive.line, f"sbatch takes # for the beginning of a comment: the image is {cut[1]}",
                      f"#SBATCH --container-image={cut[1]}\\#{cut[2]}", "refused")  # fmt: skip
    for use in uses(case):
        images = [(fault, each.line) for each in use.of("image")[:1] for fault in use.system.faults(each.value)]
        for fault, line in (*images, *use.binds[1]):
            if not _UNFILLED.search(fault.text):
                yield Hit(line, shown(fault.text), shown(fault.better), fault.severity)


_UNFILLED = re.compile(r"<[^>]*>|\{\{|\{%")


@rule(
    "container-flag-value",
    "refused",
    why="These options take no value: the word behind one is the program, and one behind = is rejected",
    example="srun --container-image=./i.sqsh --container-writable true python train.py",
    instead="srun --container-image=./i.sqsh --container-writable python train.py",
)
def container_flag_value(case: Case) -> Iterator[Hit]:
    """``true`` or ``false`` behind a switch of Pyxis."""
    for use in uses(case):
        launch, switches = use.launch, use.system.table.flags if use.system in (PYXIS, EDF) else {}
        for each in use.given:
            if each.name in switches and each.value and each.place != "variable":
                yield Hit(each.line, f"--{each.name} takes no value", f"--{each.name}")
        if launch and launch.program[:1] and launch.program[0] in _VALUES:
            before = launch.words[len(launch.words) - len(launch.program) - 1]
            if before.lstrip("-") in switches:
                yield Hit(launch.line, f"{before} takes no value: {launch.program[0]} is the program", before)


_VALUES = ("true", "false", "yes", "no", "1", "0")


@rule(
    "path-not-in-image",
    why="A container of Pyxis has an empty /tmp of its own, and the home directory only by an option or by the site",
    example="srun --container-image=./i.sqsh --no-container-mount-home python ~/train.py",
    instead="srun --container-image=./i.sqsh --container-mount-home python ~/train.py",
)
def path_not_in_image(case: Case) -> Iterator[Hit]:
    """A program in an image that names the home directory, or a file that an earlier command makes in /tmp."""
    for use in uses(case):
        if use.system is not PYXIS or not use.launch or use.encloses or not use.image:
            continue
        names, text = {each.name for each in use.given}, case.program_text(use.launch)
        places = tuple(shown(bind.target) for bind, _ in use.binds[0])
        home = re.search(r"(?:\$\{?HOME\b\}?|(?:^|(?<=[\s\"'=]))~)(?:/[^\s\"';:,]*)?", text)
        mounted = re.search(r"^(?:\$\{?HOME\b|/home\b|/users?\b|~)", "\n".join(places), re.M)
        if home and not mounted and "container-mount-home" not in names and "ENROOT_MOUNT_HOME" not in case.script.code:
            severity: Severity | None = None if "no-container-mount-home" in names else "note"
            yield Hit(use.launch.line, f"{home[0]} is in the home directory, which is not in the image",
                      "--container-mount-home", severity)  # fmt: skip
        for path in re.findall(r"(?<![\w.])/tmp/[\w.-]+", text)[:1]:
            before = [(each.line, " ".join(each.argv)) for each in case.script.commands if each.line < use.launch.line]
            line = next((line for line, words in before if path in words and "container-image" not in words), 0)
            if line and not path.startswith(places):
                yield Hit(use.launch.line, f"{path} of line {line} is not in the image", "--container-mounts=/tmp:/tmp")


@rule(
    "image-not-entered",
    why="The option makes the image available on the nodes: only what follows `shifter` runs in it",
    example="#SBATCH --image=docker:nersc/pytorch:24.06\nsrun python train.py",
    instead="#SBATCH --image=docker:nersc/pytorch:24.06\nsrun shifter python train.py",
)
def image_not_entered(case: Case) -> Iterator[Hit]:
    """An image of Shifter in the head, and no program behind ``shifter``; a note where another script may have it."""
    for directive in case.script.directives if case.script.scheduler == "slurm" else ():
        image = next((option for option in directive.options if option.written == "image"), None)
        if directive.state == "read" and image and "shifter" not in case.script.code:
            scripts = [launch for launch in case.launches if _runs_a_script(launch)]
            severity: Severity | None = "note" if scripts or not case.steps else None
            yield Hit(directive.line, "no launch line starts its program with shifter", "srun shifter ...", severity)
            return


def _runs_a_script(launch: Launch) -> bool:
    return any(not is_known(word) or word.endswith((".sh", ".bash")) for word in launch.program[:2])


@rule(
    "variables-left-outside",
    why="podman-hpc passes SLURM_*, PALS_* and PMI_* into the container, and others only by -e",
    example="export MASTER_ADDR=$(hostname)\nsrun podman-hpc run --rm --gpu pytorch:1 python train.py",
    instead="export MASTER_ADDR=$(hostname)\nsrun podman-hpc run --rm --gpu -e MASTER_ADDR pytorch:1 python train.py",
)
def variables_left_outside(case: Case) -> Iterator[Hit]:
    """A variable for the ranks that podman-hpc does not pass on."""
    for use in uses(case):
        launch = use.launch
        if use.system is not PODMAN or not launch or {"env-host", "env-file"} & {each.name for each in use.given}:
            continue
        passed = [each.value.partition("=")[0] for each in use.of("variables")]
        passed += [pattern for switch, pattern in _OF_SWITCHES.items() if launch.given(switch)]
        lost = [
            name for name, value in launch.environment.items()
            if value.exported and value.line and _FOR_RANKS.fullmatch(name)
            and not any(fnmatchcase(name, pattern) for pattern in passed)
            and not re.search(rf"\b{name}=", case.program_text(launch))
        ]  # fmt: skip
        if lost and not launch.doubtful:
            remedy = " ".join(f"-e {name}" for name in lost)
            yield Hit(launch.line, f"not passed into the container: {', '.join(lost)}", remedy)


_FOR_RANKS = re.compile(r"MASTER_(?:ADDR|PORT)|WORLD_SIZE|OMP_\w+|(?:NCCL|FI|MPICH|CUDA|TORCH|HF|WANDB)_\w+")
_OF_SWITCHES = {"cuda-mpi": "MPICH_GPU_*", "nccl": "FI_*"}
"""Variables that switches of podman-hpc set in the container."""
