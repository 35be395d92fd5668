"""The build of an adopted prefix: nothing is installed or changed; its contents are noted."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

from stackyard.core.errors import StackyardError
from stackyard.host.files.hashing import sha256_file
from stackyard.make.job import Job
from stackyard.yard import disk
from stackyard.yard.disk import DiskUse
from stackyard.yard.kinds.adopted import FOR_ADOPTED, AdoptedPrefix
from stackyard.yard.kinds.payload import Prefix
from stackyard.yard.revision import adoptedfiles
from stackyard.yard.revision.contents import Tree
from stackyard.yard.write.atomic import write_text


def note(job: Job, prefix: AdoptedPrefix) -> DiskUse:
    """Write the list of its files beside the record.

    Returns:
        Their disk use. None of it belongs to the yard: a removal frees nothing.

    Raises:
        StackyardError: the prefix has changed since it was examined.
    """
    root = Path(prefix.prefix)
    tree = look(root)
    text = adoptedfiles.noted(root, tree).to_text()
    if hashlib.sha256(text.encode()).hexdigest() != prefix.files_sha256:
        raise StackyardError(
            f"cannot adopt {root}: its files are changing", hint="adopt it when nothing installs into it any more"
        )
    write_text(job.paths.adopted, text)
    use = disk.measure(tree.values())
    return DiskUse(FOR_ADOPTED, 0, use.bytes_new + use.bytes_shared, 0, use.inodes_new + use.inodes_shared)


def look(root: Path) -> Tree:
    """The present files of a prefix.

    Raises:
        StackyardError: one of its directories cannot be read, or was removed meanwhile.
    """
    try:
        return adoptedfiles.look(root)
    except OSError as error:
        name = os.fspath(error.filename or root).rstrip("/")
        raise StackyardError(
            f"cannot adopt {root}: {(error.strerror or 'unreadable').lower()}: {name}",
            hint="ask its owner for the right to read all of it",
        ) from error


def interpreter(job: Job, prefix: AdoptedPrefix) -> dict[str, str]:
    """The source of its Python, in a record's format; empty without Python."""
    locked = job.locked.interpreter
    if locked.source == "none":
        return {}
    path = Path(locked.path) if locked.path else Prefix(Path(prefix.prefix)).python
    return {
        "source": locked.source, "path": str(path), "version": locked.version, "sha256": sha256_file(path.resolve()),
    }  # fmt: skip
