"""A bash that sources activation scripts one by one and shows its state after each."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from stackyard.errors import MissingError, StackyardError
from stackyard.host import command
from stackyard.yard.payload import Prefix


@dataclass(frozen=True)
class ProbeEnvironment:
    """What a script may look at besides the prefix. `present`: variables that are set before activation."""

    user: str
    date: str
    home: str
    present: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Shell:
    """A shell's state after a script (empty: before the first one)."""

    script: str
    environ: Mapping[str, str]
    functions: Mapping[str, str]
    aliases: Mapping[str, str]


FIRST = ProbeEnvironment("first", "2021-02-03 04:05:06", "home-first")
SECOND = ProbeEnvironment(
    "second",
    "2034-11-12 13:14:15",
    "other/home",
    {"SCRATCH": "/scratch/second", "WORK": "/work/second", "DISPLAY": ":7", "SLURM_JOB_ID": "42", "LC_ALL": "C"},
)

# Sourced by path, so BASH_SOURCE is right. The state is written with builtins and `env -0` of an absolute path: the
# scripts may put any program in front of PATH.
_DUMP = """
__dump() {
    /usr/bin/env -0 > "$1/$2.env"
    local name
    while read -r name; do printf '%s\\0' "$(declare -f "$name")"; done < <(compgen -A function) > "$1/$2.functions"
    alias -p > "$1/$2.aliases"
}
"""
# A `date` in front of PATH tells each run another day.
_DATE = '#!/bin/sh\nexec /bin/date -d {date} "$@"\n'
_OWN = re.compile(r"_|SHLVL|PWD|OLDPWD|BASH_FUNC___dump%%")


def observe(
    prefix: Path,
    scripts: Sequence[Path],
    variables: Mapping[str, str],
    probe: ProbeEnvironment,
    folder: Path,
    timeout_s: float,
) -> list[Shell]:
    """The states of one run: before anything, after the given variables, and after each script.

    Raises:
        MissingError: there is no bash here.
        StackyardError: a script ended the shell, or the time was up.
    """
    bash = command.which("bash")
    if bash is None:
        raise MissingError("bash is not on this machine", hint="activation scripts are bash scripts; install bash")
    home = folder / probe.home
    work = folder / f"in-{probe.user}"
    for each in (home, work, folder / "shim", folder / "states"):
        each.mkdir(parents=True)
    shim = folder / "shim" / "date"
    shim.write_text(_DATE.format(date=shlex.quote(probe.date)))
    shim.chmod(0o755)
    environ = _environment(prefix, probe, home, folder)
    program = folder / "run.sh"
    program.write_text(_program(scripts, variables, folder / "states"))
    result = command.run(
        [bash, "--norc", "--noprofile", program], env=environ, cwd=work, timeout_s=timeout_s, check=False
    )
    names = ["start", "variables", *(script.name for script in scripts)]
    states = [_read(folder, number, name) for number, name in enumerate(names)
              if (folder / "states" / f"{number}.env").exists()]  # fmt: skip
    if len(states) < len(names):
        raise StackyardError(
            f"the activation script {names[len(states)]} of {prefix} ended its shell",
            hint="a script that is sourced must return, not exit; patch its package",
            detail=result.output,
        )
    return states


def _environment(prefix: Path, probe: ProbeEnvironment, home: Path, folder: Path) -> dict[str, str]:
    temporary = folder / "tmp"
    temporary.mkdir()
    return {
        "PATH": f"{folder / 'shim'}:{Prefix(prefix).search_path('/usr/local/bin:/usr/bin:/bin')}",
        "HOME": str(home), "USER": probe.user, "LOGNAME": probe.user, "LANG": "C.UTF-8",
        "TMPDIR": str(temporary), "HOSTNAME": f"host-{probe.user}", "CONDA_PREFIX": str(prefix),
        "CONDA_DEFAULT_ENV": str(prefix), "CONDA_SHLVL": "1", **probe.present,
    }  # fmt: skip


def _program(scripts: Sequence[Path], variables: Mapping[str, str], states: Path) -> str:
    lines = ["shopt -s expand_aliases", _DUMP, f"__dump {shlex.quote(str(states))} 0"]
    lines += [f"export {name}={shlex.quote(value)}" for name, value in variables.items()]
    lines.append(f"__dump {shlex.quote(str(states))} 1")
    for number, script in enumerate(scripts, 2):
        lines += [f". {shlex.quote(str(script))}", f"__dump {shlex.quote(str(states))} {number}"]
    return "\n".join(lines) + "\n"


def _read(folder: Path, number: int, name: str) -> Shell:
    stem = folder / "states" / str(number)
    pairs = stem.with_suffix(".env").read_bytes().decode("utf-8", "surrogateescape").split("\0")
    environ = dict(pair.split("=", 1) for pair in pairs if "=" in pair)
    shown = {key: value for key, value in environ.items() if not _OWN.fullmatch(key)}
    functions = parse_functions(stem.with_suffix(".functions").read_text(encoding="utf-8", errors="replace"))
    functions.pop("__dump", None)
    return Shell(name, shown, functions, _aliases(stem.with_suffix(".aliases").read_text(errors="replace")))


def parse_functions(text: str) -> dict[str, str]:
    """Function bodies from ``declare -f NAME``, each ended by a null byte: what stands between the outer braces.

    The lines stay as they are, because the text of a here-document must not be moved.
    """
    found: dict[str, str] = {}
    for definition in text.split("\0"):
        head, _, rest = definition.partition("\n")
        if head.endswith(" () "):
            found[head[:-4]] = rest.partition("\n")[2].rpartition("\n}")[0]
    return found


def _aliases(text: str) -> dict[str, str]:
    """Aliases from ``alias -p``, one per line, with their quotes undone."""
    found: dict[str, str] = {}
    for line in text.splitlines():
        name, sign, quoted = line.removeprefix("alias ").partition("=")
        if sign:
            found[name] = "".join(shlex.split(quoted))
    return found
