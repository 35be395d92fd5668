"""``verify --repair`` and ``fsck --repair``: restore damaged files, and say what was done."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from stackyard.core.errors import StackyardError
from stackyard.core.findings import some
from stackyard.core.progress import Progress
from stackyard.deploy.writing import building
from stackyard.inputs.workspace import Workspace
from stackyard.upkeep.health.repair import file_of, files_read, repair, require_in_place
from stackyard.upkeep.health.restore_record import restore_operations, restore_record, restore_rest
from stackyard.yard.revision.directories import RevisionPaths
from stackyard.yard.revision.manifest import Entry
from stackyard.yard.revision.record import read_record

_SHOWN = 5


def restore_revisions(
    workspace: Workspace, entries: Sequence[Entry], progress: Progress, rest: Callable[[], Iterable[str]] = tuple
) -> None:
    """Restore the damaged files of this yard's own revisions; a notice says which.

    What cannot be repaired is reported too, and found again by the verification that follows. Records come first, and
    the operations that modulefiles are made of, since all that follows reads them.

    Args:
        rest: repairs what belongs to no revision; what it did, a sentence each.

    Raises:
        StackyardError: the yard is not writable for you.
    """
    own = [entry for entry in entries if Path(entry.folder).is_relative_to(workspace.yard.root)]
    for entry in (each for each in entries if each not in own):
        place = RevisionPaths.of(entry.folder).yard
        command = f"stackyard --yard {place} verify --repair {entry.module}"
        progress.notice(f"{entry.module} is in {place}: repair it there with `{command}`")
    with building(workspace, (entry.stack for entry in own), progress.notice):
        sound = list(_each(own, progress, _record))
        list(_each(sound, progress, lambda entry: _operations(entry, workspace)))
        for line in rest():
            progress.notice(line)
        list(_each(sound, progress, lambda entry: _files(entry, workspace, progress)))


def _each(entries: Iterable[Entry], progress: Progress, step: Callable[[Entry], Iterable[str]]) -> Iterable[Entry]:
    """Take a step for each entry, say what it restored or why it failed; those for which it did not fail."""
    for entry in entries:
        try:
            restored = list(step(entry))
        except StackyardError as error:
            progress.notice(f"{error.message}; {error.hint}" if error.hint else error.message)
            continue
        if restored:
            progress.notice(f"{entry.module}: restored {some(restored, _SHOWN)}")
        yield entry


def _record(entry: Entry) -> Iterable[str]:
    require_in_place(RevisionPaths.of(entry.folder))
    return restore_record(RevisionPaths.of(entry.folder))


def _operations(entry: Entry, workspace: Workspace) -> Iterable[str]:
    return restore_operations(read_record(RevisionPaths.of(entry.folder).record), workspace)


def _files(entry: Entry, workspace: Workspace, progress: Progress) -> Iterable[str]:
    record = read_record(RevisionPaths.of(entry.folder).record)
    outcome = repair(record, workspace, progress, files_read(workspace.yard))
    if outcome.lost:
        progress.notice(
            f"{entry.module}: cannot make again as it was: {some(outcome.lost, _SHOWN)}; "
            f"`stackyard deploy {file_of(entry, workspace.yard)}` builds the next revision"
        )
    return (*outcome.restored, *restore_rest(record, workspace.site))
