"""Fetches what a build takes from caches, and builds nothing: conda packages, wheels and source archives.

What is known only during a build is not fetched: a git repository, and what compiling a source package needs.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from stackyard.core.findings import counted
from stackyard.core.progress import Progress
from stackyard.host.files.scratch import scratch
from stackyard.lock.lockfile.model import LockedVariant
from stackyard.make.job import Job
from stackyard.yard.layout import Yard
from stackyard.yard.revision.directories import RevisionPaths
from stackyard.yard.write import atomic
from stackyard.yard.write.permissions import applied

if TYPE_CHECKING:
    from stackyard.inputs.models import Site, Variant


def fetch(variant: Variant, locked: LockedVariant, site: Site, yard: Yard, module: str, progress: Progress) -> None:
    """Put what a locked variant takes from caches into those of a yard. Nothing is made in its revision's directory.

    Args:
        module: the name under which progress is reported.

    Raises:
        StackyardError: a package cannot be fetched, or differs from the lock; what was fetched before stays.
    """
    from stackyard.make import logins

    with scratch("fetch") as directory:
        job = Job(site, yard, variant, locked, _paths(directory), module, progress)
        job.work.mkdir(parents=True)
        logins.learn(job)
        with applied(job.policy, yard.root, yard.cache), atomic.together():
            _fetch(job, directory)


def _paths(directory: Path) -> RevisionPaths:
    """Paths for the work of a fetch: of a revision that is never made."""
    return RevisionPaths(directory / "stacks" / "fetch" / "0")


def _fetch(job: Job, directory: Path) -> None:
    from stackyard.make.conda import install as conda
    from stackyard.make.fetch import source_archive
    from stackyard.make.wheels import install as pip

    if job.locked.conda:
        job.progress.phase(job.module, "fetch", counted(len(job.locked.conda), "conda package"))
        conda.fetch(job)
    if wheels := pip.locked_wheels(job):
        job.progress.phase(job.module, "fetch", counted(len(wheels), "wheel"))
        pip.fetch(job, wheels, directory / "wheels")
    for package in job.locked.pip:
        if package.kind == "sdist":
            source_archive(job, package)
