"""Lmod and Environment Modules: finding them, and loading modules with them in a separate shell.

Modules are really loaded, by the system's own command in a bash that starts from a given environment. The effect of a
step is read from that shell (variables, functions, aliases); nothing is inferred from modulefiles. `build` loads host
modules in this way, `verify` a generation before it is published. Standard library only.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Literal

from stackyard.core.errors import MissingError, StackyardError
from stackyard.core.late import dataclass
from stackyard.host.files.scratch import scratch
from stackyard.host.machine import shell_state
from stackyard.host.machine.shell_state import ShellState
from stackyard.host.run.command import clean_environment, ending, run

Kind = Literal["lmod", "environment-modules"]

MINIMUM: Mapping[Kind, tuple[int, ...]] = {"lmod": (7,), "environment-modules": (4,)}
"""The oldest supported versions. Environment Modules before 4 is another program, without ``autoinit``."""

_TITLES: Mapping[Kind, str] = {"lmod": "Lmod", "environment-modules": "Environment Modules"}
_LMOD_HOMES = (
    "/usr/share/lmod/lmod", "/opt/apps/lmod/lmod", "/usr/local/lmod/lmod", "/opt/lmod/lmod",
    "/opt/ohpc/admin/lmod/lmod", "/opt/cray/pe/lmod/lmod", "/usr/share/lmod", "/sw/lmod/lmod",
)  # fmt: skip
_EM_COMMANDS = (
    "/usr/share/Modules/libexec/modulecmd.tcl", "/usr/share/modules/libexec/modulecmd.tcl",
    "/usr/lib64/Modules/modulecmd.tcl", "/usr/lib/modulecmd.tcl", "/usr/local/Modules/libexec/modulecmd.tcl",
    "/opt/modules/libexec/modulecmd.tcl", "/opt/cray/pe/modules/default/libexec/modulecmd.tcl",
)  # fmt: skip
_BOOKKEEPING = re.compile(
    r"_?_?LMOD_|_ModuleTable|__LMOD|_?_?MODULES_|_LMFILES_|LOADEDMODULES$|MODULESHOME$|.*_mod(share|quar)$"
)
_KEPT = ("MODULEPATH", "MODULERCFILE", "LMOD_RC", "LMOD_SITE_NAME", "LMOD_PACKAGE_PATH", "LMOD_SYSTEM_DEFAULT_MODULES")


class ModuleSystemBroken(StackyardError):
    """A module system is installed, but its command does not run or does not print its version."""


class ModuleSystemTooOld(StackyardError):
    """A module system is installed in a version that is not supported."""


class ModuleLoadError(StackyardError):
    """The module system rejected a module; its output is the detail."""


@dataclass(frozen=True)
class ModuleSystem:
    """One working module system of this machine. `command` is what its ``module`` function calls."""

    kind: Kind
    version: str
    command: Path

    @property
    def title(self) -> str:
        """Name and version, e.g. ``Lmod 8.6.19``."""
        return f"{_TITLES[self.kind]} {self.version}"

    def init(self, shell: str) -> str:
        """Code that defines ``module`` in a running `shell` (bash, zsh, sh, ksh, tcsh, csh or fish)."""
        if self.kind == "lmod":
            word = "." if shell in ("sh", "ksh") else "source"
            return f"{word} {shlex.quote(str(self.command.parent.parent / 'init' / shell))}"
        call = f"{shlex.quote(str(self.command))} {shell} autoinit"
        if shell == "fish":
            return f"{call} | source"
        return f"eval `{call}`" if shell.endswith("csh") else f'eval "$({call})"'


@dataclass(frozen=True)
class Step:
    """One ``module`` command of a session: its words, exit code, messages, duration and the shell after it."""

    words: tuple[str, ...]
    code: int
    output: str
    seconds: float
    state: ShellState


@dataclass(frozen=True)
class Session:
    """One shell: its state before the first step, and the steps."""

    start: ShellState
    steps: tuple[Step, ...]


def find_lmod(environ: Mapping[str, str] = os.environ) -> ModuleSystem | None:
    """Lmod, by ``$LMOD_CMD``, ``$LMOD_DIR``, ``$LMOD_PKG`` and the usual places; None if not found.

    Raises:
        ModuleSystemBroken: it does not run.
        ModuleSystemTooOld: it is older than `MINIMUM`.
    """
    named = [environ.get("LMOD_CMD", ""), *(str(directory / "lmod") for directory in _lmod_directories(environ))]
    return _first_working("lmod", named, r"Version\s+(\d[\w.]*)")


def find_spider(environ: Mapping[str, str] = os.environ) -> Path | None:
    """Lmod's program ``spider``, from the same places as Lmod itself; None if it is not found."""
    directories = _lmod_directories(environ)
    return next((directory / "spider" for directory in directories if os.access(directory / "spider", os.X_OK)), None)


