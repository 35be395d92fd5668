"""Signs on a finished prefix that tell package managers, and the people who call them, that it does not change.

conda and mamba honour ``conda-meta/frozen`` (CEP 22). pip and uv honour ``EXTERNALLY-MANAGED`` in the standard
library's folder (PEP 668), in a prefix that has its own interpreter; in a virtual environment both ignore it by design.
There the prefix simply has no pip unless the stack asks for one, and other users are kept out by its permissions.
"""

from __future__ import annotations

import json

from stackyard.build.job import Job
from stackyard.yard.atomic import write_text


def seal(job: Job) -> None:
    """Write both signs."""
    write_text(job.prefix / "conda-meta" / "frozen", json.dumps({"message": message(job.module)}) + "\n")
    if job.python_version:
        write_text(job.site_packages.parent / "EXTERNALLY-MANAGED", externally_managed(job.module))


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
