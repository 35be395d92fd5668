"""Reads from /proc/PID/maps which libraries each rank has actually loaded.

A rank that uses the image's own MPI, or is alone in its world, exits with status 0. A mapped file of the host is
recognised by device and inode, not by name.
"""

from __future__ import annotations

import json
import re
import shlex
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from stackyard.core.errors import InputError, StackyardError
from stackyard.core.findings import Finding, counted
from stackyard.host.machine.daemons import PALS_DIRECTORY, PMIX_DIRECTORY, RANKS, SLURM_DIRECTORIES
from stackyard.host.machine.runtimes import runtime_of
from stackyard.host.run.command import Result, ending, run
from stackyard.images.bindings import watch
from stackyard.images.bindings.charliecloud import linked
from stackyard.images.bindings.families import mpi_sonames
from stackyard.images.bindings.profiles import files_of
from stackyard.inputs.sites.bindings import HostBindings
from stackyard.inputs.sites.jobmodels import ContainerPolicy
from stackyard.inputs.sites.library_directories import CHARLIECLOUD

RUN_S = 1800


@dataclass(frozen=True)
class Rank:
    """One rank. `library`: the MPI that it has mapped, by its path inside; `is_host`: whether it is the host's file."""

    rank: int
    node: str
    code: int
    library: str
    is_host: bool
    findings: tuple[Finding, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """The rank as JSON values."""
        return {**asdict(self), "findings": [finding.to_json() for finding in self.findings]}


def run_ranks(
    image: Path, bindings: HostBindings, policy: ContainerPolicy, launcher: str, program: Sequence[str]
) -> tuple[list[Rank], Result]:
    """Start a program in an image and report the MPI that each of its ranks has loaded.

    Args:
        policy: the site's settings, without the bindings.
        launcher: starts the ranks, e.g. ``srun -N2 --mpi=pmi2``; empty: one process, here.

    Raises:
        InputError: no program is given, or the site's runtime does not read the image.
        MissingError: no runtime is installed.
        StackyardError: the launcher failed, or started no rank.
    """
    if not program:
        raise InputError("cannot run: no program given", hint="write it after --, with its path in the image")
    with tempfile.TemporaryDirectory(prefix=".stackyard-maps-", dir=Path.cwd()) as name:  # the nodes see it
        directory = Path(name)
        script = directory / "rank.sh"
        script.write_text(_script(image, bindings, policy, directory, program))
        script.chmod(0o755)
        done = run([*shlex.split(launcher), str(script)], timeout_s=RUN_S, check=False)
        said = [json.loads(file.read_text()) for file in sorted(directory.glob("rank-*.json"))]
    library = Path(bindings.mpi.library)
    ranks = sorted((_rank(row, library) for row in said), key=lambda rank: (rank.rank, rank.node))
    _started(ranks, done, launcher)
    return ranks, done


def _started(ranks: Sequence[Rank], done: Result, launcher: str) -> None:
    """Raise StackyardError if the launcher failed without a message from a rank, or if no rank started."""
    if ranks and (not done.returncode or any(rank.code for rank in ranks)):
        return
    how = "no rank has started" if not ranks else f"the {counted(len(ranks), 'rank')} that started ended with status 0"
    raise StackyardError(
        f"cannot see what the ranks load: {launcher or 'the watcher'} {ending(done.returncode)}, and {how}",
        hint="try it without the image: the launcher must work here, and the nodes must see this directory",
        detail=done.output,
    )


def _script(
    image: Path, bindings: HostBindings, policy: ContainerPolicy, directory: Path, program: Sequence[str]
) -> str:
    """The shell script for a rank: the runtime with the image, observed from outside."""
    runtime = runtime_of(policy.runtime, str(image.absolute()))
    own = [sys.executable, "-I", "-S", watch.__file__, str(directory), ",".join(RANKS)]
    call = (
        _charliecloud(bindings.applied(policy, CHARLIECLOUD))
        if runtime == "charliecloud"
        else _apptainer(runtime, bindings.applied(policy))
    )
    rest = [str(image.absolute()), *call.before, *program]
    return "\n".join(
        ["#!/bin/bash -p", "sy_binds=()", *call.lines, _WIRE.format(option=call.option),
         f'{call.start}{" ".join(map(_filled, [*own, *call.words]))} "${{sy_binds[@]}}" {shlex.join(rest)}\n']
    )  # fmt: skip


@dataclass(frozen=True)
class _Exec:
    """The call of a runtime: lines of the script, words before the image, and words between it and the program."""

    lines: list[str]
    words: list[str]
    option: str = "--bind"
    before: tuple[str, ...] = ()
    start: str = "exec "


def _apptainer(runtime: str, policy: ContainerPolicy) -> _Exec:
    prefix = runtime.upper()
    variables = {f"{prefix}ENV_{name}": value for name, value in policy.variables.items()}
    libraries = _files(policy)
    if libraries:
        variables[f"{prefix}_CONTAINLIBS"] = ",".join(libraries)
    binds = [word for bind in policy.binds for word in ("--bind", bind)]
    lines = [f"export {name}={shlex.quote(value)}" for name, value in variables.items()]
    return _Exec(lines, [runtime, "exec", *binds, *policy.options])


def _charliecloud(policy: ContainerPolicy) -> _Exec:
    """ch-run's call; its private directory is removed at the end: it holds only the empty files for binds."""
    lines = [
        'export USER="${USER:-root}" STACKYARD_DIR; STACKYARD_DIR=$(mktemp -d /tmp/stackyard-XXXXXX) || exit 71',
        """trap 'rm -rf -- "$STACKYARD_DIR"' EXIT""", linked(_files(policy)),
    ]  # fmt: skip
    words = [word for bind in policy.binds for word in ("-b", bind.removesuffix(":ro").removesuffix(":rw"))]
    words += [f"--set-env={name}={value}" for name, value in policy.variables.items()]
    return _Exec(lines, ["ch-run", "--env-no-expand", *words, *policy.options], "-b", ("--",), "")


def _files(policy: ContainerPolicy) -> list[str]:
    return [file for path in policy.libraries for file in files_of(path)]


def _filled(word: str) -> str:
    """A quoted word in which the shell substitutes values that only the node has."""
    return re.sub(r"\$\{STACKYARD_\w+\}", lambda match: f"'\"{match[0]}\"'", shlex.quote(word))


_WIRE = f"""for path in "${PMIX_DIRECTORY}" {SLURM_DIRECTORIES} "${PALS_DIRECTORY}"; do
  if [ -n "$path" ] && [ -d "$path" ]; then sy_binds+=({{option}} "$path"); fi
done"""
"""The directories of the job's PMIx or PALS server, whose names only a rank has. `stackyard launch` binds them too."""


def _rank(said: dict[str, Any], library: Path) -> Rank:
    names = mpi_sonames()
    mapped = {path: where for path, where in said["files"].items() if _is_mpi(path, names)}
    own = {path for path, where in mapped.items() if _is_file(where, library)}
    path = next(iter(sorted(own) or sorted(mapped)), "")
    rank = Rank(said["rank"], said["host"], said["code"], path, bool(own) and len(own) == len(mapped))
    return replace(rank, findings=_findings(rank, mapped, library))


def _findings(rank: Rank, mapped: dict[str, Any], library: Path) -> tuple[Finding, ...]:
    who = f"rank {rank.rank} on {rank.node}"
    if rank.code:
        what = f"exited with status {rank.code}"
        return (Finding("rank-failed", "refused", f"{who} {what}", "", "its messages are above"),)
    if rank.is_host:
        return ()
    if not mapped:
        why = "its program is not linked to an MPI, or ended before it was seen"
        return (
            Finding("rank-mpi", "refused", f"{who} has loaded no MPI", why, "use a program that runs for a second"),
        )
    return (
        Finding(
            "rank-mpi", "refused", f"{who} has loaded {', '.join(sorted(mapped))}, not {library}",
            "the image's own MPI ran, with exit status 0", "stackyard bindings check IMAGE says why",
        ),
    )  # fmt: skip


def _is_mpi(path: str, names: frozenset[str]) -> bool:
    name = path.rpartition("/")[2]
    return any(name == start or name.startswith(f"{start}.") for start in names)


def _is_file(where: Sequence[int], library: Path) -> bool:
    """Whether a mapped file is this one, by device and inode."""
    try:
        stat = library.stat()
    except OSError:
        return False
    return [*where] == [stat.st_dev, stat.st_ino]
