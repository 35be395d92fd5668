"""Rules on GPUs that a job has for one rank, by a program that uses one."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise

from stackyard.lint.launches import AGENTS, REMOTE, Launch, python_program
from stackyard.lint.rules.base import Case, Hit, is_alone, rule
from stackyard.lint.rules.resources import launch_gpus
from stackyard.lint.rules.schedulers.jsrun import sets_of
from stackyard.lint.shell.scope import ResolvedCommand
from stackyard.lint.shell.words import OPEN, is_known
from stackyard.lint.smallcommands import is_no_program
from stackyard.lint.source import find_program

_MANY_GPUS = re.compile(
    r"DataParallel|device_map|MirroredStrategy|tf\.distribute|\bspawn\b|multiprocessing|subprocess|lightning|\bTrainer\b"
    r"|accelerate|deepspeed|\bray\b|\bjax\b|tensor_parallel|device_count|cuda:[1-9]|horovod|vllm|init_process_group|mpi4py"
    r"|VISIBLE_DEVICES|num_gpus|n_gpus|ngpu|list_physical_devices|\bgpus\b|\bdevices\b|dask|torchrun"
)
_GPU_LIBRARY = re.compile(r"^\s*(?:import|from)\s+(?:torch|tensorflow|keras|cupy)\b", re.M)
_OPTIONS = re.compile(r"arg|opt|flag|param|extra|conf", re.I)
"""In the name of a variable that may hold options."""


@rule(
    "gpus-without-ranks",
    evidence=("script", "source"),
    why="A rank uses one GPU unless its program spreads over several: the others are charged and idle",
    example="#SBATCH --gpus-per-node=4\nsrun -n 1 python train.py",
    instead="#SBATCH --gpus-per-node=1\nsrun -n 1 python train.py",
)
def gpus_without_ranks(case: Case) -> Iterator[Hit]:
    """One rank on a node with several GPUs, by a program that uses one; a note if its source is not found."""
    if not case.script.scheduler or "VISIBLE_DEVICES" in case.script.code:
        return
    if any(launch.kind in (*AGENTS, "horovodrun", "ray") or not is_alone(launch) for launch in case.launches):
        return
    have = _node_gpus(case) or 0
    if have > 1 and not case.steps and not case.launches:
        yield from _plain(case, have)
    alone = case.steps or [launch for launch in case.launches if launch.kind == "container" and not launch.via]
    for launch in alone if len(alone) == 1 else ():
        yield from _set(case, launch) if launch.kind == "jsrun" else _step(case, launch, have) if have > 1 else ()


def _node_gpus(case: Case) -> int | None:
    """GPUs of each node: as requested, or all of the site's node kind where nodes are exclusive."""
    count, kind = case.script.request.node_gpus, case.node_kind
    if count is None and kind and case.shares_nodes is False:
        return kind.gpu.count
    return count


def _python(case: Case, launch: Launch) -> tuple[str, ...] | None:
    """The Python program of a launch, also of the container in it."""
    return next((program for member in case.chain(launch) if (program := case.python(member))), None)


def _set(case: Case, launch: Launch) -> Iterator[Hit]:
    """A jsrun whose resource sets have one rank and several GPUs."""
    sets, program = sets_of(launch), _python(case, launch)
    if sets and program and sets.ranks == 1 and (sets.gpus or 0) > 1:
        hit = _hit(case, launch.line, program, f"jsrun starts 1 rank{{}} in each set with {sets.gpus} GPUs")
        yield from [hit] if hit else []


def _step(case: Case, launch: Launch, have: int) -> Iterator[Hit]:
    step, program = case.step(launch), _python(case, launch)
    per_node = step.per_node or (1 if step.tasks == 1 or launch.kind == "container" else None)
    own = launch_gpus(case, launch) if launch.given("gpus-per-node", "gres", "gpus") else have
    if per_node != 1 or launch.doubtful or not program:
        return
    if own == 1 or launch.get("gpus") == "1":
        text = f"{launch.word} uses 1 of the {have} GPUs of each node"
        yield Hit(launch.line, text, "request 1 GPU, or start one rank per GPU")
        return
    hit = _hit(case, launch.line, program, f"{launch.word} starts 1 rank{{}} on each node with {have} GPUs")
    yield from [hit] if hit else []


