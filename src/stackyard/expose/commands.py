"""A module that gives users only some commands of a stack (``modules: commands:``).

PATH gets a directory with only these commands, so that the stack's Python does not hide the user's own, and MANPATH the
stack's man pages. Each command is a shell script that starts the program by its path; a Python program is isolated from
PYTHONPATH, PYTHONHOME and the packages in the user's home directory, while its children find these variables unchanged.
"""

from __future__ import annotations

import os
import shlex
from pathlib import Path

from stackyard.core.change import Complete, EnvironmentChange, Prepend
from stackyard.core.errors import InputError
from stackyard.yard.revision.directories import RevisionPaths
from stackyard.yard.revision.record import BuildRecord
from stackyard.yard.write import atomic, permissions

_HEAD = 1024
_MOUNT_S = 120.0


def commands_of(record: BuildRecord) -> tuple[str, ...]:
    """The commands that users get instead of the whole stack; empty: the whole stack."""
    return tuple(record.settings.get("commands") or ())


def runs_beside(record: BuildRecord) -> bool:
    """Whether loading it does not affect the user's own stack: it offers only commands or variables."""
    return bool(commands_of(record) or record.settings.get("variables_only"))


def example(record: BuildRecord) -> str:
    """A command of the stack, for a hint: an offered one, else Python, else a shell."""
    return next(
        iter((*commands_of(record), *record.origin.commands)),
        "python" if record.interpreter and record.packages else "bash",
    )


def commands_change(record: BuildRecord) -> EnvironmentChange:
    """The environment change of such a module, without its own variables."""
    if not commands_of(record):
        return EnvironmentChange()
    programs = Prepend("PATH", str(RevisionPaths.of(record.path).commands))
    if record.payload.is_system:  # its man pages are not on the host
        return EnvironmentChange((programs,))
    return EnvironmentChange((programs, Prepend("MANPATH", str(record.payload.manuals), keep_system=True)))


def completion_change(record: BuildRecord) -> EnvironmentChange:
    """The completion of the commands for which the stack asks it."""
    share = f"{record.prefix}/share" if record.payload.is_visible else ""
    return EnvironmentChange(tuple(Complete(name, share) for name in record.settings.get("completions") or ()))


def scripts(record: BuildRecord) -> dict[Path, str]:
    """The text of each command's script, by its path in the revision's directory.

    Raises:
        InputError: the stack has no such program.
    """
    directory = RevisionPaths.of(record.path).commands
    return {directory / name: _script(record, name) for name in commands_of(record)}


def write_commands(record: BuildRecord) -> None:
    """Write the scripts, executable for every account that can read them, read-only for all.

    Raises as `scripts` does, and InputError where no package completes a command that is to be completed.
    """
    for operation in completion_change(record):
        if isinstance(operation, Complete) and operation.share and not any(map(Path.is_file, operation.scripts)):
            raise InputError(
                f"{record.module} has no script that completes {operation.name}: {operation.scripts[0]} not found",
                hint="correct modules: completions: in the stack's file, or add the package that installs one",
            )
    for path, text in scripts(record).items():
        atomic.write_text(path, text, mode=permissions.program_mode() & 0o555, top=RevisionPaths.of(record.path).yard)


def _script(record: BuildRecord, name: str) -> str:
    program = record.payload.program(name)
    if not program.exists():
        raise InputError(
            f"{record.module} has no command {name}: {program} not found",
            hint="correct modules: commands: in the stack's file, or add the package that installs it",
        )
    words = [*_interpreter(record, program), str(program)]
    return f'#!/bin/sh\nexec {shlex.join(words)} "$@"\n'


def _head(record: BuildRecord, program: Path) -> bytes:
    """The first bytes of a program; for one in an image, read inside it: elsewhere it is a stub."""
    if record.payload.is_visible:
        with program.open("rb") as file:
            return file.read(_HEAD)
    from stackyard.host.run.command import run

    argv, environ = record.payload.command(["head", "-c", str(_HEAD), str(program)], dict(os.environ))
    return run(argv, env=environ, timeout_s=_MOUNT_S, leaves_others=True).stdout.encode()


def _interpreter(record: BuildRecord, program: Path) -> list[str]:
    """The stack's Python and its isolation option, if the program is a Python script.

    Its first line names the interpreter. If its path is too long for the kernel, it is on the second line of a script
    that is valid in both shell and Python.
    """
    first, _, rest = _head(record, program).partition(b"\n")
    if not first.startswith(b"#!") or not (b"python" in first or rest.startswith(b"'''exec'")):
        return []
    python_2 = str(record.interpreter.get("version", "")).startswith("2.")
    return [str(record.payload.python), "-Es" if python_2 else "-I"]
