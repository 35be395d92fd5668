"""The hash of every locked archive: provided by its index, or computed here."""

from __future__ import annotations

from dataclasses import replace
from typing import TypeVar

from stackyard.core.errors import StackyardError
from stackyard.host.files.hashing import digest_url, local_path, sha256_file
from stackyard.host.net.trust import PLAIN, Trust
from stackyard.lock.lockfile.model import CondaPackage, PipPackage

Package = TypeVar("Package", CondaPackage, PipPackage)


def hashed(package: Package, error: type[StackyardError], whose: str, hint: str, trust: Trust = PLAIN) -> Package:
    """A package with sha256 and size: always computed for a local file, else only if its index has none.

    Args:
        error: the exception for a file that differs from its index, with this hint.
        whose: the index, for the message: ``its``, ``its channel's``.
    """
    path = local_path(package.url)
    if path is not None:
        digest = sha256_file(path)
        if package.sha256 and package.sha256 != digest:
            raise error(f"hash mismatch for {path}: {whose} index has sha256 {package.sha256[:12]}...", hint=hint)
        return replace(package, sha256=digest, size=path.stat().st_size)
    if package.sha256:
        return package
    digest, size = digest_url(package.url, trust=trust)
    return replace(package, sha256=digest, size=size)
