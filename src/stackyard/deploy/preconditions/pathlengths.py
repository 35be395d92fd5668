"""Checks before a solve, since a build takes an hour, that a prefix's path is short enough for conda packages.

conda-build writes a placeholder of 255 characters into files, and installers overwrite it with the path of the prefix;
a longer path does not fit into a program or a library. Packages from before 2016 have placeholders of 80 characters,
which is known only after a download.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from stackyard.core.errors import InputError
from stackyard.core.findings import counted
from stackyard.inputs.models import Site, Variant
from stackyard.inputs.stacks import naming
from stackyard.lock.interpreter import source_of
from stackyard.lock.lockfile.fingerprint import conda_requirements, pip_requirements

if TYPE_CHECKING:
    from stackyard.deploy.deploy import Request

LONGEST = 255
"""Characters of a prefix (``conda_build.config.DEFAULT_PREFIX_LENGTH``)."""


def require_short(request: Request, platform: str) -> None:
    """Reject variants with conda packages whose prefix path would be too long, whatever its revision number.

    Raises:
        InputError: names the first such variant.
    """
    site = request.site
    for stack in request.stacks:
        for variant in stack.wanted:
            if _has_conda(variant, site, platform):
                name = naming.module_version(site, variant.version, variant.name, site.modules.first_revision)
                require_short_prefix(f"{stack.name}/{name}", request.yard.revision(stack.name, name).prefix)


def require_short_prefix(module: str, prefix: Path) -> None:
    """Reject a prefix with too long a path. Raises InputError."""
    length = len(os.fsencode(prefix))
    if length > LONGEST:
        raise InputError(
            f"the path of {module} is {counted(length - LONGEST, 'character')} too long: conda packages hold "
            f"{LONGEST}, and it has {length}: {prefix}",
            hint="choose a yard with a shorter path (--yard, $STACKYARD_HOME, `yard:` of site.yaml), or a shorter name "
            "or version; `modules: {naming: ...}` of site.yaml forms the last part",
        )


def _has_conda(variant: Variant, site: Site, platform: str) -> bool:
    if conda_requirements(variant, platform):
        return True
    source = source_of(variant.interpreter.completed(site.interpreter), conda=False)
    return not variant.on and source == "conda" and bool(pip_requirements(variant, platform))
