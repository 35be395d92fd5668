"""Seals a finished revision: markers for package managers and users, a note of every file, no write permissions.

The files of the prefix, and its directories, are read-only for their owner too. A file that is linked from a cache has
the same mode there, since both are one file.

conda and mamba honour ``conda-meta/frozen`` (CEP 22). pip and uv honour ``EXTERNALLY-MANAGED`` in the directory of the
standard library (PEP 668) if the prefix has its own interpreter; in a virtual environment both ignore it by design.
Such a prefix has no pip unless the stack requests it, and its permissions stop all users except root.

A stack that brings conda itself also has the site's pins in ``conda-meta/pinned``. conda and mamba honour them in every
solve for the prefix, even if ``conda-meta/frozen`` is overridden; the environments that users create get the same pins
through the revision's condarc.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from stackyard.core.names import brings_conda
from stackyard.host.files.hashing import sha256_text
from stackyard.make import nopip
from stackyard.make.job import Job
from stackyard.yard.revision import contents
from stackyard.yard.revision.contents import Tree
from stackyard.yard.write.atomic import write_text

if TYPE_CHECKING:
    from stackyard.inputs.models import Site


PARTS = ("prefix/", "lock/", "recipe/")
"""The parts of a revision that never change and are noted in its ``files.json``."""


def close(job: Job) -> tuple[str, Tree]:
    """Note the content of all files and remove write permissions; returns the note's hash, and the prefix's files.

    Files linked from a checked cache entry are not read again.

    Raises:
        StackyardError: a step of the build wrote into a file that is linked from a cache.
    """
    root = job.paths.root
    tree = contents.scan(root, PARTS)
    listing = contents.note(root, tree, job.entries.hash_of)
    text = listing.to_text()
    write_text(job.paths.files, text)
    contents.seal(root, tree, directories=False)
    prefix = {name: status for name, status in tree.items() if name.startswith(PARTS[0])}
    contents.seal(root, prefix, directories=True)
    return sha256_text(text), prefix


def seal(job: Job, interpreter: Mapping[str, str]) -> None:
    """Write the markers. `interpreter`: the source of Python, as in the record."""
    said = sentences(job, interpreter)
    write_text(job.prefix / "conda-meta" / "frozen", json.dumps({"message": " ".join(said)}) + "\n")
    if job.python_version:
        write_text(job.site_packages.parent / "EXTERNALLY-MANAGED", externally_managed(said))
        if job.variant.base is None:
            nopip.write(job, interpreter)
    if job.site.pins and brings_conda(job.variant.modules.conda_base, (p.name for p in job.locked.conda)):
        write_text(job.prefix / "conda-meta" / "pinned", pinned_text(job.site))


def pinned_text(site: Site) -> str:
    """The site's pins as a ``conda-meta/pinned`` file: one MatchSpec per line; empty without pins."""
    return "".join(f"{pin}\n" for pin in site.pins)


def sentences(job: Job, interpreter: Mapping[str, str]) -> list[str]:
    """Instructions for use instead of changing a published revision."""
    if job.variant.base is not None:
        return [f"This is the module {job.module}, which never changes. Load it, and `pip install` adds to it."]
    return [
        f"This is the module {job.module}, which is shared by many users and never changes.",
        f"To add packages, in a module of your own: stackyard extend --base {job.module} --name mine --pip PACKAGE",
        "To use other versions, list them in a file: stackyard deploy FILE",
        f"To try something quickly: {' && '.join(job.payload.on_top(interpreter, 'MYENV'))}",
    ]


def externally_managed(lines: Sequence[str]) -> str:
    """The text of the EXTERNALLY-MANAGED file: an INI file whose value continues in indented lines."""
    return "[externally-managed]\nError=" + "\n ".join(lines) + "\n"