def _lmod_directories(environ: Mapping[str, str]) -> list[Path]:
    """The possible directories of Lmod's programs: ``$LMOD_DIR``, beside ``$LMOD_CMD``, ``$LMOD_PKG``, defaults."""
    named = (environ.get("LMOD_DIR", ""), environ.get("LMOD_CMD", "").rpartition("/")[0])
    homes = (environ.get("LMOD_PKG", ""), *_LMOD_HOMES)
    return [*(Path(directory) for directory in named if directory), *(Path(home) / "libexec" for home in homes if home)]


def find_environment_modules(environ: Mapping[str, str] = os.environ) -> ModuleSystem | None:
    """Environment Modules, by ``$MODULES_CMD``, ``$MODULESHOME`` and the usual places; None if not found.

    Raises:
        ModuleSystemBroken: it does not run.
        ModuleSystemTooOld: it is older than `MINIMUM`.
    """
    home = environ.get("MODULESHOME", "")
    named = [environ.get("MODULES_CMD", ""), f"{home}/libexec/modulecmd.tcl" if home else "", *_EM_COMMANDS]
    multiarch = (str(path) for path in sorted(Path("/usr/lib").glob("*-linux-gnu/modulecmd.tcl")))
    return _first_working("environment-modules", [*named, *multiarch], r"Modules Release\s+v?(\d[\w.]*)")


def module_systems(environ: Mapping[str, str] = os.environ) -> tuple[ModuleSystem, ...]:
    """Every working module system of this machine, Lmod first. Raises as the two ``find`` functions do."""
    systems = (find_lmod(environ), find_environment_modules(environ))
    return tuple(system for system in systems if system)


def the_module_system(environ: Mapping[str, str] = os.environ) -> ModuleSystem:
    """The module system to use if either will do: that of the caller's shell, else Lmod.

    Raises:
        MissingError: neither was found.
    """
    systems = module_systems(environ)
    if not systems:
        raise MissingError(
            "no module system found: neither Lmod nor Environment Modules",
            hint="install one (e.g. `apt install lmod`), or set LMOD_CMD or MODULES_CMD to its command",
        )
    own = "environment-modules" if "MODULES_CMD" in environ and "LMOD_CMD" not in environ else "lmod"
    return next((system for system in systems if system.kind == own), systems[0])


def fresh_environment(**extra: str) -> dict[str, str]:
    """A user's environment right after login, as far as modules go: the site's module path, nothing loaded."""
    return clean_environment(**{name: os.environ[name] for name in _KEPT if name in os.environ}, **extra)


def is_bookkeeping(variable: str) -> bool:
    """Whether a variable is internal to the module system or the shell, and not an effect of a module."""
    return variable in shell_state.SHELL_OWN or _BOOKKEEPING.match(variable) is not None


def session(
    system: ModuleSystem,
    modulepaths: Sequence[Path | str],
    commands: Iterable[Sequence[str]],
    environ: Mapping[str, str] | None = None,
    *,
    timeout_s: float = 300,
) -> Session:
    """Run ``module`` commands in sequence in one new bash and record the effect of each.

    Args:
        modulepaths: directories put in front of the module path; the first one wins.
        commands: each as words, e.g. ``("load", "pytorch/2.13")``. All are run, even after one that fails.
        environ: the shell's initial environment; None: `fresh_environment()`.

    Raises:
        MissingError: bash not found.
        ModuleSystemBroken: the module command could not be defined, or the shell exited early.
    """
    steps = [tuple(words) for words in commands]
    with scratch("modules") as directory:
        script = _script(system, [str(path) for path in modulepaths], steps, directory)
        argv = ["bash", "--noprofile", "--norc", "-c", script]
        env = fresh_environment() if environ is None else environ
        result = run(argv, env=env, timeout_s=timeout_s, check=False, cwd=directory)
        if result.returncode != 0 or not shell_state.is_written(directory / str(len(steps))):
            raise ModuleSystemBroken(
                f"{system.title} does not work in bash: the shell {ending(result.returncode)}",
                hint=f"run `{system.init('bash')}` in a new shell to see why",
                detail=result.output,
            )
        steps_done = tuple(_step(directory, number, words) for number, words in enumerate(steps, start=1))
        return Session(shell_state.read(directory / "0"), steps_done)


