"""The stack's post script: run once with bash in the activated environment; what it changes is part of the prefix.

A stack with a post script gets files of its own instead of hard links, since ``echo x >> file`` would otherwise write
into the cache and into every revision that shares the file.
"""

from __future__ import annotations

import os
from pathlib import Path

from stackyard.build import programs
from stackyard.build.job import Job
from stackyard.change import EnvironmentChange
from stackyard.errors import InputError
from stackyard.host import command

_TIMEOUT_S = 4 * 3600
Stamp = tuple[int, int, int]


def run(job: Job, change: EnvironmentChange) -> list[str]:
    """Run the script; return the Python files below ``lib`` that it created or changed, relative to the prefix.

    It gets ``PREFIX``, ``CONDA_PREFIX`` and ``STACKYARD_MODULE``, starts in the prefix, and stops at the first command
    that fails.

    Raises:
        InputError: the script does not exist.
        StackyardError: a command in it failed; the detail has the end of its output.
    """
    script = Path(job.variant.post)
    if not script.is_file():
        raise InputError(f"post script not found: {script}", hint="see `post:` in the stack's file")
    before = _python_files(job.prefix)
    programs.run(
        ["bash", "--noprofile", "--norc", "-e", script],
        what=f"the post script of {job.module}",
        log=job.paths.log,
        env=environment(job, change),
        cwd=job.prefix,
        timeout_s=_TIMEOUT_S,
    )
    return sorted(name for name, stamp in _python_files(job.prefix).items() if before.get(name) != stamp)


def environment(job: Job, change: EnvironmentChange) -> dict[str, str]:
    """The script's environment: a clean one in which the stack is active."""
    prefix = os.fspath(job.prefix)
    env = change.apply(command.clean_environment())
    env |= {"PREFIX": prefix, "CONDA_PREFIX": prefix, "STACKYARD_MODULE": job.module, "PYTHONDONTWRITEBYTECODE": "1"}
    env["PATH"] = job.payload.search_path(env["PATH"])
    return env


def _python_files(prefix: Path) -> dict[str, Stamp]:
    found: dict[str, Stamp] = {}
    for folder, _, files in os.walk(prefix / "lib"):
        for name in files:
            if name.endswith(".py"):
                path = Path(folder) / name
                status = path.lstat()
                found[os.fspath(path.relative_to(prefix))] = (status.st_ino, status.st_size, status.st_ctime_ns)
    return found