def _plain(case: Case, have: int) -> Iterator[Hit]:
    """Programs that the script runs itself, one at a time: none of them may use several GPUs."""
    pairs = [(command, program) for command, program in _programs(case) if not command.command.background]
    pairs = [(command, program) for command, program in pairs if program[0].endswith(".py")]
    single = len(pairs) == 1 and not pairs[0][0].command.within("loop")
    if not _are_all(case) or not (single or case.in_turn):
        return
    text = f"the script starts 1 process{{}}{'' if single else ' at a time'} on each node with {have} GPUs"
    with_gpus = [(command, program) for command, program in pairs if not _needs_none(case, program)]
    hits = [(command, _hit(case, command.line, program, text)) for command, program in with_gpus]
    hit_pairs = [(command, hit) for command, hit in hits if hit]
    if hit_pairs and len(hit_pairs) == len(hits):
        hit = next((hit for command, hit in hit_pairs if command.command.within("loop")), hit_pairs[-1][1])
        yield replace(hit, severity="note") if any(one.severity for _, one in hit_pairs) else hit


def _programs(case: Case) -> list[tuple[ResolvedCommand, tuple[str, ...]]]:
    """The Python programs among the commands of the script, without code on the command line, pip and the like."""
    commands = [command for command in case.script.commands if command.argv and not is_no_program(command.argv)]
    programs = [(command, python_program(command.argv)) for command in commands]
    return [(command, program) for command, program in programs if program and program[0] != "-c"]


def _are_all(case: Case) -> bool:
    """Whether the script starts programs only by commands of its own, each of them a file of Python."""
    if any(command.argv and command.argv[0].rsplit("/", 1)[-1] in REMOTE for command in case.script.commands):
        return False
    programs = _programs(case)
    return all(program[0].endswith(".py") and not command.command.within("function") for command, program in programs)


def _needs_none(case: Case, program: tuple[str, ...]) -> bool:
    """Whether the source of a program is found and uses no GPU."""
    file = find_program(program, case.directories)
    source = file[0].read_text(errors="replace") if file else "import torch"
    return not _GPU_LIBRARY.search(source) and not _MANY_GPUS.search(source)


def _hit(case: Case, line: int, program: tuple[str, ...], text: str) -> Hit | None:
    """The finding for a program that uses one GPU; `text` has a place for its name."""
    file, remedy = find_program(program, case.directories), "one rank per GPU, or fewer GPUs"
    options = " ".join(program[1:])
    if file is None:
        named = program[0].endswith(".py") and not _many(options) and not _may_hold_options(program)
        return Hit(line, text.format(""), remedy, "note") if named else None
    source = file[0].read_text(errors="replace")
    joins = "init_process_group" in source and not re.search(r"\bspawn\b|multiprocessing|subprocess|Process\(", source)
    single = _GPU_LIBRARY.search(source) and not _MANY_GPUS.search(source) and not _many(options)
    return Hit(line, text.format(f" of {program[0]}"), remedy) if joins or single else None


def _many(options: str) -> bool:
    """Whether the options of a program name several GPUs or a way to use them."""
    return bool(_MANY_GPUS.search(options) or re.search(r"n_gpu|device_ids|data[-_]?parallel", options, re.I))


def _may_hold_options(program: tuple[str, ...]) -> bool:
    """Whether a word known only at run time may be options, and not the value of one, as in ``--lr $rate``."""
    for before, word in pairwise(program):
        value = before.startswith("-") and "=" not in before and not _OPTIONS.search(word)
        if not is_known(word) and not value and (word.startswith(OPEN) or before is program[0]):
            return True
    return not is_known(program[0])
