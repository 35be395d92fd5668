"""`deploy --fetch-only`: fills the caches of a yard with what its stacks are built from, and publishes nothing."""

from __future__ import annotations

from pathlib import Path

from stackyard.core.late import dataclass
from stackyard.core.progress import Progress
from stackyard.deploy import licences
from stackyard.deploy.deploy import Request, lock_all, plan, require
from stackyard.deploy.locking import write_lock
from stackyard.deploy.published.labels import without_labels
from stackyard.deploy.writing import building
from stackyard.make import prefetch


@dataclass(frozen=True)
class FetchedVariant:
    """One variant whose packages are in the caches now.

    `conda` and `pip` are the numbers of its packages. `is_built`: a revision of it exists, so nothing was fetched.
    """

    module: str
    conda: int
    pip: int
    is_built: bool


@dataclass(frozen=True)
class FetchResult:
    """The variants, in the order of the matrix, and the lock files that were written."""

    variants: tuple[FetchedVariant, ...]
    locks: tuple[Path, ...]


def fetch_stacks(request: Request, progress: Progress) -> FetchResult:
    """Lock the stacks of a request, and fetch what building them takes. Licences are required as for a build.

    Raises:
        StackyardError: as for a deploy; a package cannot be fetched.
    """
    with building(request, [stack.name for stack in request.stacks], progress.notice) as leases:
        require(request, building=False)
        locks = lock_all(request, progress)
        leases.check()
        written = tuple(place for locked in locks if (place := write_lock(locked, request.yard, progress)))
        variants = []
        for task in plan(request, locks, building=False):
            is_built = task.record is not None
            if not is_built:
                licences.require_for_build(request, task.variant)
                variant = without_labels(task.variant)
                prefetch.fetch(variant, task.locked, request.site, request.yard, task.module, progress)
            packages = (len(task.locked.conda), len(task.locked.pip))
            variants.append(FetchedVariant(task.module, *packages, is_built))
        return FetchResult(tuple(variants), written)
