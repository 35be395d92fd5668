"""`extend --full`: makes a complete revision from the base's file plus more packages; the base's packages may change.

It starts from the copy of the stack's file in the base's revision. The solve prefers the versions of the base, so
unchanged packages are linked from the cache.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from stackyard.core.errors import StackyardError
from stackyard.inputs.load import kind_of
from stackyard.lock.lockfile.model import Lock
from stackyard.lock.lockfile.text import dump, read
from stackyard.upkeep.extensions.file import LOCK, STACK, ExtensionRequest, Files, with_more
from stackyard.yard import catalogue, disk
from stackyard.yard.layout import Yard
from stackyard.yard.revision import signatures
from stackyard.yard.revision.directories import RevisionPaths
from stackyard.yard.revision.manifest import Entry
from stackyard.yard.revision.record import BuildRecord


def full_files(name: str, base: str, request: ExtensionRequest, yard: Yard) -> Files:
    """The files of a full revision that contains everything of a base.

    Raises:
        StackyardError: the base is an extension, or its revision lacks a copy of its file.
    """
    entry = catalogue.resolve(yard, base)
    record = catalogue.record_of(yard, base)
    signatures.require(record, "extend", yard)
    if record.base is not None:
        hint = f"extend {record.base.id}, and name all packages"
        raise StackyardError(f"{base} is an extension itself: a full revision is made of a complete one", hint=hint)
    texts = {STACK: "".join(_lines(name, entry, record)), LOCK: _lock(name, record)}
    return with_more(Files(texts), request)


def _lines(name: str, entry: Entry, record: BuildRecord) -> Iterator[str]:
    recipe = RevisionPaths.of(entry.folder).recipe / Path(entry.file).name
    if not disk.is_there(recipe):
        hint = "write a stack.yaml of your own with these packages: `stackyard export` prints one"
        raise StackyardError(f"{entry.module} has no copy of its file: {recipe} not found", hint=hint)
    source = {key: record.interpreter[key] for key in ("source", "version") if key in record.interpreter}
    yield f"# Everything that {entry.module} has and more, written by `stackyard extend --full`.\n"
    yield f"name: {json.dumps(name)}\nversion: {json.dumps(entry.version)}\n"
    yield f"interpreter: {json.dumps(source)}\n"
    if record.axes:
        axes = {axis: [value] for axis, value in record.axes.items()}
        yield f"matrix: {json.dumps(axes)}\nvariant: {json.dumps(entry.variant or 'none')}\n"
    if kind_of(recipe) == "stack":
        yield f"imports:\n  - {json.dumps({'file': str(recipe), 'version': entry.version})}\n"
        yield "environment:\n"
    else:
        yield f"environment:\n  - {json.dumps(str(recipe))}\n"


def _lock(name: str, record: BuildRecord) -> str:
    """The base's lock as the previous lock of the new revision, so that the solve changes as little as possible."""
    own = read(RevisionPaths.of(record.path).lock).variants
    return dump(Lock(name, tuple(replace(variant, stack=name) for variant in own)))
