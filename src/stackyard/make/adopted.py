"""The build of an adopted prefix: nothing is installed or changed; its contents are noted."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from stackyard.core.change import EnvironmentChange
from stackyard.core.errors import StackyardError
from stackyard.host.files.hashing import sha256_file
from stackyard.make.job import Job
from stackyard.yard import disk
from stackyard.yard.disk import DiskUse
from stackyard.yard.kinds.adopted import FOR_ADOPTED, AdoptedPrefix
from stackyard.yard.kinds.payload import Prefix
from stackyard.yard.revision import adoptedfiles
from stackyard.yard.revision.contents import Tree
from stackyard.yard.revision.record import BuildRecord
from stackyard.yard.write.atomic import write_text


def note(job: Job, prefix: AdoptedPrefix) -> DiskUse:
    """Write the list of its files beside the record.

    Returns:
        Their disk use. None of it belongs to the yard: a removal frees nothing.

    Raises:
        StackyardError: the prefix has changed since it was examined.
    """
    tree, text = require_same(prefix)
    write_text(job.paths.adopted, text)
    use = disk.measure(tree.values())
    return DiskUse(FOR_ADOPTED, 0, use.bytes_new + use.bytes_shared, 0, use.inodes_new + use.inodes_shared)


def require_same(prefix: AdoptedPrefix) -> tuple[Tree, str]:
    """The present files of a prefix, and the list of them, which is the one of its examination.

    Raises:
        StackyardError: the prefix has changed since.
    """
    root = Path(prefix.prefix)
    tree = look(root)
    text = adoptedfiles.noted(root, tree).to_text()
    if hashlib.sha256(text.encode()).hexdigest() != prefix.files_sha256:
        raise StackyardError(
            f"cannot adopt {root}: its files are changing", hint="adopt it when nothing installs into it any more"
        )
    return tree, text


def note_original(job: Job, prefix: AdoptedPrefix) -> None:
    """Note the path of a prefix that is packed, as it was given and without links: the launcher shows its image there.

    Its files name each other by that path.
    """
    write_text(job.paths.original, f"{prefix.prefix}\n{os.path.realpath(prefix.prefix)}\n")


def as_image(job: Job, record: BuildRecord) -> BuildRecord:
    """The record of a prefix that is packed: the revision's own path is in its module, with the stubs.

    Where that path cannot take the place of the other, as in a flag (``-L/sw/...``), the other is right too.
    """
    given = record.prefix
    return moved(replace(record, prefix=str(job.prefix)), (given, os.path.realpath(given)))


def moved(record: BuildRecord, old: Sequence[str]) -> BuildRecord:
    """The record with its prefix in place of former paths of it, in its activation and that of its interpreter."""
    names = "|".join(re.escape(path) for path in sorted(old, key=len, reverse=True))
    pattern = re.compile(rf"(?<![\w./-])(?:{names})(?![\w.-])")

    def now(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: now(item) for key, item in value.items()}
        if isinstance(value, list | tuple):
            return [now(item) for item in value]
        return pattern.sub(record.prefix, value) if isinstance(value, str) else value

    change = EnvironmentChange.from_json(now(record.activation.change.to_json()))
    return replace(
        record, activation=replace(record.activation, change=change), interpreter=now(dict(record.interpreter))
    )


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
