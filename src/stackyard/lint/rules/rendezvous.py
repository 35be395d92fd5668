"""Rules on how ranks find each other: variables that a program reads, and the rendezvous of torchrun's agents."""

from __future__ import annotations

import re
from collections.abc import Iterator

from stackyard.lint.groups import Group
from stackyard.lint.launches import AGENTS, RANKS, Launch
from stackyard.lint.rules.base import Case, Hit, rule
from stackyard.lint.rules.torch import nnodes
from stackyard.lint.shell.words import is_known, shown

_EVERY_TASK = {
    "slurm": "RANK=$SLURM_PROCID LOCAL_RANK=$SLURM_LOCALID WORLD_SIZE=$SLURM_NTASKS",
    "flux": "RANK=$FLUX_TASK_RANK LOCAL_RANK=$FLUX_TASK_LOCAL_ID WORLD_SIZE=$FLUX_JOB_SIZE",
    "lsf": "RANK=$JSM_NAMESPACE_RANK LOCAL_RANK=$JSM_NAMESPACE_LOCAL_RANK WORLD_SIZE=$JSM_NAMESPACE_SIZE",
    "pbs": "RANK=$PMI_RANK LOCAL_RANK=$PMI_LOCAL_RANK WORLD_SIZE=$PMI_SIZE",
}
_SMALL_FILES = re.compile(
    r"(?:activate|conda\.sh|mamba\.sh|\.bashrc|\.bash_profile|\.profile|/etc/profile\S*|lmod\S*)$"
)


@rule(
    "group-without-variables",
    "refused",
    evidence=("source",),
    why="srun, mpirun, jsrun and flux do not set MASTER_ADDR, RANK and WORLD_SIZE, which init_process_group reads",
    example="srun python train.py   (which calls init_process_group, and nothing sets RANK)",
    instead="srun bash -c 'RANK=$SLURM_PROCID WORLD_SIZE=$SLURM_NTASKS exec python train.py'",
)
def group_without_variables(case: Case) -> Iterator[Hit]:
    """A program that calls init_process_group while neither it nor the script sets what that reads."""
    for launch in case.launches:
        outer = launch if launch.kind in RANKS else launch.ranks_of
        agent = any(member.kind in (*AGENTS, "horovodrun") for member in (launch, *launch.via))
        if outer is None or agent or not case.innermost(launch) or case.is_helper(launch):
            continue
        group, tasks = case.group(launch), case.step(outer).tasks
        if group is None or (group.guarded and tasks == 1):
            continue
        missing = [name for name in group.needs if not is_set(case, launch, name)]
        if missing:
            yield _without(case, launch, outer, group, missing)


def _without(case: Case, launch: Launch, outer: Launch, group: Group, missing: list[str]) -> Hit:
    text = f"{group.file}:{group.line} joins a process group, but nothing sets {', '.join(missing)}"
    start = _EVERY_TASK.get(case.script.scheduler, "RANK=... WORLD_SIZE=...")
    own = outer.program
    if own and own[0].rsplit("/", 1)[-1] in ("bash", "sh"):
        own = ("python", *(case.python(launch) or ()))
    head = outer.words[: len(outer.words) - len(outer.program)]
    remedy = f"export MASTER_ADDR=... ; {shown(' '.join(head))} bash -c '{start} exec {shown(' '.join(own))}'"
    unread = any(text is None for text in _sourced(case, launch))
    if group.guarded:
        return Hit(launch.line, f"{text}: every task runs alone", remedy, "note" if unread else "warning")
    return Hit(launch.line, text, remedy, "note" if unread else None)


def is_set(case: Case, launch: Launch, name: str) -> bool:
    """Whether the script, the shell or the worker script of the tasks gives them a variable."""
    value = launch.environment.get(name)
    if value is not None and value.line:
        return value.exported or bool(re.search(rf"^\s*set\s+-\w*a|\bexport\b[^\n]*\b{name}\b", case.script.code, re.M))
    pattern = re.compile(rf"\b{name}=")
    worker = [f"{assignment.name}=" for resolved in case.worker(launch) for assignment in resolved.command.assignments]
    worker += [shown(" ".join(command.argv)) for command in case.worker(launch)]
    texts = [case.script.code, *worker, *(text for text in _sourced(case, launch) if text)]
    return any(pattern.search(text) for text in texts)


def _sourced(case: Case, launch: Launch) -> Iterator[str | None]:
    """The texts of the files that the script or the shells of the tasks source; None for one that is not found."""
    commands = [*case.script.commands, *case.worker(launch), *(command.resolved for command in case.script.inner)]
    for resolved in commands:
        if resolved.argv[:1] in (("source",), (".",)) and len(resolved.argv) > 1:
            name = shown(resolved.argv[1])
            text = case.text_of(name)
            if text is not None or not _SMALL_FILES.search(name):
                yield text


@rule(
    "torchrun-no-rendezvous",
    why="By default each agent is node 0 and waits for the others on its own localhost: they never meet",
    example="srun torchrun --nnodes=2 --nproc_per_node=4 train.py",
    instead="srun torchrun --nnodes=2 --nproc_per_node=4 --rdzv_backend=c10d --rdzv_endpoint=$HEAD:29500 train.py",
)
def torchrun_no_rendezvous(case: Case) -> Iterator[Hit]:
    """Agents on several nodes without an endpoint, or with the static one and without --node_rank."""
    for launch in case.launches:
        agents = nnodes(launch) if launch.kind in ("torchrun", "accelerate") else None
        if not agents or agents < 2 or launch.doubtful or launch.given("config_file", "standalone"):
            continue
        if not launch.ranks_of and not launch.remote and not launch.command.command.background:
            continue  # torchrun-first-node-only has said so
        missing = _torchrun(case, launch) if launch.kind == "torchrun" else _accelerate(launch)
        if missing:
            yield Hit(launch.line, f"{agents} {launch.kind} agents, but {missing[0]}", missing[1])


def _torchrun(case: Case, launch: Launch) -> tuple[str, str] | None:
    """The missing options, and the correction. `torchrun` also reads its options from variables ``PET_*``."""
    preset = "PET_" in case.script.code
    dynamic = launch.get("rdzv_backend") not in (None, "static")
    start = "--rdzv_backend=c10d --rdzv_endpoint=$MASTER_ADDR:29500"
    if preset or not is_known(launch.get("rdzv_backend") or ""):
        return None
    if not launch.given("rdzv_endpoint") and (dynamic or not launch.given("master_addr")):
        return "no --rdzv_endpoint: each waits on its own localhost", f"torchrun {start} ..."
    if not dynamic and not launch.given("node_rank"):
        return "neither --rdzv_backend=c10d nor --node_rank: each is node 0", f"torchrun {start} ..."
    return None


def _accelerate(launch: Launch) -> tuple[str, str] | None:
    dynamic = launch.get("rdzv_backend") not in (None, "static")
    if not launch.given("main_process_ip"):
        return (
            "no --main_process_ip: each waits on its own localhost",
            "accelerate launch --main_process_ip=$MASTER_ADDR ...",
        )
    if not dynamic and not launch.given("machine_rank"):
        return "no --machine_rank: each is machine 0", "accelerate launch --machine_rank=$SLURM_NODEID ..."
    return None
