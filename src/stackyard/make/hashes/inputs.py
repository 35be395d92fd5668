"""The hash that identifies a build: all inputs that influence its files, its record's operations or its module.

It covers the locked packages (by their own hashes), the interpreter, how packages are compiled, patches and scripts (by
name and content, not by path), variables, permissions, licences, module settings and the paths that the site gives
users. It does not cover the expectations of a verification (`verify.expectations`): changed checks cause a
verification, not a build. Nor does it cover the policy for users' own environments, which a revision's condarc follows;
a site's pins count only if they are a file of the prefix. Nor does it cover host tools and their versions: these are in
the record and in the key of every compiled wheel, but reading them would start programs, which a deploy without changes
avoids.

Default values are left out, so that a new setting of this program does not change existing hashes.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stackyard.core.errors import InputError, StackyardError
from stackyard.core.names import brings_conda
from stackyard.host.files.hashing import sha256_once, sha256_values
from stackyard.lock.lockfile.model import CondaPackage, LockedVariant, PipPackage

if TYPE_CHECKING:
    from stackyard.inputs.models import Site, Variant
    from stackyard.yard.revision.record import BuildRecord

BUILD_FORMAT = 2
"""Increased when a new version of the program builds something else from the same inputs, or hashes them otherwise."""

_FROM_VARIANT = {
    "stack",
    "version",
    "name",
    "base",
    "adopted",
    "axes",
    "summary",
    "run_variables",
    "build",
    "post",
    "licences",
    "max_nodes",
    "modules",
    "image",
    "on_host",
    "wrap",
    "collisions",
}
_FROM_SITE: dict[str, Any] = {
    "run_variables": True,
    "permissions": True,
    # what is frozen beside the prefix when its module is first written
    "user_paths": True,
    "modules": {"naming", "family", "depends_on", "prompt"},
}


def input_hash(variant: Variant, locked: LockedVariant, site: Site) -> str:
    """sha256 over all inputs of a build, as hexadecimal digits.

    Raises:
        InputError: a patch, script or licence text that the spec names cannot be read.
    """
    return sha256_values(described(variant, locked, site))


def described(variant: Variant, locked: LockedVariant, site: Site) -> dict[str, Any]:
    """The inputs as plain values."""
    from stackyard.inputs.conda.environment import variables_for

    packages = sorted([*map(conda_inputs, locked.conda), *map(pip_inputs, locked.pip)])
    pinned = brings_conda(variant.modules.conda_base, (p.name for p in locked.conda))
    return {
        "format": BUILD_FORMAT,
        "platform": locked.platform,
        "packages": packages,
        "interpreter": interpreter_inputs(locked),
        "variant": _filled(
            with_contents(variant.model_dump(mode="json", include=_FROM_VARIANT, exclude_defaults=True))
        ),
        "environment_variables": variables_for(variant.environment, locked.platform, variant.axes),
        "site": _filled(site.model_dump(mode="json", include=_FROM_SITE, exclude_defaults=True))
        | accepted_licences(variant, site),
        "pinned": list(site.pins) if pinned else [],
    }


def accepted_licences(variant: Variant, site: Site) -> dict[str, Any]:
    """The licences that the module accepts for users; empty if it accepts none, for compatible hashes."""
    names = sorted({licence.name for licence in variant.licences}.intersection(site.licences.on_behalf_of_users))
    return {"licences": names} if names else {}


def _filled(values: dict[str, Any]) -> dict[str, Any]:
    """The values without sections that have only default values."""
    return {key: value for key, value in values.items() if value != {}}


def is_build_of(record: BuildRecord, variant: Variant, locked: LockedVariant, site: Site, digest: str) -> bool:
    """Whether a revision was built from these inputs, whose hash is `digest`, by this or an earlier version."""
    if record.hash_format >= BUILD_FORMAT:
        return record.input_hash == digest
    from stackyard.make.hashes.former_hash import former_hash

    unknown = variant.modules.commands or variant.collisions or variant.max_nodes  # settings that no such version had
    return not unknown and record.input_hash == former_hash(variant, locked, site, record)


def with_contents(value: dict[str, Any]) -> dict[str, Any]:
    """A variant's settings with a name and a hash for every file: their paths do not matter."""
    for package in value.get("build", {}).get("packages", {}).values():
        if "patches" in package:
            package["patches"] = [file_inputs(path) for path in package["patches"]]
    for licence in value.get("licences", ()):
        if "text" in licence:
            licence["text"] = file_inputs(licence["text"])
    if "wrap" in value:  # wherever the image lies, its digest says what it is
        value["wrap"].pop("image")
        if "before" in value["wrap"]:
            value["wrap"]["before"] = file_inputs(value["wrap"]["before"])
    return {**value, "post": file_inputs(value["post"])} if "post" in value else value


def conda_inputs(package: CondaPackage) -> list[str]:
    """The identity of a conda package's files."""
    return ["conda", package.name, package.version, package.build, package.subdir, package.sha256 or package.url]


def pip_inputs(package: PipPackage) -> list[str]:
    """The identity of a pip package's files, or of its source and compilation."""
    identity = package.sha256 or package.commit or package.url
    inputs = json.dumps(dict(package.build_inputs), sort_keys=True)
    return ["pip", package.name, package.version, package.kind, package.subdirectory, identity, inputs]


def interpreter_inputs(locked: LockedVariant) -> list[str]:
    """The identity of the interpreter."""
    interpreter = locked.interpreter
    return [interpreter.source, interpreter.version, interpreter.path, interpreter.sha256]


def file_inputs(path: str) -> list[str]:
    """A file's name and content hash; empty without a file."""
    return [Path(path).name, _digest(path)] if path else []


def _digest(name: str) -> str:
    try:
        return sha256_once(Path(name))
    except StackyardError as error:
        raise InputError(error.message, hint="see its path and its modes: the stack's file names it") from error
