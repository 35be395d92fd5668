"""Rules on what only PBS has: short names of jobs, and a script that begins in the home directory."""

from __future__ import annotations

import re
from collections.abc import Iterator

from stackyard.core.hints import nearest
from stackyard.lint.launches import python_program
from stackyard.lint.rules.base import Case, Hit, is_template, rule
from stackyard.lint.shell.scope import ResolvedCommand


@rule(
    "pbs-name-length",
    "note",
    why="PBS before 2020 and Torque accept job names of at most 15 characters",
    example="#PBS -N resnet50-training-on-imagenet",
    instead="#PBS -N resnet50-train",
)
def pbs_name_length(case: Case) -> Iterator[Hit]:
    """A PBS job name of more than 15 characters."""
    name = case.script.request.name
    if case.script.scheduler == "pbs" and len(name) > 15 and not is_template(name):
        yield Hit(
            case.script.request.line("N"), f"the job name {name!r} has {len(name)} characters", f"#PBS -N {name[:15]}"
        )


@rule(
    "pbs-name",
    "refused",
    why="qsub takes letters, digits and + - . _ in a name",
    example="#PBS -N run%1",
    instead="#PBS -N run-1",
)
def pbs_name(case: Case) -> Iterator[Hit]:
    """A job name with other characters than those that PBS takes."""
    name = case.script.request.name
    odd = re.search(r"[^\w.+-]", name)
    if case.script.scheduler == "pbs" and odd and not is_template(name) and "$" not in name:
        better = re.sub(r"[^\w.+-]", "-", name)
        yield Hit(case.script.request.line("N"), f"{odd[0]!r} in the job name {name!r}", f"#PBS -N {better}")


_RESOURCES = [
    "walltime",
    "cput",
    "pcput",
    "mem",
    "pmem",
    "vmem",
    "pvmem",
    "ncpus",
    "ngpus",
    "naccelerators",
    "mpiprocs",
    "ompthreads",
    "nodes",
    "select",
    "place",
    "procs",
    "file",
    "nice",
    "software",
    "host",
    "vnode",
    "arch",
    "filesystems",
    "min_walltime",
    "max_walltime",
    "gpus",
    "ppn",
    "feature",
    "pcmem",
]
_OF_NODES = ("ppn", "gpus", "mics", "procs", "tpp", "shared", "exclusive")


@rule(
    "pbs-resource",
    "refused",
    why="qsub rejects a resource that its server does not know, and in nodes= all but ppn and properties",
    example="#PBS -l wallltime=24:00:00",
    instead="#PBS -l walltime=24:00:00",
)
def pbs_resource(case: Case) -> Iterator[Hit]:
    """A resource of PBS that is misspelt, or one of the job in ``nodes=``."""
    values, request = case.script.request.values, case.script.request
    if case.script.scheduler != "pbs" or case.script.is_filled_in:
        return
    chunks = re.findall(r"[:+=]([a-z]\w*)=", values.get("l.select", ""))
    names = [(name[2:], name) for name in values if name[:2] == "l."] + [(name, "l.select") for name in chunks]
    for name, option in names:
        like = next(iter(nearest(name, _RESOURCES, cutoff=0.85)), "") if name not in _RESOURCES else ""
        if like and abs(len(like) - len(name)) < 3:
            yield Hit(request.line(option), f"no resource {name}: did you mean {like}?", f"{like}=...")
    for name in re.findall(r":(\w+)=", values.get("l.nodes", "")):
        if name in _RESOURCES and name not in _OF_NODES:
            yield Hit(request.line("l.nodes"), f"{name} is not a part of nodes=", f"#PBS -l {name}=...")


_TORQUE = ("b", "d", "D", "F", "K", "L", "n", "t", "T", "w")
"""Options of Torque's qsub that OpenPBS and PBS Pro do not have."""


@rule(
    "torque-option",
    "refused",
    why="The head is one of PBS Pro or OpenPBS, whose qsub rejects the options that only Torque has",
    example="#PBS -l select=1:ncpus=8\n#PBS -d /scratch/work",
    instead="#PBS -l select=1:ncpus=8\ncd /scratch/work",
)
def torque_option(case: Case) -> Iterator[Hit]:
    """An option of Torque in a head with ``select``."""
    values, instead = case.script.request.values, {"d": "cd DIRECTORY", "t": "-J FIRST-LAST", "F": "-v NAME=VALUE"}
    for name in _TORQUE if case.script.scheduler == "pbs" and "l.select" in values else ():
        if name in values:
            remedy = instead.get(name, "leave it out")
            yield Hit(case.script.request.line(name), f"-{name} is an option of Torque, and select of PBS Pro", remedy)


@rule(
    "pbs-working-folder",
    "note",
    why="A PBS job starts in the home directory, not in the directory of qsub",
    example="mpiexec -n 8 ./a.out",
    instead="cd $PBS_O_WORKDIR\nmpiexec -n 8 ./a.out",
)
def pbs_working_directory(case: Case) -> Iterator[Hit]:
    """Relative paths in a PBS script without a cd; a note, since some sites start jobs in the directory of qsub."""
    if "PBS_O_WORKDIR" in case.script.code:
        return
    for at, resolved in enumerate(case.script.commands, 1):
        if not runs_at_home(case, at):
            return
        relative = _target(resolved) or next(_relative_paths(case, resolved), "")
        if relative:
            yield Hit(resolved.line, f"{relative} is looked up in the home directory", "cd $PBS_O_WORKDIR")
            return


def runs_at_home(case: Case, place: int) -> bool:
    """Whether the first `place` commands of a script run in the home directory, where PBS starts it."""
    script = case.script
    if script.scheduler != "pbs" or script.request.values.keys() & _DIRECTORY:
        return False
    targets = (_target(command) for command in script.commands[:place])
    return all(target is None or _is_relative(target) for target in targets)


def _target(resolved: ResolvedCommand) -> str | None:
    """The target of a ``cd``; None for other commands."""
    moves = resolved.argv[:1] in (("cd",), ("pushd",), ("chdir",))
    return (*resolved.argv[1:2], "~")[0] if moves else None


_DIRECTORY = {"d", "w", "l.wd"}
"""Options that say where the job starts. NCI: -l wd."""


def _is_relative(path: str) -> bool:
    return bool(path) and not is_template(path) and not path.startswith(("/", "~", "-"))


def _relative_paths(case: Case, resolved: ResolvedCommand) -> Iterator[str]:
    """The relative paths in the words of a command or in the file that it sources."""
    programs = [launch.program for launch in case.launches if launch.command is resolved]
    if len(resolved.argv) > 1 and resolved.argv[0] in ("source", ".") and "/" in resolved.argv[1]:
        programs.append((f"./{resolved.argv[1]}" if _is_relative(resolved.argv[1]) else "",))
    inside = [command.resolved for command in case.script.inner if command.launch.command is resolved]
    if all(_target(command) is None for command in inside):
        programs += [python_program(command.argv) or command.argv[:1] for command in inside]
    for program in (*programs, resolved.argv[:1], python_program(resolved.argv) or ()):
        for at, word in enumerate(program):
            if _is_relative(word) and (word.startswith("./") or (at < 2 and word.endswith(".py"))):
                yield word
    if resolved.argv and resolved.argv[0].startswith(("/", "java")):
        yield from (word for word in resolved.argv[1:] if _RELATIVE_FILE.fullmatch(word))


_RELATIVE_FILE = re.compile(r"(?:[\w.-]*\w/)+[\w.-]+\.[A-Za-z]\w{0,7}|\w[\w.-]*\.py")
"""A file below a directory, ``index/genome.fasta``, or a program of Python."""
