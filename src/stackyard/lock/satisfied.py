"""Whether a locked package satisfies a requirement: for conda by rattler's rules, for PyPI by packaging's."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from typing import TYPE_CHECKING

from stackyard.core.names import conda_name
from stackyard.lock.conda.records import package_record
from stackyard.lock.lockfile.model import CondaPackage, PipPackage

if TYPE_CHECKING:
    from rattler import MatchSpec


def conda_satisfies(package: CondaPackage, spec: str) -> bool:
    """Whether a conda package satisfies the version and the build in a MatchSpec for its name.

    The channel of a spec is ignored; a spec that cannot be parsed (a URL) is satisfied. A package with an invalid
    version or build (an edited lock) satisfies nothing.
    """
    from rattler.exceptions import InvalidVersionError

    parsed = _spec(spec.rsplit("::", 1)[-1].strip())
    try:
        return parsed is None or parsed.matches(package_record(package))
    except (InvalidVersionError, ValueError):
        return False


def fits(package: CondaPackage, specs: Iterable[str]) -> bool:
    """Whether a conda package satisfies all of these MatchSpecs that name it."""
    return all(conda_satisfies(package, spec) for spec in specs if conda_name(spec) == package.name)


def satisfied(version: str, requirement: str) -> bool:
    """Whether a version (empty: none) satisfies the requirement; for a URL requirement none does."""
    from packaging.requirements import Requirement

    try:
        specification = Requirement(requirement)
        return bool(version) and not specification.url and specification.specifier.contains(version, prereleases=True)
    except ValueError:
        return False


def pip_satisfies(package: PipPackage, requirement: str) -> bool:
    """Whether a pip package has the requested version; a requirement by URL or path is satisfied."""
    from packaging.requirements import Requirement

    try:
        specifier = Requirement(requirement.split(" --", 1)[0]).specifier
        return not package.version or specifier.contains(package.version, prereleases=True)
    except ValueError:
        return True


def virtual_satisfies(virtual: str, spec: str) -> bool:
    """Whether a virtual package, as ``name=version=build``, satisfies a MatchSpec of its name."""
    name, version, build = virtual.split("=", 2)
    return conda_satisfies(CondaPackage(name, version, build, 0, "noarch", "", "", ""), spec)


@lru_cache(maxsize=4096)
def _spec(text: str) -> MatchSpec | None:
    from rattler import MatchSpec
    from rattler.exceptions import InvalidMatchSpecError

    try:
        return MatchSpec(text)
    except InvalidMatchSpecError:
        return None
