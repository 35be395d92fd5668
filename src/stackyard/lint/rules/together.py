"""Options that exclude each other, or need each other: a table for each scheduler, from its manual page.

Slurm's rows were compared with sbatch and srun 22.05: every pair of fifty options, each with a value that is accepted
alone. LSF: bsub(1) of 10.1; PBS: qsub(1B) and pbs_resources(7B) of OpenPBS; Flux: flux-batch(1).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial

from stackyard.lint.rules.base import Case, Hit, rule
from stackyard.lint.rules.head import read_by_scheduler

_SLURM: tuple[frozenset[str], ...] = (
    frozenset({"mem", "mem-per-cpu", "mem-per-gpu"}),
    frozenset({"cpus-per-task", "cpus-per-gpu"}),
    frozenset({"core-spec", "thread-spec"}),
    frozenset({"ntasks-per-node", "ntasks-per-gpu"}),
    frozenset({"gpus-per-task", "ntasks-per-gpu"}),
    frozenset({"gpus-per-socket", "ntasks-per-gpu"}),
)
EXCLUDING: Mapping[str, tuple[frozenset[str], ...]] = {
    "slurm": _SLURM,
    "lsf": (frozenset({"r", "rn"}), frozenset({"K", "I"}), frozenset({"o", "oo"}), frozenset({"e", "eo"})),
    "pbs": (frozenset({"l.place", "l.nodes"}), frozenset({"I", "J"})),
    "flux": (),
}
"""By scheduler, sets of options of which one can be given."""
_GPUS = frozenset({"gpus", "gpus-per-node", "gpus-per-task", "gpus-per-socket", "gres"})
NEEDING: Mapping[str, Mapping[str, frozenset[str]]] = {
    "slurm": {
        "mem-per-gpu": _GPUS,
        "gpus-per-task": frozenset({"gpus", "ntasks", "ntasks-per-node", "nodes"}),
        "gpus-per-socket": frozenset({"sockets-per-node", "extra-node-info"}),
        "ntasks-per-gpu": _GPUS | {"nodes", "ntasks"},
    },
    "lsf": {},
    "pbs": {"l.place": frozenset({"l.select"})},
    "flux": {
        "exclusive": frozenset({"nodes"}),
        "cores-per-slot": frozenset({"nslots"}),
        "gpus-per-slot": frozenset({"nslots"}),
    },
}
"""By scheduler, options that are rejected without one of others."""
_PROGRAMS = {"slurm": "sbatch", "lsf": "bsub", "pbs": "qsub", "flux": "flux batch"}


@rule(
    "options-together",
    "refused",
    why="The scheduler rejects options that exclude each other, and those that lack one they need",
    example="#SBATCH --mem=32G\n#SBATCH --mem-per-cpu=4G",
    instead="#SBATCH --mem=32G",
)
def options_together(case: Case) -> Iterator[Hit]:
    """Options of the head, or of one srun, that the scheduler does not take together, or not without another one."""
    kind, own = case.script.scheduler, case.script.own
    if (kind in EXCLUDING or own) and not case.script.is_filled_in and not case.script.foreign:
        lines = {option.name: each.line for each in read_by_scheduler(case) for option in each.options if option.name}
        given = {name: lines.get(name, lines.get(name.partition(".")[0], 1)) for name in case.script.request.values}
        excluding, needing = (own.excluding, own.needing) if own else (EXCLUDING[kind], NEEDING[kind])
        program, dashed = (own.program, own.written.__getitem__) if own else (_PROGRAMS[kind], partial(_written, kind))
        yield from _of(excluding, needing, program, given, dashed=dashed)
    for launch in case.launches:
        if launch.kind == "srun" and not launch.doubtful and not launch.remote:
            given = {option.name: launch.line for option in launch.reading.options if option.name}
            needing = {} if kind else NEEDING["slurm"]
            yield from _of(EXCLUDING["slurm"], needing, "srun", given, dashed=lambda name: f"--{name}")


def _written(kind: str, name: str) -> str:
    if kind == "pbs":
        option, _, resource = name.partition(".")
        return f"-{option} {resource}".rstrip()
    return f"-{name}" if kind == "lsf" or len(name) == 1 else f"--{name}"


def _of(
    excluding: Iterable[frozenset[str]], needing: Mapping[str, frozenset[str]], program: str, given: Mapping[str, int],
    *, dashed: Callable[[str], str],
) -> Iterator[Hit]:  # fmt: skip
    for row in excluding:
        both = sorted(row & given.keys(), key=lambda name: given[name])
        if len(both) > 1:
            text = f"{program} does not take {dashed(both[0])} and {dashed(both[1])} together"
            yield Hit(given[both[1]], text, f"remove {dashed(both[0])} or {dashed(both[1])}")
    for name, others in needing.items():
        if name in given and not others & given.keys():
            wanted, text = " or ".join(dashed(other) for other in sorted(others)), dashed(name)
            yield Hit(given[name], f"{program} does not take {text} without {wanted}", f"add {dashed(min(others))}")
