"""The packages of a revision with their licences, without a network.

A record of format 10 has them. For an earlier one those of conda packages are in its lock, and those of pip packages in
what is installed, or in the notes of former look-ups; what is nowhere stays empty.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from stackyard.core.errors import StackyardError
from stackyard.core.names import canonical
from stackyard.lock.lockfile.model import LockedVariant
from stackyard.yard.kinds.extension import BaseRevision
from stackyard.yard.layout import Yard
from stackyard.yard.revision.directories import RevisionPaths
from stackyard.yard.revision.record import BuildRecord, PackageRecord

Key = tuple[str, str]
"""The kind and the name of a package."""


def packages_of(
    record: BuildRecord, find: Callable[[BaseRevision], BuildRecord] = BaseRevision.read
) -> tuple[PackageRecord, ...]:
    """The packages of a revision, those of its base first, each with its licence as far as that is known here.

    Nothing is raised for files that are gone or damaged: the licences that they have stay unknown.

    Args:
        find: reads the record of a base.
    """
    own, below = record.own_packages, tuple(package for package in record.packages if package.of_base)
    base = next(record.bases(find), None)
    if base and below and not _has_licences(below):
        with suppress(StackyardError, OSError):
            known = {_key(p): p.licence for p in packages_of(find(base), find)}
            below = tuple(replace(p, licence=known.get(_key(p), "")) for p in below)
    if own and not _has_licences(own):
        stated = _stated(record)
        own = tuple(replace(p, licence=stated.get(_key(p), "")) for p in own)
    return (*below, *own)


def locked_of(record: BuildRecord) -> LockedVariant | None:
    """The variant in the lock that a revision keeps; None: it has no lock, or one that cannot be read."""
    from stackyard.lock.lockfile.text import read

    try:
        return next(iter(read(RevisionPaths.of(record.path).lock).variants), None)
    except (StackyardError, OSError):
        return None


def _has_licences(packages: tuple[PackageRecord, ...]) -> bool:
    """Whether they are of a record that has licences: in an earlier one no package has."""
    return any(package.licence for package in packages)


def _key(package: PackageRecord) -> Key:
    return package.kind, package.name


def _stated(record: BuildRecord) -> Mapping[Key, str]:
    """The licences of an earlier record's own packages: from its lock, its files, and the cache's notes."""
    from stackyard.lock import licencetexts

    locked = locked_of(record)
    found: dict[Key, str] = {("conda", p.name): licencetexts.of_conda(p) for p in locked.conda} if locked else {}
    pip = [package for package in record.own_packages if package.kind == "pip"]
    if not pip:
        return found
    installed = licencetexts.installed(_package_directory(record, locked))
    yard = Yard(RevisionPaths.of(record.path).yard)
    for package in pip:
        found["pip", package.name] = (
            installed.get(canonical(package.name)) or licencetexts.noted(package.sha256, yard) or ""
        )
    return found


def _package_directory(record: BuildRecord, locked: LockedVariant | None) -> Path:
    from stackyard.lock.base.installed import site_packages

    return site_packages(Path(record.prefix), record.interpreter.get("version", ""), locked.conda if locked else ())
