"""Rules on parts of a script that are evaluated once but needed per task, or per task but needed once."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from stackyard.lint.launches import AGENTS, RANKS, Launch
from stackyard.lint.rules.base import Case, Hit, rule
from stackyard.lint.shell.scope import ResolvedCommand
from stackyard.lint.shell.words import OPEN, TASK

_PER_TASK = re.compile(
    r"\$\{?(SLURM_PROCID|SLURM_LOCALID|SLURM_NODEID|OMPI_COMM_WORLD_(?:LOCAL_)?RANK|PMI_RANK|PMIX_RANK|JSM_NAMESPACE_(?:LOCAL_)?RANK"
    r"|PALS_(?:LOCAL_)?RANKID|MPI_LOCALRANKID|FLUX_TASK_(?:RANK|LOCAL_ID))\b"
)
_IDENTITY = re.compile(
    r"^(?:RANK|LOCAL_RANK|NODE_RANK|WORLD_RANK|GLOBAL_RANK|GROUP_RANK|MACHINE_RANK|NODE_ID|SLURM_PROCID|(?:CUDA|HIP|ROCR)_VISIBLE_DEVICES)$",
    re.I,
)


@rule(
    "rank-in-batch-body",
    why="The batch script runs once, on the first node: every task gets the same value, 0 or empty",
    example="export RANK=$SLURM_PROCID\nsrun python train.py",
    instead="srun bash -c 'RANK=$SLURM_PROCID exec python train.py'",
)
def rank_in_batch_body(case: Case) -> Iterator[Hit]:
    """RANK, LOCAL_RANK or --node_rank set in the batch script from a variable that only tasks have."""
    single = case.script.request.nodes == 1 and (case.script.request.all_tasks or 1) == 1
    tasks = [launch for launch in case.launches if launch.kind in RANKS and not case.is_helper(launch)]
    if not case.script.scheduler or single or not tasks:
        return
    done: set[int] = set()
    last = max(task.line for task in tasks)
    for resolved in case.script.commands:
        if resolved.command.within("function") or resolved.line > last:
            continue
        pairs = [word.partition("=")[::2] for word in resolved.argv[1:]] if resolved.argv[:1] == ("export",) else []
        pairs += [
            (assignment.name, resolved.environment[assignment.name].text)
            for assignment in resolved.command.assignments
            if assignment.name in resolved.environment
        ]
        for name, text in pairs:
            match = _PER_TASK.search(text)
            if match and _IDENTITY.match(name) and OPEN in text and _matters(case, resolved, match[1]):
                done.add(resolved.line)
                yield Hit(resolved.line, f"{name} is set from ${match[1]} before any task runs",
                          f"srun bash -c '{name}=${match[1]} exec ...'")  # fmt: skip
    yield from _options(case, done)


def _matters(case: Case, resolved: ResolvedCommand, source: str) -> bool:
    """Whether a task gets the value: it is exported or used in a later launch line; agents with c10d ignore it."""
    names = {word.partition("=")[0] for word in resolved.argv[1:]} | {
        assignment.name for assignment in resolved.command.assignments
    }
    for launch in case.launches:
        if launch.line < resolved.line:
            continue
        if any(launch.environment[name].exported for name in names if name in launch.environment):
            return True
        numbered = launch.kind in AGENTS and launch.get("rdzv_backend") not in (None, "static")
        ranks = {launch.get("node_rank"), launch.get("machine_rank")} if numbered else set()
        own = [word for word in launch.words if TASK not in word and word not in ranks]
        agents = any(launch in inner.via and inner.kind in AGENTS for inner in case.launches)
        if not agents and any(re.search(rf"{OPEN}\$\{{?{source}\b", word) for word in own):
            return True
    return False


def _options(case: Case, done: set[int]) -> Iterator[Hit]:
    for launch in case.steps:
        agents = any(launch in inner.via and inner.kind in AGENTS for inner in case.launches)
        words = [word for word in launch.program if TASK not in word] if not agents and launch.line not in done else []
        found = re.search(rf"{OPEN}\$\{{?(SLURM_(?:PROCID|LOCALID|NODEID))\b", " ".join(words))
        if found and launch.kind == "srun" and (case.step(launch).tasks or 2) > 1:
            yield Hit(launch.line, f"${found[1]} is expanded in the batch script, before srun: each task gets the same",
                      f"srun bash -c '... ${found[1]} ...'   (single quotes)")  # fmt: skip
    for launch in case.launches:
        outer = launch.ranks_of
        if launch.kind not in AGENTS or outer is None or launch.remote:
            continue
        text = launch.get("node_rank") or launch.get("machine_rank") or ""
        match = _PER_TASK.search(text)
        if (
            match
            and TASK not in text
            and OPEN in text
            and launch.line not in done
            and not outer.command.command.within("loop")
            and launch.get("rdzv_backend") in (None, "static")  # the rendezvous assigns the numbers
        ):
            yield Hit(launch.line,
                      f"${match[1]} is expanded in the batch script, before srun: every node gets the same value",
                      f"srun bash -c '... --node_rank=${match[1]} ...'   (single quotes)")  # fmt: skip


@rule(
    "activate-per-rank",
    why="Every task reads thousands of small files before it starts; doing it once in the batch script is enough",
    example='srun bash -c "conda activate torch; python train.py"',
    instead="conda activate torch\nsrun python train.py",
)
def activate_per_rank(case: Case) -> Iterator[Hit]:
    """conda activate or module load in the shell of every task, not in a container; a note with one task per node."""
    yield from _conda_run(case)
    for inner in case.script.inner:
        argv, launch = inner.resolved.argv, inner.launch
        chain = (*launch.via, launch)
        outer = next((member for member in reversed(chain) if member.kind in RANKS), None)
        inside = any(member.kind == "container" for member in chain)
        if inside or not _activates(argv) or outer is None or outer.kind == "flux":
            continue
        step = case.step(outer)
        if step.tasks == 1 or _in_image(case, outer):
            continue
        many = (step.per_node is None or step.per_node > 1) and not _is_venv(argv)
        known = step.tasks is not None or step.per_node is not None
        yield Hit(inner.line, f"every task runs {' '.join(argv[:3])}",
                  f"{' '.join(argv[:3])}   (before {outer.kind})", None if many and known else "note")  # fmt: skip


def _activates(argv: Sequence[str]) -> bool:
    """``conda activate x``, ``source activate x``, ``source env/bin/activate``, ``module load x``, ``ml x``."""
    if len(argv) < 2 or argv[0] not in ("conda", "mamba", "micromamba", "source", ".", "module", "ml"):
        return False
    return argv[0] == "ml" or argv[1] in ("activate", "load", "add", "purge") or argv[1].endswith("/activate")


def _is_venv(argv: Sequence[str]) -> bool:
    """Whether it activates a Python venv: one small file."""
    return argv[0] in ("source", ".") and len(argv) == 2


def _conda_run(case: Case) -> Iterator[Hit]:
    """``srun conda run -n env python train.py``: every task activates the same environment."""
    for launch in case.steps:
        step, words = case.step(launch), launch.program[:2]
        if words in (("conda", "run"), ("mamba", "run"), ("micromamba", "run")) and step.tasks != 1:
            known = step.per_node is not None and step.per_node > 1
            remedy = f"conda activate ...   (before {launch.kind})"
            yield Hit(launch.line, f"every task runs {' '.join(words)}", remedy, None if known else "note")


@rule(
    "activate-per-rank-in-script",
    evidence=("source",),
    why="Every task reads thousands of small files before it starts; doing it once in the batch script is enough",
    example="srun ./worker.sh   (whose second line is: conda activate torch)",
    instead="conda activate torch\nsrun ./worker.sh",
)
def activate_per_rank_in_script(case: Case) -> Iterator[Hit]:
    """conda activate or module load in a shell script that every task runs, if that script is found."""
    for launch in case.steps:
        step = case.step(launch)
        if step.tasks == 1 or step.per_node == 1 or _in_image(case, launch):
            continue
        name = next((word for word in launch.program[:2] if word.endswith((".sh", ".bash"))), "")
        for resolved in case.worker(launch):
            argv = resolved.argv
            if _activates(argv) and not _is_venv(argv):
                text = f"{name}:{resolved.line}: every task runs {' '.join(argv[:3])}"
                known = step.tasks is not None or step.per_node is not None
                yield Hit(
                    launch.line, text, f"{' '.join(argv[:3])}   (before {launch.kind})", None if known else "note"
                )


def _in_image(case: Case, outer: Launch) -> bool:
    """Whether the tasks run in an image that srun itself mounts: Pyxis, uenv, CSCS's container engine."""
    options = (option for each in case.script.directives if each.state == "read" for option in each.options)
    return any(option.written in _IMAGES for option in (*outer.reading.options, *options))


_IMAGES = ("container-image", "container-name", "environment", "uenv", "image", "container")
