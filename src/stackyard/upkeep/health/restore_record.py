"""Restores what is beside the prefix of a published revision: its record, the operations of its module, its condarc.

Each is restored from what proves what it was: the record from its copy, the operations by the hash of the modulefile
that was published of them. The condarc and the commands are those that the site and the record give now.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

from stackyard.core.errors import StackyardError
from stackyard.expose.generation import modulefiles
from stackyard.expose.published import is_frozen, present_change, write_beside, write_change
from stackyard.host.files import at
from stackyard.inputs.models import Site
from stackyard.inputs.workspace import Workspace
from stackyard.verify.checks.content import own_files
from stackyard.verify.checks.revisionfiles import added
from stackyard.yard import disk
from stackyard.yard.generation import generations
from stackyard.yard.revision.directories import RevisionPaths
from stackyard.yard.revision.record import BuildRecord, read_record
from stackyard.yard.write import atomic


def restore_record(paths: RevisionPaths) -> list[str]:
    """Restore the record of a published revision from its copy, or the copy; the names of what was restored.

    Raises:
        StackyardError: neither can be read.
    """
    copies = [paths.record, *([paths.spare] if disk.is_there(paths.spare) else [])]
    whole = [path for path in copies if _can_be_read(path)]
    if not whole:
        read_record(paths.record)
    damaged = [path for path in copies if path not in whole]
    for path in damaged:
        atomic.write_bytes(path, at.read_regular(whole[0]), top=paths.yard)
    return [path.name for path in damaged]


def _can_be_read(path: Path) -> bool:
    try:
        read_record(path)
    except StackyardError:
        return False
    return True


def restore_operations(record: BuildRecord, workspace: Workspace) -> list[str]:
    """Restore the frozen operations of a published revision, if they are those of the modulefile that users see.

    Raises:
        StackyardError: the record and the present site give other operations.
    """
    path, manifest = RevisionPaths.of(record.path).module, generations.current(workspace.yard)
    entry = next((e for e in manifest.entries if e.module == record.module), None) if manifest else None
    if manifest is None or entry is None or is_frozen(record):
        return []
    change = present_change(record, workspace.site)
    texts = modulefiles(record, entry, change, workspace.site)
    if not any(hashlib.sha256(text.encode()).hexdigest() == manifest.files.get(name) for name, text in texts.items()):
        raise StackyardError(
            f"cannot restore {path}: the present site does not give the modulefile that was published",
            hint="restore it from a backup, or remove it: a deploy writes it from the record and the present site",
        )
    write_change(record, change)
    return [path.name]


def restore_rest(record: BuildRecord, site: Site) -> list[str]:
    """Write the condarc and the commands again where one of them is damaged, and remove others; what was restored."""
    if not own_files(record):
        return []
    for path in added(record):
        disk.remove_tree(path, RevisionPaths.of(record.path).yard)
    write_beside(record, site)
    return ["condarc and commands"]