def environment_with(
    system: ModuleSystem,
    modulepaths: Sequence[Path | str],
    modules: Sequence[str],
    environ: Mapping[str, str] | None = None,
    *,
    timeout_s: float = 300,
) -> dict[str, str]:
    """The complete environment of a shell that has loaded `modules`, for programs to run in.

    Raises:
        ModuleLoadError: one of them could not be loaded.
    """
    done = session(system, modulepaths, [("load", module) for module in modules], environ, timeout_s=timeout_s)
    for module, step in zip(modules, done.steps, strict=True):
        require_loaded(system, module, step)
    last = done.steps[-1].state if done.steps else done.start
    return {name: value for name, value in last.variables.items() if name != "_"}


def require_loaded(system: ModuleSystem, module: str, step: Step) -> None:
    """Raise `ModuleLoadError` when a ``load`` did not succeed."""
    if step.code == 0 and not re.search(r"^\S*ERROR:?\b", step.output, re.MULTILINE):
        return
    where = step.state.variables.get("MODULEPATH", "") or "(empty)"
    raise ModuleLoadError(
        f"{system.title} cannot load the module {module}",
        hint=f"`module avail` lists all modules; the module path was {where}",
        detail=step.output,
    )


def _first_working(kind: Kind, names: Iterable[str], pattern: str) -> ModuleSystem | None:
    command = next((Path(name) for name in names if name and Path(name).is_file()), None)
    if command is None:
        return None
    try:
        result = run([command, "bash", "--version"], env=clean_environment(), timeout_s=30, check=False)
    except StackyardError as error:
        raise _broken(kind, command, error.detail or error.message) from error
    match = re.search(pattern, result.output)
    if match is None:
        raise _broken(kind, command, result.output)
    version = match.group(1)
    if tuple(int(part) for part in re.findall(r"\d+", version)) < MINIMUM[kind]:
        oldest = ".".join(map(str, MINIMUM[kind]))
        raise ModuleSystemTooOld(
            f"{_TITLES[kind]} {version} at {command} is too old", hint=f"install version {oldest} or newer"
        )
    return ModuleSystem(kind, version, command)


def _broken(kind: Kind, command: Path, output: str) -> ModuleSystemBroken:
    needed = "Lua" if kind == "lmod" else "Tcl"
    return ModuleSystemBroken(
        f"{_TITLES[kind]} at {command} does not print its version",
        hint=f"make `{command} bash --version` work: is its interpreter ({needed}) installed?",
        detail=output,
    )


def _script(system: ModuleSystem, modulepaths: Sequence[str], steps: Sequence[Sequence[str]], directory: Path) -> str:
    """The session as bash code. It leaves nothing in the shell that a state would show as changed."""
    clock = "${EPOCHREALTIME:-$(/bin/date +%s.%N)}"
    lines = [shell_state.WRITER, system.init("bash"), "type module >/dev/null || exit 97"]
    if modulepaths:  # `module use` does the same, and starts the module system for each
        lines.append(f'export MODULEPATH={shlex.quote(":".join(modulepaths))}"${{MODULEPATH:+:$MODULEPATH}}"')
    lines.append(shell_state.write(directory / "0"))
    for number, words in enumerate(steps, start=1):
        at = shlex.quote(str(directory / str(number)))
        lines.append(f"__begin={clock}; module {shlex.join(words)} >{at}.out 2>&1")
        lines.append(f'echo "$? $__begin {clock}" >{at}.code')
        lines.append(shell_state.write(directory / str(number)))
    return "\n".join([*lines, "exit 0"])


def _step(directory: Path, number: int, words: tuple[str, ...]) -> Step:
    code, begin, end = (directory / f"{number}.code").read_text().replace(",", ".").split()
    output = (directory / f"{number}.out").read_text(encoding="utf-8", errors="replace").strip()
    return Step(words, int(code), output, float(end) - float(begin), shell_state.read(directory / str(number)))
