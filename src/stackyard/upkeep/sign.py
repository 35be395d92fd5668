"""Signs a published revision, after its files were compared with its record."""

from __future__ import annotations

import os
from pathlib import Path

from stackyard.core.errors import StackyardError
from stackyard.core.findings import counted
from stackyard.core.progress import SilentProgress
from stackyard.deploy.signing import sign
from stackyard.inputs.workspace import Workspace
from stackyard.upkeep.health.fsck.check import check
from stackyard.yard.revision.directories import RevisionPaths
from stackyard.yard.revision.manifest import Entry
from stackyard.yard.revision.record import BuildRecord, read_record

_SHOWN = 10


def sign_again(entry: Entry, workspace: Workspace, key: Path) -> None:
    """Sign an existing revision. Raises StackyardError: it is damaged, or cannot be signed."""
    record = read_record(RevisionPaths.of(entry.folder).record)
    _require_whole(entry, record, workspace)
    sign(record, workspace.yard, key)


def _require_whole(entry: Entry, record: BuildRecord, workspace: Workspace) -> None:
    """Require that the files of a revision match its record, before it is signed.

    Raises:
        StackyardError: they differ; images are read completely, other files as a sample.
    """
    report = check(workspace, [entry], SilentProgress(), deep=record.payload.image is not None, whole=False)
    others = RevisionPaths.of(entry.folder).signatures  # what is wrong with these, another one does not change
    faults = [fault for fault in report.faults if not fault.path.is_relative_to(others)]
    if faults:
        more = [f"and {counted(len(faults) - _SHOWN, 'more fault')}"] if len(faults) > _SHOWN else []
        shown = [f"{os.path.relpath(fault.path, entry.folder)}: {fault.text}" for fault in faults[:_SHOWN]]
        raise StackyardError(f"cannot sign {entry.module}: it does not hold what was built",
                             detail="\n".join([*shown, *more]), hint=f"`stackyard fsck {entry.module}`")  # fmt: skip
