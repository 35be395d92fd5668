"""A container of a base, in which packages are installed; it sees only those parts of the host that it is given."""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from stackyard.core.errors import InputError, MissingError
from stackyard.host.run.command import Result, run, which
from stackyard.host.tools.pipconf import read_config
from stackyard.images import inventory
from stackyard.images.bases.store import StoredBase
from stackyard.images.sif import build as sifbuild
from stackyard.inputs.sites.library_directories import LIBRARIES
from stackyard.make.programs import PROXIES

VENV = "/opt/stackyard/venv"
BUILD_S = 6 * 3600.0
RUNTIMES = ("apptainer", "singularity")
_SCRIPT = "run.sh"
_FILES = ("cert", "client-cert", "find-links", "constraint")
_OF_THE_SHELL = ("_", "PWD", "OLDPWD", "SHLVL", "PS1", "PS2", "PS4")
_NONE: Mapping[str, str] = {}
_MARK = "=activated"


def runtime() -> Path:
    """The container runtime. Raises MissingError without one."""
    path = next(filter(None, map(which, RUNTIMES)), None)
    if path is None:
        raise MissingError("neither apptainer nor singularity found: packages are installed in a container",
                           hint="install Apptainer, or do it on a machine that has it")  # fmt: skip
    return path


@dataclass(frozen=True)
class ContainerSetup:
    """The inputs of a container of a base.

    Attributes:
        activation: the site's shell commands that prepare the base; the variables they set become part of the result.
        before: shell lines for the build only, run after the activation.
        places: directories of this machine, mounted at the same paths.
    """

    activation: str = ""
    before: tuple[str, ...] = ()
    places: tuple[Path, ...] = ()


class Box:
    """A container of a base with an empty directory at `VENV`, and a private /tmp."""

    def __init__(self, program: Path, base: StoredBase, work: Path, setup: ContainerSetup) -> None:
        self.kept, self.work, self.given, self._runtime = base, work, setup, program
        self.venv, self.tmp = work / "root" / VENV.lstrip("/"), work / "tmp"
        self._settings = read_config(os.environ)
        self._shell = "/bin/sh"

    def prepare(self) -> None:
        """Create the mounted directories, and the image. Raises InputError for a base with packages on top."""
        files = inventory.read(self.kept.paths.image)
        if VENV in files.entries:
            raise InputError(f"the base {self.kept.base.name} has packages on top already, in {VENV}",
                             hint="extend the base below it, with all packages at once")  # fmt: skip
        for directory in (self.venv, self.tmp, self.work / "home"):
            directory.mkdir(parents=True)
        sifbuild.build_base(self.kept, self.work / "base.sif")
        if files.real("/bin/bash"):
            self._shell = "/bin/bash"  # for which activation scripts are written

    def run(
        self, *argv: str, check: bool = True, variables: Mapping[str, str] = _NONE, paths: Mapping[str, str] = _NONE
    ) -> Result:
        """Run a program in it, after the activation and the other preparations.

        Args:
            variables: set for this program, overriding the activation.
            paths: directories that come first on a search path, by the name of its variable.
        """
        lines = [*self._activation(), *self.given.before]
        lines += [f"export {name}={shlex.quote(value)}" for name, value in variables.items()]
        lines += [f'export {name}={shlex.quote(value)}"${{{name}:+:${name}}}"' for name, value in paths.items()]
        return self._exec(lines, argv, check=check)

    def activated(self) -> dict[str, str]:
        """The variables that the site's activation sets or changes; empty without one.

        Raises:
            CommandError: it failed.
        """
        if not self.given.activation:
            return {}
        lines = ["env -0", *self._activation(), f"printf '{_MARK}\\0'", "env -0"]
        before, after = map(variables, self._exec(lines, ("true",)).stdout.split(f"{_MARK}\0"))
        changed = {name: value for name, value in after.items() if before.get(name) != value}
        return {name: _without_ours(value) for name, value in changed.items() if name not in _OF_THE_SHELL}

    def _activation(self) -> list[str]:
        own = self.given.activation or self.kept.base.software.activate
        return [f"{{ {own}\n}} >&2"] if own else []

    def _exec(self, lines: Sequence[str], argv: Sequence[str], *, check: bool = True) -> Result:
        """Run a program; variables are passed in a private file, never on a command line."""
        words = list(argv)
        if lines:
            (self.tmp / _SCRIPT).write_text("\n".join([*lines, 'exec "$@"', ""]), encoding="utf-8")
            words = [self._shell, f"/tmp/{_SCRIPT}", *argv]
        binds = [f"{self.venv}:{VENV}", f"{self.tmp}:/tmp", *map(str, self._places())]
        command = [
            str(self._runtime), "-q", "exec", "--contain", "--cleanenv", "--home", f"{self.work / 'home'}:{VENV}.home",
            *(word for bind in binds for word in ("--bind", bind)), "--pwd", "/tmp", str(self.work / "base.sif"),
        ]  # fmt: skip
        return run([*command, *words], env={**os.environ, **self._variables()}, timeout_s=BUILD_S, check=check)

    def _places(self) -> list[Path]:
        """Files and directories of the host that were given, or that pip's settings name."""
        named = [word for key in _FILES for word in self._settings.get(key, "").split()]
        places = [*self.given.places, *(Path(word) for word in named if word.startswith("/"))]
        return [place for place in dict.fromkeys(places) if place.exists()]

    def _variables(self) -> dict[str, str]:
        """The variables set inside. Logins of indexes are passed in the environment only, never written."""
        pip = {f"PIP_{key.upper().replace('-', '_')}": " ".join(value.split()) for key, value in self._settings.items()}
        proxies = {name: os.environ[name] for name in PROXIES if name in os.environ}
        inner = {**pip, **proxies, "PYTHONNOUSERSITE": "1"}
        return {
            f"{prefix}{name}": value for name, value in inner.items() for prefix in ("APPTAINERENV_", "SINGULARITYENV_")
        }


def variables(text: str) -> dict[str, str]:
    """Parse ``env -0`` or ``/proc/PID/environ``, without shell functions."""
    pairs = (line.partition("=")[::2] for line in text.split("\0"))
    return {name: value for name, value in pairs if name.isidentifier()}


def _without_ours(value: str) -> str:
    """The library path without the directory that the runtime adds for every program."""
    return ":".join(part for part in value.split(":") if part != LIBRARIES)
