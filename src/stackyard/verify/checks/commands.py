"""Checks the files in ``bin``: each declared script exists, and its first line names an existing interpreter."""

from __future__ import annotations

import os
import re
import shlex
from pathlib import Path

from stackyard.host.run.command import which
from stackyard.verify.checks.distributions import Distribution
from stackyard.verify.context import Context, excepted
from stackyard.verify.report import CheckResult

OLD_KERNEL_LINE = 127
"""The longest first line that kernels before 5.1 read (BINPRM_BUF_SIZE was 128); newer ones read 255 characters."""


def file_problem(context: Context, one: Distribution, name: str) -> CheckResult | None:
    """The result for a wrong file of a declared script, or None. It must use the stack's own interpreter.

    A conda package may omit a script that its metadata declares, which is only a warning.
    """
    path = context.payload.program(name)
    if not path.exists():
        text = f"{one.name} declares the command {name}, but {path} does not exist"
        if one.kind == "conda":
            return CheckResult("command", name, "warned", text, required=False)
        return CheckResult("command", name, "failed", text)
    if not os.access(path, os.X_OK):
        return CheckResult("command", name, "failed", f"{path} is not executable")
    interpreter = interpreter_of(path)
    if interpreter is None:
        return None
    problem = _unresolved(interpreter, context)
    if problem is None and not _inside(interpreter, context):
        problem = f"its interpreter {' '.join(interpreter)} is not the stack's own interpreter"
    if problem is None:
        return None
    return CheckResult("command", name, "failed", f"{path}: {problem}", "rebuild the revision")


def check_other_scripts(context: Context, declared: set[str]) -> list[CheckResult]:
    """Check scripts in ``bin`` that no distribution declares: an invalid first line is a warning.

    Packages contain helper scripts for perl, csh and others without requiring them, and work nevertheless.
    """
    results = []
    directories = (directory for directory in context.payload.program_directories if directory.is_dir())
    for path in sorted(path for directory in directories for path in directory.iterdir()):
        if path.name in declared or path.is_symlink() or not path.is_file():
            continue
        interpreter = interpreter_of(path)
        problem = _unresolved(interpreter, context) if interpreter else None
        if problem and not excepted(path.name, context.exceptions.commands):
            results.append(CheckResult("command", path.name, "warned", f"{path}: {problem}", required=False))
    return results


def interpreter_of(path: Path) -> tuple[str, ...] | None:
    """The words of a script's interpreter; None for a file that is not a script.

    A first line that is too long for the kernel is written as ``#!/bin/sh`` with an ``exec`` of the real interpreter
    in the second line, which Python reads as a string; this interpreter is returned.
    """
    with path.open("rb") as stream:
        start = stream.read(4096)
    if not start.startswith(b"#!"):
        return None
    first, _, rest = start.partition(b"\n")
    words = os.fsdecode(first[2:].strip()).split()
    if words in (["/bin/sh"], ["/usr/bin/sh"], ["/bin/bash"]):
        words = _exec_trick(os.fsdecode(rest.split(b"\n", 1)[0]), path) or words
    return tuple(words)


def _exec_trick(line: str, path: Path) -> list[str] | None:
    """The interpreter in ``'''exec' "/long/bin/python" "$0" "$@"``; a relative one is made absolute."""
    try:
        words = shlex.split(line, comments=True)
    except ValueError:
        return None
    if len(words) < 2 or words[0] != "exec" or "$0" not in line:
        return None
    if words[1].startswith("$("):
        return [str(path.parent / line.rpartition(")")[2].split()[0].strip("\"'/"))]
    return [words[1]]


def _unresolved(words: tuple[str, ...], context: Context) -> str | None:
    """Why an interpreter cannot start, or None."""
    if not words:
        return "its first line does not name an interpreter"
    program = words[0]
    if Path(program).name == "env" and len(words) > 1:
        names = [word for word in words[1:] if not word.startswith("-") and "=" not in word]
        if names and which(names[0], context.environ) is None:
            return f"its first line names {names[0]}, which is not found on PATH of the loaded module"
        return None
    if not Path(program).exists():
        return f"its first line names {program}, which does not exist"
    if not os.access(program, os.X_OK):
        return f"its first line names {program}, which is not executable"
    length = len("#!" + " ".join(words))
    if length > OLD_KERNEL_LINE and _before_5_1(context.machine.kernel):
        return f"its first line has {length} characters, but the kernel of this machine reads only {OLD_KERNEL_LINE}"
    return None


def _inside(words: tuple[str, ...], context: Context) -> bool:
    """Whether a script's interpreter belongs to the prefix (``env python`` does when the module is loaded).

    An adopted prefix in an image has two paths, at which the same files are.
    """
    program = Path(words[0])
    if program.name == "env" or words[0] in ("/bin/sh", "/bin/bash"):
        return True
    own = (directory for directory in context.payload.program_directories if directory.exists())
    return any(program.parent.samefile(directory) for directory in own)


def _before_5_1(kernel: str) -> bool:
    match = re.match(r"(\d+)\.(\d+)", kernel)
    return bool(match) and (int(match.group(1)), int(match.group(2))) < (5, 1) if match else False
