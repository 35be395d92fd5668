"""Small commands of batch scripts, which print, prepare a run or end a program, and so are not the program."""

from __future__ import annotations

import re
from collections.abc import Sequence

from stackyard.lint.launches import starter, unwrapped
from stackyard.lint.shell.scope import arithmetic_names

_PRINTING = (
    "echo printf date hostname env printenv pwd ls nvidia-smi rocm-smi which scontrol squeue df free lscpu uname nproc "
    "ip id ps du true sleep"
)
_OF_THE_SHELL = ": wait time set test [ [[ shift break continue"
_FILES = "mkdir cp rsync tar ln mv rm touch cat chmod curl wget unzip gunzip"
_MAKING = "pip pip3 cmake make"
_ENVIRONMENT = (
    "module ml source . conda mamba micromamba spack eval export declare unset ulimit umask sbcast lfs tee setenv "
    "alias shopt (( let"
)
_BESIDE = (
    "cd pushd popd deactivate sed awk grep find git sbatch qsub bsub seff read readarray mapfile "
    "local getopts set scontrol printf trap"
)
_LOOKING = ("show", "listpids", "getaddrs", "ping", "version")
_ENDING = "kill pkill killall exit return scancel qdel bkill"
_ON_NODES = "find numactl taskset"
_FILTERING = "awk cut egrep grep head jq perl sed sort tail tr uniq wc xxd"
_COMPUTING = (
    "cat basename dirname realpath readlink expr bc seq shuf getent host sacct sinfo whoami netstat ss base64 fold od "
    "comm paste rev"
)

_QUIET = frozenset(f"{_PRINTING} {_OF_THE_SHELL}".split())
_CARRIED = frozenset(f"{_FILES} {_ENVIRONMENT} {_MAKING}".split())
_NO_PROGRAM = _CARRIED | frozenset(f"{_BESIDE} {_ENDING}".split())
_SMALL = frozenset(f"{_PRINTING} {_FILES} {_ENDING} {_ON_NODES}".split())
_FILTERS = frozenset(_FILTERING.split())
_TEXT = _FILTERS | frozenset(_COMPUTING.split())


def _name(argv: Sequence[str]) -> str:
    """A command's name, where ``/bin/echo`` is ``echo``."""
    return re.sub(r"^(?:/usr)?/bin/", "", argv[0])


def is_quiet(argv: Sequence[str]) -> bool:
    """Whether a command only prints, inspects or waits, so that a run does not need it."""
    words = list(unwrapped(list(argv))) or list(argv)  # `time ./a` is not a `time`
    if words[1:] == ["--version"]:
        return True
    if words[:1] == ["(("]:
        return not any(map(arithmetic_names, words[1:]))
    if words[:2] == ["printf", "-v"]:
        return False
    if words and _name(words) == "scontrol":
        return any(word in _LOOKING for word in words[1:])
    return bool(words) and _name(words) in _QUIET and not (words[0] == "set" and not _only_traces(words))


def _only_traces(argv: Sequence[str]) -> bool:
    """Whether ``set`` changes only the output, not the script's end or its exports."""
    return all(re.fullmatch(r"[-+][xv]+", word) for word in argv[1:])


def is_carried(argv: Sequence[str]) -> bool:
    """Whether a command sets up modules, environments, variables or files, so that a run needs it."""
    if tuple(argv[:2]) in (("printf", "-v"), ("set", "-a"), ("set", "+a")) or tuple(argv[1:3]) == ("-o", "allexport"):
        return True
    if list(argv[1:3]) == ["-m", "pip"]:
        return True
    return bool(argv) and argv[0] in _CARRIED and list(argv[1:2]) != ["run"]  # conda run starts a program


def is_filter(argv: Sequence[str]) -> bool:
    """Whether it is a filter in a pipe into a file."""
    return bool(argv) and argv[0] in _FILTERS


def only_prints(argv: Sequence[str]) -> bool:
    """Whether a command in ``$(..)`` only produces text, here or on another node: ``srun -N1 hostname``."""
    words = list(unwrapped(list(argv)))
    launch = starter(words) if words else None
    if launch:
        return only_prints(launch[1].rest)
    if words[:1] == ["ssh"]:
        return only_prints(words[2:])
    return not words or words[0].rsplit("/", 1)[-1] in _TEXT | _QUIET


def is_no_program(argv: Sequence[str]) -> bool:
    """Whether a command prints, prepares a run, cleans up or ends it, and so is not the job's purpose."""
    return is_quiet(argv) or (_name(argv) in _NO_PROGRAM and list(argv[1:2]) != ["run"])


def is_small(argv: Sequence[str]) -> bool:
    """Whether a launch's command on the nodes only inspects, handles files or ends programs; true without words."""
    words = list(unwrapped(list(argv)))
    return not words or words[0].rsplit("/", 1)[-1] in _SMALL
