"""The hash that identifies a build: everything that ends up in the prefix, in its record or in its module.

It covers the locked packages (by their own hashes), the interpreter, how packages are compiled, patches and scripts (by
name and content, not by path), variables, permissions, and also checks, licences, module settings and the site's
policy for users: these do not change the prefix, but users get them with it and they never change once published, so a
change makes a new revision (cheap, since the caches are warm). It does not cover host tools and their versions: these
are in the record and in the key of every compiled wheel, but reading them runs programs, and a deploy that changes
nothing runs none.
"""

from __future__ import annotations

import hashlib
import json
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stackyard.errors import InputError
from stackyard.lock.model import CondaPackage, LockedVariant, PipPackage

if TYPE_CHECKING:
    from stackyard.spec.models import Site, Variant

BUILD_FORMAT = 1
"""Increased when a new version of the program builds something else from the same inputs."""

_FROM_VARIANT = {
    "stack", "version", "name", "axes", "summary", "run_variables", "build", "post", "checks", "exceptions", "licences",
    "modules",
}  # fmt: skip
_FROM_SITE: dict[str, Any] = {
    "run_variables": True,
    "permissions": True,
    # what is frozen beside the prefix when its module is first written: its operations and its condarc
    "user_paths": True,
    "condarc": True,
    "pins": True,
    "channels": {"alias", "default", "prepend", "mirrors", "priority", "denied"},
    "modules": {"naming", "family", "depends_on"},
}


def input_hash(variant: Variant, locked: LockedVariant, site: Site) -> str:
    """sha256 over all inputs of a build, as hexadecimal digits.

    Raises:
        InputError: a patch, script or licence text that the spec names cannot be read.
    """
    text = json.dumps(described(variant, locked, site), sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def described(variant: Variant, locked: LockedVariant, site: Site) -> dict[str, Any]:
    """The same inputs as plain values, to report what changed between two builds."""
    from stackyard.spec.environment import variables_for

    return {
        "format": BUILD_FORMAT,
        "platform": locked.platform,
        "packages": sorted([*map(_conda, locked.conda), *map(_pip, locked.pip)]),
        "interpreter": _interpreter(locked),
        "variant": _variant(variant),
        "environment_variables": variables_for(variant.environment, locked.platform, variant.axes),
        "site": site.model_dump(mode="json", include=_FROM_SITE),
    }


def _variant(variant: Variant) -> dict[str, Any]:
    """The stack's settings, with a name and a hash for every file: their paths do not matter."""
    value = variant.model_dump(mode="json", include=_FROM_VARIANT)
    for package in value["build"]["packages"].values():
        package["patches"] = [_file(path) for path in package["patches"]]
    for check in value["checks"]:
        check["script"] = _file(check["script"])
    for licence in value["licences"]:
        licence["text"] = _file(licence["text"])
    return {**value, "post": _file(value["post"])}


def _conda(package: CondaPackage) -> list[str]:
    return ["conda", package.name, package.version, package.build, package.subdir, package.sha256 or package.url]


def _pip(package: PipPackage) -> list[str]:
    identity = package.sha256 or package.commit or package.url
    inputs = json.dumps(dict(package.build_inputs), sort_keys=True)
    return ["pip", package.name, package.version, package.kind, package.subdirectory, identity, inputs]


def _interpreter(locked: LockedVariant) -> list[str]:
    found = locked.interpreter
    return [found.source, found.version, found.path, found.sha256]


def _file(path: str) -> list[str]:
    """A file's name and the hash of its content; empty where none is named."""
    return [Path(path).name, _digest(path)] if path else []


def _digest(name: str) -> str:
    try:
        status = Path(name).stat()
    except OSError as error:
        raise InputError(f"cannot read {name}: {error.strerror}", hint="see its path in the stack's file") from error
    return _content_hash(name, status.st_mtime_ns, status.st_size, status.st_ino)


@lru_cache(maxsize=4096)
def _content_hash(name: str, _mtime_ns: int, _size: int, _inode: int) -> str:
    return hashlib.sha256(Path(name).read_bytes()).hexdigest()
