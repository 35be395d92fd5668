"""Signs on a finished prefix that tell package managers, and the people who call them, what they may do with it.

conda and mamba honour ``conda-meta/frozen`` (CEP 22). pip and uv honour ``EXTERNALLY-MANAGED`` in the standard
library's folder (PEP 668), in a prefix that has its own interpreter; in a virtual environment both ignore it by design.
There the prefix simply has no pip unless the stack asks for one, and other users are kept out by its permissions.

A stack that brings conda itself also holds the site's pins in ``conda-meta/pinned``, which conda and mamba honour in
whatever is solved for the prefix, also for somebody who overrides ``conda-meta/frozen``; the environments that users
make get the same pins through the revision's condarc.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from stackyard.build.job import Job
from stackyard.host.names import brings_conda
from stackyard.yard.atomic import write_text

if TYPE_CHECKING:
    from stackyard.spec.models import Site


def seal(job: Job) -> None:
    """Write the signs."""
    write_text(job.prefix / "conda-meta" / "frozen", json.dumps({"message": message(job.module)}) + "\n")
    if job.python_version:
        write_text(job.site_packages.parent / "EXTERNALLY-MANAGED", externally_managed(job.module))
    if job.site.pins and brings_conda(job.variant.modules.conda_base, (p.name for p in job.locked.conda)):
        write_text(job.prefix / "conda-meta" / "pinned", pinned_text(job.site))


def pinned_text(site: Site) -> str:
    """The site's pins as a ``conda-meta/pinned`` file: one MatchSpec per line, empty where there is none."""
    return "".join(f"{pin}\n" for pin in site.pins)


def message(module: str) -> str:
    """What to do instead of changing a published revision."""
    return (
        f"This is the module {module}, which many people use and which never changes. "
        "To have other packages, write a file with what you need and run `stackyard deploy FILE`: it makes a module of "
        "your own, next to this one. For a quick try: python -m venv --system-site-packages MYENV"
    )


def externally_managed(module: str) -> str:
    """The text of the EXTERNALLY-MANAGED file: an INI file whose value goes on in indented lines."""
    lines = message(module).replace(". ", ".\n").splitlines()
    return "[externally-managed]\nError=" + "\n ".join(lines) + "\n"
