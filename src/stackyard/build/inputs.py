"""The hash that identifies a build: everything that ends up in the prefix or in its record.

It covers the locked packages (by their own hashes), the interpreter, how packages are compiled, patches and scripts (by
content), run-time variables, permissions, and also checks, licences and module settings: they do not change the prefix,
but they are part of what users get, so a changed one makes a new revision (cheap, since the caches are warm). It does
not cover host tools and their versions: those are in the record and in the key of every compiled wheel, but looking at
them needs programs to run, and a deploy that changes nothing runs none.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stackyard.errors import InputError
from stackyard.lock.model import CondaPackage, LockedVariant, PipPackage

if TYPE_CHECKING:
    from stackyard.spec.models import Site, Variant

BUILD_FORMAT = 1
"""Raised when the program starts to build differently from the same inputs."""

_FROM_VARIANT = {
    "stack", "version", "name", "axes", "summary", "run_variables", "build", "checks", "exceptions", "licences",
    "modules",
}  # fmt: skip


def input_hash(variant: Variant, locked: LockedVariant, site: Site) -> str:
    """sha256 over all inputs of a build, as hexadecimal digits.

    Raises:
        InputError: a patch, script or licence text that the spec names cannot be read.
    """
    text = json.dumps(described(variant, locked, site), sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def described(variant: Variant, locked: LockedVariant, site: Site) -> dict[str, Any]:
    """The same inputs as plain values, for saying what changed between two builds."""
    from stackyard.spec.environment import variables_for

    return {
        "format": BUILD_FORMAT,
        "platform": locked.platform,
        "packages": sorted([*map(_conda, locked.conda), *map(_pip, locked.pip)]),
        "interpreter": _interpreter(locked),
        "variant": variant.model_dump(mode="json", include=_FROM_VARIANT),
        "environment_variables": variables_for(variant.environment, locked.platform, variant.axes),
        "files": dict(_files(variant)),
        "site": {
            "run_variables": site.run_variables,
            "permissions": site.permissions.model_dump(mode="json"),
        },
    }


def _conda(package: CondaPackage) -> list[str]:
    return ["conda", package.name, package.version, package.build, package.subdir, package.sha256 or package.url]


def _pip(package: PipPackage) -> list[str]:
    identity = package.sha256 or package.commit or package.url
    inputs = json.dumps(dict(package.build_inputs), sort_keys=True)
    return ["pip", package.name, package.version, package.kind, package.subdirectory, identity, inputs]


def _interpreter(locked: LockedVariant) -> list[str]:
    found = locked.interpreter
    return [found.source, found.version, found.path, found.sha256]


def _files(variant: Variant) -> Iterable[tuple[str, str]]:
    """Every file whose content matters, under a name that does not depend on where it lies."""
    if variant.post:
        yield "post", _digest(variant.post)
    for package, how in variant.build.packages.items():
        for number, patch in enumerate(how.patches):
            yield f"patch {package} {number}", _digest(patch)
    for check in variant.checks:
        if check.script:
            yield f"check {check.name}", _digest(check.script)
    for licence in variant.licences:
        if licence.text:
            yield f"licence {licence.name}", _digest(licence.text)


def _digest(name: str) -> str:
    try:
        status = Path(name).stat()
    except OSError as error:
        raise InputError(f"{name} cannot be read: {error.strerror}", hint="the stack's file names it") from error
    return _content_hash(name, status.st_mtime_ns, status.st_size, status.st_ino)


@lru_cache(maxsize=4096)
def _content_hash(name: str, _mtime_ns: int, _size: int, _inode: int) -> str:
    return hashlib.sha256(Path(name).read_bytes()).hexdigest()
