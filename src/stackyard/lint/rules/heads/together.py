"""Mutually exclusive and dependent options: a table for each scheduler, from its manual page.

Slurm's rows were compared with sbatch and srun 22.05: every pair of fifty options, each with a value that is accepted
alone. LSF: "Conflicting options" of each option of bsub(1) of 10.1. PBS: qsub(1B) and req_quejob.c of OpenPBS; -L, -i
and -t are Torque's (qsub_functions.c), and OpenPBS has none of them. Flux: cli/base.py and job/Jobspec.py of flux-core
0.48 to 0.88.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from itertools import product

from stackyard.core.errors import InputError
from stackyard.core.hostlist import expand
from stackyard.lint.request import number
from stackyard.lint.rules.base import Case, Hit, rule

_SLURM: tuple[frozenset[str], ...] = (
    frozenset({"mem", "mem-per-cpu", "mem-per-gpu"}),
    frozenset({"cpus-per-task", "cpus-per-gpu"}),
    frozenset({"core-spec", "thread-spec"}),
    frozenset({"ntasks-per-node", "ntasks-per-gpu"}),
    frozenset({"gpus-per-task", "ntasks-per-gpu"}),
    frozenset({"gpus-per-socket", "ntasks-per-gpu"}),
)
_INTERACTIVE = frozenset({"I", "IS", "ISp", "ISs", "IX", "Ip", "Is"})
_IN_CHUNKS = ["aoe", "arch", "eoe", "host", "mem", "mpiprocs", "ncpus", "ompthreads", "vmem", "vnode"]
"""Resources of PBS that are requested in a select, if there is one."""
_NOT_WITH_L = ["mem", "ncpus", "nodes", "pmem", "procs", "pvmem", "size", "vmem"]
"""Torque's resources that its ``-L`` requests in another form."""
_PER_TASK = ("ntasks", "cores-per-task", "gpus-per-task")
_PER_RESOURCE = ("cores", "tasks-per-node", "tasks-per-core", "gpus-per-node")


def _pairs(ones: Iterable[str], others: Iterable[str]) -> tuple[frozenset[str], ...]:
    return tuple(frozenset(pair) for pair in product(ones, others))


EXCLUDING: Mapping[str, tuple[frozenset[str], ...]] = {
    "slurm": _SLURM,
    "lsf": (
        _INTERACTIVE | {"K"},
        *_pairs(("XF",), ("IX", "K", "r")),
        *_pairs(("hostfile",), ("R", "ext", "m", "n")),
        frozenset({"r", "rn"}),
        frozenset({"i", "is"}),
        frozenset({"o", "oo"}),
        frozenset({"e", "eo"}),
        frozenset({"N", "Ne"}),
        frozenset({"jsdl", "jsdl_strict", "json", "yaml"}),
    ),
    "pbs": (
        frozenset({"l.place", "l.nodes"}),
        *_pairs(("l.select", "l.place"), (f"l.{name}" for name in _IN_CHUNKS)),
        *_pairs(("L",), (f"l.{name}" for name in _NOT_WITH_L)),
        *_pairs(("I",), ("J", "t")),
        frozenset({"J", "r=n"}),
    ),
    "flux": (),
    "flux run": (
        *_pairs(_PER_TASK, _PER_RESOURCE),
        frozenset({"tasks-per-node", "tasks-per-core"}),
        frozenset({"cc", "bcc"}),
    ),
}
"""By scheduler, or by launcher, sets of options of which one can be given; ``r=n`` is an option with this value."""
_GPUS = frozenset({"gpus", "gpus-per-node", "gpus-per-task", "gpus-per-socket", "gres"})
NEEDING: Mapping[str, Mapping[str, frozenset[str]]] = {
    "slurm": {
        "mem-per-gpu": _GPUS,
        "gpus-per-task": frozenset({"gpus", "ntasks", "ntasks-per-node", "nodes"}),
        "gpus-per-socket": frozenset({"sockets-per-node", "extra-node-info"}),
        "ntasks-per-gpu": _GPUS | {"nodes", "ntasks"},
    },
    "lsf": {
        "tty": _INTERACTIVE,
        "ti": frozenset({"w"}),
        "datagrp": frozenset({"data"}),
        "cn_mem": frozenset({"csm=y"}),
    },
    "pbs": {"l.place": frozenset({"l.select"}), "i": frozenset({"t"})},
    "flux": {
        "exclusive": frozenset({"nodes"}),
        "cores-per-slot": frozenset({"nodes", "nslots"}),
        "gpus-per-slot": frozenset({"nodes", "nslots"}),
    },
    "flux run": {
        "exclusive": frozenset({"nodes"}),
        "gpus-per-node": frozenset({"nodes"}),
        "tasks-per-node": frozenset({"nodes", "cores"}),
        "tasks-per-core": frozenset({"nodes", "cores"}),
    },
}
"""By scheduler or launcher: for each option that depends on others, those of which one must be given."""
_SIZES: Mapping[str, frozenset[str]] = {
    "pbs": frozenset({"l.select", "l.nodes", *(f"l.{name}" for name in _IN_CHUNKS)}),
    "flux": frozenset({"nodes", "nslots"}),
}
"""Options for the size of a job: a head without any is submitted with them on the command line."""
_PROGRAMS = {"slurm": "sbatch", "lsf": "bsub", "pbs": "qsub", "flux": "flux batch"}


