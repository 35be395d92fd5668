"""The error for a package whose placeholder is too short for the prefix; rattler's own error lacks the numbers."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress

from stackyard.core.errors import InputError
from stackyard.core.findings import counted
from stackyard.lock.lockfile.model import CondaPackage
from stackyard.make.job import Job
from stackyard.yard import formats

_TOO_LONG = "longer than the placeholder"


def too_long(job: Job, reason: str) -> InputError | None:
    """The error for a package that was built for shorter paths (80 characters before 2016), if this is the reason."""
    if _TOO_LONG not in reason:
        return None
    length = len(os.fsencode(job.prefix))
    for package in job.locked.conda:
        room = min(_rooms(job, package), default=length)
        if room < length:
            return InputError(
                f"the path of {job.module} is {counted(length - room, 'character')} too long: {package.stem} holds "
                f"{room}, and it has {length}: {job.prefix}",
                hint=f"choose a yard with a shorter path (--yard, $STACKYARD_HOME), or a newer build of {package.name}",
            )
    return None


def _rooms(job: Job, package: CondaPackage) -> Iterator[int]:
    """The placeholder lengths in a package's programs and libraries."""
    with suppress(OSError, ValueError, KeyError, TypeError, AttributeError):
        paths = job.yard.package(package.stem) / "info" / "paths.json"
        for entry in formats.content(paths.read_bytes())["paths"]:
            if entry.get("file_mode") == "binary":
                yield len(os.fsencode(entry["prefix_placeholder"]))
