"""``verify --repair`` and ``fsck --repair``: restore damaged files of revisions, and the files beside their prefixes.

Each is restored from a verified source: the record from its copy, the operations if they match the hash of the
published modulefile. The condarc and the commands are made from the present site and record.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from stackyard.core.errors import StackyardError
from stackyard.core.findings import some
from stackyard.core.progress import Progress
from stackyard.deploy.writing import building
from stackyard.expose.generation import modulefiles
from stackyard.expose.published import is_frozen, present_change, write_beside, write_change
from stackyard.host.files import at
from stackyard.inputs.models import Site
from stackyard.inputs.workspace import Workspace
from stackyard.upkeep.health.repair import file_of, files_read, repair, require_in_place
from stackyard.verify.checks.content import own_files
from stackyard.verify.checks.revisionfiles import added
from stackyard.yard import disk
from stackyard.yard.generation import generations
from stackyard.yard.revision.directories import RevisionPaths
from stackyard.yard.revision.manifest import Entry
from stackyard.yard.revision.record import BuildRecord, read_record
from stackyard.yard.write import atomic


def restore_record(paths: RevisionPaths) -> list[str]:
    """Restore a published revision's record from its copy, or the copy from the record; returns the restored names.

    Raises:
        StackyardError: neither of them can be read.
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
    """Restore the frozen operations of a published revision, if they match its present modulefile.

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
    """Write damaged condarc and command files again, and remove unknown ones; returns the names."""
    if not own_files(record):
        return []
    for path in added(record):
        disk.remove_tree(path, RevisionPaths.of(record.path).yard)
    write_beside(record, site)
    return ["condarc and commands"]


_SHOWN = 5


def restore_revisions(
    workspace: Workspace, entries: Sequence[Entry], progress: Progress, rest: Callable[[], Iterable[str]] = tuple
) -> None:
    """Restore the damaged files of this yard's own revisions; notices name them.

    Failed repairs are reported too, and found again by the verification that follows. Records and operations come
    first, since all later steps read them.

    Args:
        rest: repairs the files outside of revisions; yields a sentence for each repair.

    Raises:
        StackyardError: the yard is not writable for you.
    """
    own = [entry for entry in entries if Path(entry.folder).is_relative_to(workspace.yard.root)]
    for entry in (other for other in entries if other not in own):
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
    """Run a step for each entry, report what it restored or why it failed, and return the entries that succeeded."""
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