@rule(
    "options-together",
    "refused",
    why="The scheduler rejects options that exclude each other, and those that lack one they need",
    example="#SBATCH --mem=32G\n#SBATCH --mem-per-cpu=4G",
    instead="#SBATCH --mem=32G",
)
def options_together(case: Case) -> Iterator[Hit]:
    """Options of the head, or of one srun or flux run, that do not go together, or not without another one."""
    kind, own = case.script.scheduler, case.script.own
    if (kind in EXCLUDING or own) and not case.script.is_filled_in and not case.script.foreign:
        lines, values = dict(case.script.request.lines), case.script.request.values
        lines |= {f"{name}={values[name].lower()}": line for name, line in lines.items()}
        excluding, needing = (own.excluding, own.needing) if own else (EXCLUDING[kind], NEEDING[kind])
        program, dashed = (own.program, own.written.__getitem__) if own else (_PROGRAMS[kind], partial(_written, kind))
        sizes = _SIZES.get(kind, frozenset())
        later = frozenset[str]() if sizes & lines.keys() else sizes
        yield from _of(excluding, needing, program, lines, dashed=dashed, later=later)
    for launch in case.launches:
        if launch.kind in ("srun", "flux") and not launch.doubtful and not launch.remote:
            lines = {option.name: launch.line for option in launch.reading.options if option.name}
            rows, program = ("slurm", "srun") if launch.kind == "srun" else ("flux run", " ".join(launch.words[:2]))
            needing = {} if kind and launch.kind == "srun" else NEEDING[rows]
            yield from _of(EXCLUDING[rows], needing, program, lines, dashed=lambda name: f"--{name}")


def _written(kind: str, name: str) -> str:
    name, _, value = name.partition("=")
    if kind == "pbs":
        option, _, resource = name.partition(".")
        return " ".join(filter(None, (f"-{option}", resource, value)))
    return f"{'-' if kind == 'lsf' or len(name) == 1 else '--'}{name} {value}".rstrip()


def _of(
    excluding: Iterable[frozenset[str]], needing: Mapping[str, frozenset[str]], program: str, lines: Mapping[str, int],
    *, dashed: Callable[[str], str], later: frozenset[str] = frozenset(),
) -> Iterator[Hit]:  # fmt: skip
    for row in excluding:
        both = sorted(row & lines.keys(), key=lambda name: (lines[name], name))
        if len(both) > 1:
            text = f"{program} does not take {dashed(both[0])} and {dashed(both[1])} together"
            yield Hit(lines[both[1]], text, f"remove {dashed(both[0])} or {dashed(both[1])}")
    for name, others in needing.items():
        if name in lines and not others & lines.keys():
            names, text = " or ".join(dashed(other) for other in sorted(others)), dashed(name)
            text = f"{program} does not take {text} without {names}"
            if others & later:
                hint = f"add {dashed(min(others))}, here or on the command line"
                yield Hit(lines[name], f"{text}, and the head has no size", hint, "note")
            else:
                yield Hit(lines[name], text, f"add {dashed(min(others))}")


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
    try:
        count = len(expand(value))
    except InputError:  # sbatch says what is wrong with it
        return
    if count > nodes:
        yield Hit(case.script.request.line("nodelist"), f"{count} hosts, and --nodes={nodes}", f"--nodes={count}")
