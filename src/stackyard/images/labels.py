"""The defaults and labels of an image of any kind, describing the revision in it: the same for SIF and OCI."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from stackyard import __version__
from stackyard.host.files.hashing import sha256_file
from stackyard.yard.revision.directories import RevisionPaths
from stackyard.yard.revision.record import BuildRecord

DEFAULT_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
"""PATH where a base names none."""


def labels(
    record: BuildRecord, place: str, base: str, digest: str, licences: Iterable[Mapping[str, Any]] = ()
) -> dict[str, str]:
    """The annotations of OCI, and those of Stackyard; deterministic for the same revision and base.

    Args:
        place: the prefix in the image.
        base, digest: the name of the base, and the digest of its manifest; empty without one.
        licences: those of the base.
    """
    paths = RevisionPaths.of(record.path)
    recipe = {path.name: sha256_file(path) for path in sorted(paths.recipe.glob("*")) if path.is_file()}
    names = dict.fromkeys(str(licence.get("name", "")) for licence in (*record.licences, *licences))
    result = {
        "org.opencontainers.image.title": record.module,
        "org.opencontainers.image.version": record.version,
        "org.opencontainers.image.description": record.summary,
        "org.opencontainers.image.licenses": ", ".join(sorted(name for name in names if name)),
        "org.opencontainers.image.base.name": base,
        "org.opencontainers.image.base.digest": digest,
        "io.stackyard.prefix": place,
        "io.stackyard.platform": record.platform,
        "io.stackyard.version": __version__,
        "io.stackyard.input-hash": record.input_hash,
        "io.stackyard.lock-sha256": sha256_file(paths.lock) if paths.lock.exists() else "",
        "io.stackyard.recipe": " ".join(f"{name}={text}" for name, text in recipe.items()),
        "io.stackyard.packages": " ".join(sorted(f"{package.name}={package.version}" for package in record.packages)),
    }
    return {name: value for name, value in result.items() if value}
