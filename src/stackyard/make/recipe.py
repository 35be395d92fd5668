"""Copies of the input files and of the lock, kept in the revision."""

from __future__ import annotations

import shutil
from collections.abc import Collection, Iterator
from pathlib import Path

from stackyard.core.secrets import redacted
from stackyard.lock.lockfile.model import Lock
from stackyard.lock.lockfile.text import dump
from stackyard.make.job import Job
from stackyard.yard import disk
from stackyard.yard.write.atomic import write_text


def keep(job: Job) -> dict[str, str]:
    """Write the revision's ``lock/`` and ``recipe/``.

    Returns:
        The name in ``recipe/`` of every copied file, by its path; a file that no longer exists is left out.
    """
    write_text(job.paths.lock, dump(Lock(job.locked.stack, (job.locked,))))
    disk.remove_tree(job.paths.recipe)
    job.paths.recipe.mkdir(parents=True)
    variables: dict[str, str] = {}
    for path in _files(job):
        if str(path) not in variables and path.is_file():
            variables[str(path)] = _free_name(path.name, variables.values())
            shutil.copy(path, job.paths.recipe / variables[str(path)])
    for name in job.variant.files:
        if name in variables:
            _redact(job.paths.recipe / variables[name])
    return variables


def _redact(copy: Path) -> None:
    """Remove logins and tokens from the copy of a requirements file, which all users can read."""
    text = copy.read_bytes().decode("utf-8", "surrogateescape")
    clean = redacted(text)
    if clean != text:
        copy.write_bytes(clean.encode("utf-8", "surrogateescape"))


def _files(job: Job) -> Iterator[Path]:
    variant = job.variant
    yield from map(Path, variant.files)
    if variant.post:
        yield Path(variant.post)
    if variant.wrap is not None and variant.wrap.before:
        yield Path(variant.wrap.before)
    for how in variant.build.packages.values():
        yield from map(Path, how.patches)
    yield from (Path(check.script) for check in variant.checks if check.script)
    yield from (Path(licence.text) for licence in variant.licences if licence.text)


def _free_name(name: str, taken: Collection[str]) -> str:
    """The name; ``name.2`` and so on if files from several directories have the same name."""
    number, free = 1, name
    while free in taken:
        number += 1
        free = f"{name}.{number}"
    return free
