"""Marks a finished prefix as immutable for package managers and their users.

conda and mamba honour ``conda-meta/frozen`` (CEP 22). pip and uv honour ``EXTERNALLY-MANAGED`` in the directory of the
standard library (PEP 668) if the prefix has its own interpreter; in a virtual environment both ignore it by design.
Such a prefix has no pip unless the stack requests it, and its permissions keep other users out.

A stack that brings conda itself also has the site's pins in ``conda-meta/pinned``. conda and mamba honour them in every
solve for the prefix, even if ``conda-meta/frozen`` is overridden; the environments that users create get the same pins
through the revision's condarc.
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
    """Write the marks."""
    write_text(job.prefix / "conda-meta" / "frozen", json.dumps({"message": message(job.module)}) + "\n")
    if job.python_version:
        write_text(job.site_packages.parent / "EXTERNALLY-MANAGED", externally_managed(job.module))
    if job.site.pins and brings_conda(job.variant.modules.conda_base, (p.name for p in job.locked.conda)):
        write_text(job.prefix / "conda-meta" / "pinned", pinned_text(job.site))


def pinned_text(site: Site) -> str:
    """The site's pins as a ``conda-meta/pinned`` file: one MatchSpec per line; empty without pins."""
    return "".join(f"{pin}\n" for pin in site.pins)


def message(module: str) -> str:
    """What to do instead of changing a published revision."""
    return (
        f"This is the module {module}, which is shared by many users and never changes. "
        "To use other packages, list them in a file and run `stackyard deploy FILE`: it creates a module of your own, "
        "next to this one. To try something quickly: python -m venv --system-site-packages MYENV"
    )


def externally_managed(module: str) -> str:
    """The text of the EXTERNALLY-MANAGED file: an INI file whose value continues in indented lines."""
    lines = message(module).replace(". ", ".\n").splitlines()
    return "[externally-managed]\nError=" + "\n ".join(lines) + "\n"
