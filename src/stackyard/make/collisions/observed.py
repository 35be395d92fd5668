"""Reads the collisions in a third-party prefix without resolving them: the present file shows which package won."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from pathlib import Path

from stackyard.core.errors import StackyardError
from stackyard.lock.base import installed
from stackyard.make.collisions import rule as collisions
from stackyard.make.collisions.claims import Claim, Listings, Owner, shared
from stackyard.make.collisions.meaning import PKG_RESOURCES, PKGUTIL, meaning
from stackyard.yard.revision.collision import Collision, Kind


def observed(prefix: Path) -> tuple[Collision, ...]:
    """The paths that several packages of a prefix install with different content, by their own lists.

    A list that cannot be read is left out: `installed.installed` reports what is damaged. Files are named without a
    hash: nothing of an adopted prefix is compared by its bytes.

    Raises:
        StackyardError: a record of conda cannot be read.
    """
    listed = installed.listed(prefix)
    conda = [Owner("conda", name, n, path) for n, (path, name) in enumerate(listed.conda)]
    # the order of installation: pip's packages come after conda's
    rank = len(conda)
    wheels = [Owner("pip", i.name.split("-")[0], n, i / "RECORD") for n, i in enumerate(listed.pip, rank) if i.is_dir()]
    site = f"{listed.pip[0].parent.relative_to(prefix).as_posix()}/" if listed.pip else "/"
    result: dict[tuple[Kind, tuple[str, ...], str], dict[str, str]] = {}
    # a collision: the bytes differ, the file exists, and it is not the shared __init__.py of a namespace
    for path, claims in shared(_readable(prefix, [*conda, *wheels])).items():
        digests = [collisions.as_hex(claim.digest) for claim in claims]
        if "" in digests or len(set(digests)) > 1:
            present = _present(prefix / path)
            if present is not None and not _declares(path, present):
                names = collisions.labels(claim.owner for claim in claims)
                inner = path[len(site) :] if path.startswith(site) else ""
                key = (collisions.kind_of(path, inner), tuple(names.values()), _winner(claims, present, names))
                result.setdefault(key, {})[path] = ""
    return tuple(Collision(*key, files) for key, files in sorted(result.items(), key=lambda item: item[0]))


def _readable(prefix: Path, owners: Sequence[Owner]) -> Iterator[tuple[str, Claim]]:
    listings = Listings(prefix, installed.content)
    for owner in owners:
        try:
            yield from list(listings.all([owner]))
        except (OSError, ValueError, StackyardError):
            continue


def _present(place: Path) -> bytes | None:
    """The content at a path; None for anything missing, not a regular file, or too large to compare."""
    try:
        return None if place.is_symlink() or place.name.endswith(".pyc") else installed.content(place)
    except (OSError, ValueError):
        return None


def _declares(path: str, present: bytes) -> bool:
    """Whether it is a namespace's ``__init__.py``; those of other packages no longer exist for a comparison."""
    return path.endswith("/__init__.py") and meaning(present) in (PKGUTIL, PKG_RESOURCES)


def _winner(claims: Sequence[Claim], present: bytes, names: dict[Owner, str]) -> str:
    digest = hashlib.sha256(present).hexdigest()
    same = [names[claim.owner] for claim in claims if collisions.as_hex(claim.digest) == digest]
    return same[0] if len(same) == 1 else ""
