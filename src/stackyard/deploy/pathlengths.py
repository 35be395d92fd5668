"""Whether the path of a prefix fits into conda packages: refused before anything is solved, as a build takes an hour.

conda-build writes a placeholder of 255 characters into files, and installers overwrite it with the path of the prefix;
within a program or a library a longer path has no room. Packages of before 2016 have one of 80, which is known only
once they are there.
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
    """Refuse variants with conda packages whose prefix would have too long a path, whatever number it gets.

    Raises:
        InputError: with the first of them.
    """
    site = request.site
    for stack in request.stacks:
        for variant in stack.wanted:
            if _has_conda(variant, site, platform):
                name = naming.module_version(site, variant.version, variant.name, site.modules.first_revision)
                require_short_prefix(f"{stack.name}/{name}", request.yard.revision(stack.name, name).prefix)


def require_short_prefix(module: str, prefix: Path) -> None:
    """Refuse one prefix. Raises InputError."""
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
