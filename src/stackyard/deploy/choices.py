"""Checks a stack's choices for paths that several packages install, against its locks, before a build.

A package may be in some variants only, so a choice is valid if any variant has the package.
"""

from __future__ import annotations

from collections.abc import Iterator

from stackyard.inputs.models import Site, Stack
from stackyard.lock.base import extension as onbase
from stackyard.lock.lockfile.model import Lock
from stackyard.make.collisions import rule as collisions
from stackyard.make.collisions.rule import Choice


def require_known(stack: Stack, lock: Lock, site: Site) -> None:
    """Raise InputError for a choice of a package that no variant has. The site's choices are not checked."""
    choices = (
        Choice(path, package, variant.collision_places.get(path))
        for variant in stack.variants
        for path, package in variant.collisions.items()
    )
    own = [choice for choice in choices if not site.file or choice.place is None or choice.place.file != site.file]
    if own:
        collisions.require_known(own, _names(stack, lock))


def _names(stack: Stack, lock: Lock) -> Iterator[str]:
    for locked in lock.variants:
        yield from (package.name for package in locked.conda)
        yield from (package.name for package in locked.pip)
    for variant in stack.variants:
        yield from (package.name for package in onbase.packages(variant.base))
