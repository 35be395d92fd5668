"""The stack's post script: run once by bash in the activated environment; its changes become part of the prefix.

``echo x >> file`` in it must not modify the cache and other revisions that share the file by a hard link. So it runs
over a layer (`host.run.layer`), and only changed files become the prefix's own. If no layer is available, which needs
root, a stack with a post script gets copies of all files.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path

from stackyard.core.change import EnvironmentChange
from stackyard.core.errors import InputError
from stackyard.host.run import command
from stackyard.host.run.layer import Layer
from stackyard.make import programs
from stackyard.make.job import Job

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
    argv: list[str | os.PathLike[str]] = ["bash", "--noprofile", "--norc", "-e", script]
    layer = None if job.private_files else Layer(job.prefix, job.work / "post")
    if layer is None:
        _allow_writing(job.prefix)
    programs.run(
        layer.argv(argv) if layer else argv,
        what=f"the post script of {job.module}",
        log=job.paths.log,
        env=environment(job, change),
        cwd=job.prefix,
        timeout_s=_TIMEOUT_S,
        view=job.view(job.paths.root),
    )
    if layer is not None:
        layer.merge()
    return sorted(name for name, stamp in _python_files(job.prefix).items() if before.get(name) != stamp)


def _allow_writing(prefix: Path) -> None:
    """Make the prefix's files writable for the script: they are copies with the caches' read-only modes."""
    for directory, _, files in os.walk(prefix):
        for name in files:
            path = Path(directory, name)
            mode = path.lstat().st_mode
            if stat.S_ISREG(mode) and not mode & stat.S_IWUSR:
                path.chmod(stat.S_IMODE(mode) | stat.S_IWUSR)


def environment(job: Job, change: EnvironmentChange) -> dict[str, str]:
    """The script's environment: a clean one with the stack activated."""
    prefix = os.fspath(job.prefix)
    env = change.apply(command.clean_environment())
    env |= {"PREFIX": prefix, "CONDA_PREFIX": prefix, "STACKYARD_MODULE": job.module, "PYTHONDONTWRITEBYTECODE": "1"}
    env["PATH"] = job.payload.search_path(env["PATH"])
    return env


def _python_files(prefix: Path) -> dict[str, Stamp]:
    stamps: dict[str, Stamp] = {}
    for directory, _, files in os.walk(prefix / "lib"):
        for name in files:
            if name.endswith(".py"):
                path = Path(directory) / name
                status = path.lstat()
                stamps[os.fspath(path.relative_to(prefix))] = (status.st_ino, status.st_size, status.st_ctime_ns)
    return stamps
