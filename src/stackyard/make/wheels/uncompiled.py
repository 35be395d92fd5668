"""The error for a package that does not compile, with its requirement's line, the cause and the remedy."""

from __future__ import annotations

from stackyard.core.errors import StackyardError, Where
from stackyard.core.names import canonical
from stackyard.host.files.hashing import local_path
from stackyard.inputs.models import PipRequirement
from stackyard.lock.explain import sourcefailure
from stackyard.lock.explain.why import chains
from stackyard.lock.lockfile.model import PipPackage
from stackyard.make.job import Job
from stackyard.make.programs import FailedError


def explained(job: Job, package: PipPackage, error: FailedError) -> StackyardError:
    """The error for a failed compilation, with its cause if known."""
    above, place = _origin(job, package)
    file = place.file if place else ""
    why = sourcefailure.explained(error.output, package.name, job.variant.build, file)
    needed = f" (required by {above})" if above else ""
    message = f"cannot compile {package.name} {package.version}{needed}: {why.cause}" if why else error.message
    hint = "; ".join(text for text in (why.remedy if why else "", error.hint or "") if text)
    return StackyardError(message, where=place, hint=hint, detail=error.detail)


def _origin(job: Job, package: PipPackage) -> tuple[str, Where | None]:
    """The package that requires it, unless a requirement names it; and the line of that requirement."""
    for chain in chains(job.locked, package.name):
        root = chain[0].partition(" ")[0]
        requirement = next((r for r in job.variant.environment.pip if _names(r, root, job)), None)
        if requirement is not None and requirement.place.file:
            return (chain[-2] if len(chain) > 1 else "", requirement.place)
    return "", None


def _names(requirement: PipRequirement, name: str, job: Job) -> bool:
    if requirement.name:
        return canonical(requirement.name) == canonical(name)
    locked = next((p for p in job.locked.pip if canonical(p.name) == canonical(name)), None)
    return (
        locked is not None and {str(local_path(locked.url)), locked.url} & {requirement.path, requirement.url} != set()
    )
