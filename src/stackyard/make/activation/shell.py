"""Runs activation scripts one by one in a bash and reads its state after each."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import field
from pathlib import Path

from stackyard.core.errors import MissingError, StackyardError
from stackyard.core.late import dataclass
from stackyard.host.machine import shell_state
from stackyard.host.machine.shell_state import ShellState
from stackyard.host.run import command
from stackyard.host.run.view import PLAIN, View
from stackyard.yard.kinds.payload import Prefix


@dataclass(frozen=True)
class ProbeEnvironment:
    """The environment of a probe, on which a script may depend besides the prefix.

    `present`: variables that are set before activation. `path`: the end of PATH.
    """

    user: str
    date: str
    home: str
    present: Mapping[str, str] = field(default_factory=dict)
    path: str = "/usr/local/bin:/usr/bin:/bin"


@dataclass(frozen=True)
class Shell(ShellState):
    """A shell's state after `script`, without the variables that every shell changes itself."""

    script: str = ""


FIRST = ProbeEnvironment("first", "2021-02-03 04:05:06", "home-first")
SECOND = ProbeEnvironment(
    "second",
    "2034-11-12 13:14:15",
    "other/home",
    {"SCRATCH": "/scratch/second", "WORK": "/work/second", "DISPLAY": ":7", "SLURM_JOB_ID": "42", "LC_ALL": "C"},
)

# A `date` in front of PATH gives each run another day.
_DATE = '#!/bin/sh\nexec /bin/date -d {date} "$@"\n'


def observe(
    prefix: Path,
    scripts: Sequence[Path],
    variables: Mapping[str, str],
    probe: ProbeEnvironment,
    directory: Path,
    timeout_s: float,
    view: View = PLAIN,
) -> list[Shell]:
    """The states of one run: before anything, after the given variables, and after each script.

    Raises:
        MissingError: bash not found.
        StackyardError: a script exited the shell or timed out.
    """
    bash = command.which("bash")
    if bash is None:
        raise MissingError("bash not found on PATH", hint="install bash; activation scripts are bash scripts")
    home = directory / probe.home
    work = directory / f"in-{probe.user}"
    for path in (home, work, directory / "states"):
        path.mkdir(parents=True)
    shim = directory.parent / "shim" / "date"  # at one path for all runs, so that PATH differs only by what scripts do
    shim.parent.mkdir(exist_ok=True)
    shim.write_text(_DATE.format(date=shlex.quote(probe.date)))
    shim.chmod(0o755)
    environ = _environment(prefix, probe, home, directory, shim.parent)
    program = directory / "run.sh"
    program.write_text(_program(scripts, variables, directory / "states"))
    result = command.run(
        [bash, "--norc", "--noprofile", program], env=environ, cwd=work, timeout_s=timeout_s, check=False, view=view
    )
    names = ["start", "variables", *(script.name for script in scripts)]
    stems = [directory / "states" / str(number) for number in range(len(names))]
    states = [_after(name, stem) for name, stem in zip(names, stems, strict=True) if shell_state.is_written(stem)]
    if len(states) < len(names):
        raise StackyardError(
            f"the activation script {names[len(states)]} of {prefix} exited the shell",
            hint="patch its package: a script that is sourced must return, not exit",
            detail=result.output,
        )
    return states


def _environment(prefix: Path, probe: ProbeEnvironment, home: Path, directory: Path, shim: Path) -> dict[str, str]:
    temporary = directory / "tmp"
    temporary.mkdir()
    return {
        "PATH": f"{shim}:{Prefix(prefix).search_path(probe.path)}",
        "HOME": str(home), "USER": probe.user, "LOGNAME": probe.user, "LANG": "C.UTF-8",
        "TMPDIR": str(temporary), "HOSTNAME": f"host-{probe.user}", "CONDA_PREFIX": str(prefix),
        "CONDA_DEFAULT_ENV": str(prefix), "CONDA_SHLVL": "1", **probe.present,
    }  # fmt: skip


def _program(scripts: Sequence[Path], variables: Mapping[str, str], states: Path) -> str:
    """The run as bash code. Scripts are sourced by path, so that BASH_SOURCE is right; each ends its own ``set -e``."""
    lines = ["shopt -s expand_aliases", shell_state.WRITER, shell_state.write(states / "0")]
    lines += [f"export {name}={shlex.quote(value)}" for name, value in variables.items()]
    lines.append(shell_state.write(states / "1"))
    for number, script in enumerate(scripts, 2):
        lines += [f". {shlex.quote(str(script))}", "set +eu", shell_state.write(states / str(number))]
    return "\n".join(lines) + "\n"


def _after(script: str, stem: Path) -> Shell:
    state = shell_state.read(stem)
    shown = {
        name: value
        for name, value in state.variables.items()
        if name not in shell_state.SHELL_OWN and not name.startswith("BASH_FUNC_")  # exported functions
    }
    return Shell(shown, state.functions, state.aliases, script)
