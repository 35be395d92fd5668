"""``stackyard verify --repair``: restores damaged files, and says what was done."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from stackyard.cli.context import Context
from stackyard.errors import StackyardError
from stackyard.progress import Progress
from stackyard.yard.layout import RevisionPaths, Yard
from stackyard.yard.origin import origin
from stackyard.yard.record import Entry, read_record

if TYPE_CHECKING:
    from stackyard.spec.sitemodels import Site

_SHOWN = 5


def repair(
    context: Context, yard: Yard, site: Site, entries: Sequence[Entry], progress: Progress, *, whole: bool
) -> None:
    """Restore the damaged files of this yard's own revisions; a notice says which.

    What cannot be repaired is said too, and found again by the verification that follows.

    Args:
        whole: also the modulefiles and the caches of the yard.

    Raises:
        StackyardError: the yard is not writable for you.
    """
    from stackyard.publish.repair import repair_yard
    from stackyard.publish.writing import building, writing

    own = [entry for entry in entries if Path(entry.folder).is_relative_to(yard.root)]
    if whole:
        with writing(yard, site):
            for line in repair_yard(yard, site, origin(context.command)):
                progress.notice(line)
    with building(yard, site, (entry.stack for entry in own), progress.notice):
        for entry in own:
            try:
                _one(entry, yard, site, progress)
            except StackyardError as error:
                progress.notice(f"{error.message}; {error.hint}" if error.hint else error.message)


def _one(entry: Entry, yard: Yard, site: Site, progress: Progress) -> None:
    from stackyard.publish import repair as publish_repair

    record = read_record(RevisionPaths.of(entry.folder).record)
    given = sorted(Path(entry.file).parent.glob("*")) if entry.file else []
    outcome = publish_repair.repair(record, yard, site, progress, given)
    if outcome.restored:
        progress.notice(f"{entry.module}: restored {_listed(outcome.restored)}")
    if outcome.lost:
        file = entry.file or "FILE"
        progress.notice(
            f"{entry.module}: cannot make again as it was: {_listed(outcome.lost)}; "
            f"`stackyard deploy {file}` builds the next revision"
        )


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return ", ".join(names[:_SHOWN]) + more
