"""``verify --repair`` and ``fsck --repair``: restore damaged files, and say what was done."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from stackyard.core.errors import StackyardError
from stackyard.core.findings import some
from stackyard.core.progress import Progress
from stackyard.yard.api import Entry, RevisionPaths, Yard, read_record

if TYPE_CHECKING:
    from stackyard.inputs.api import Site

_SHOWN = 5


def repair(
    yard: Yard, site: Site, entries: Sequence[Entry], progress: Progress, rest: Callable[[], Iterable[str]] = tuple
) -> None:
    """Restore the damaged files of this yard's own revisions; a notice says which.

    What cannot be repaired is said too, and found again by the verification that follows. Records come first, and the
    operations that modulefiles are made of, since all that follows reads them.

    Args:
        rest: repairs what belongs to no revision; what it did, a sentence each.

    Raises:
        StackyardError: the yard is not writable for you.
    """
    from stackyard.deploy.api import building

    own = [entry for entry in entries if Path(entry.folder).is_relative_to(yard.root)]
    for entry in (each for each in entries if each not in own):
        place = RevisionPaths.of(entry.folder).yard
        command = f"stackyard --yard {place} verify --repair {entry.module}"
        progress.notice(f"{entry.module} is in {place}: repair it there with `{command}`")
    with building(yard, site, (entry.stack for entry in own), progress.notice):
        sound = list(_each(own, progress, _record))
        list(_each(sound, progress, lambda entry: _operations(entry, yard, site)))
        for line in rest():
            progress.notice(line)
        list(_each(sound, progress, lambda entry: _files(entry, yard, site, progress)))


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
    from stackyard.upkeep.api import require_in_place, restore_record

    require_in_place(RevisionPaths.of(entry.folder))
    return restore_record(RevisionPaths.of(entry.folder))


def _operations(entry: Entry, yard: Yard, site: Site) -> Iterable[str]:
    from stackyard.upkeep.api import restore_operations

    return restore_operations(read_record(RevisionPaths.of(entry.folder).record), yard, site)


def _files(entry: Entry, yard: Yard, site: Site, progress: Progress) -> Iterable[str]:
    from stackyard.upkeep.api import file_of_revision, files_read, repair_revision, restore_rest

    record = read_record(RevisionPaths.of(entry.folder).record)
    outcome = repair_revision(record, yard, site, progress, files_read(yard))
    if outcome.lost:
        progress.notice(
            f"{entry.module}: cannot make again as it was: {some(outcome.lost, _SHOWN)}; "
            f"`stackyard deploy {file_of_revision(entry, yard)}` builds the next revision"
        )
    return (*outcome.restored, *restore_rest(record, site))
