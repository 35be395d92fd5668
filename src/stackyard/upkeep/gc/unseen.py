"""Rules for users' yards that cannot be read: each may extend every revision, so no revision is removed.

The exception: the last collection with access to all yards noted what they extended then (`yard.others.basesinuse`),
and their own notes list what they have extended since (`yard.others.childnotes`); notes of earlier versions do not. The
notes of a readable yard count only while it may be under construction, or if no yard is found at its path: it may not
be mounted.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from stackyard.core.errors import cause
from stackyard.core.findings import counted, some
from stackyard.core.quoting import LONG, plain
from stackyard.host.run import clock
from stackyard.yard.layout import Yard, place_of
from stackyard.yard.others import basesinuse, childnotes
from stackyard.yard.others.basesinuse import BasesInUse
from stackyard.yard.others.childnotes import Note
from stackyard.yard.others.children import BlindSpot

if TYPE_CHECKING:
    from stackyard.upkeep.gc.inuse import Evidence

_NAMED = 3
LET_ROOT_LOOK = "let root run `stackyard gc` once: it looks into closed yards"


def judge(found: Evidence, yard: Yard, most_days: float, *, tidy: bool) -> None:
    """Add the revisions that may be in use by yards which could not be read.

    Args:
        most_days: for how many days the last search with access to all yards is trusted.
        tidy: remove notes of yards that no longer extend anything.
    """
    blind = found.below.blind
    known = basesinuse.read(yard, most_days, found.unseen) if blind else None
    covered = [each for each in blind if known and not each.always]
    for_all = [each for each in blind if each not in covered]
    if known and covered:
        for_all += _since(found, known, covered)
        by = f"by {yard.bases_in_use.name} of {known.day}"
        for name, number in known.bases.items():
            found.users[place_of(name)].append(f"base of {counted(number, 'extension')}, {by}")
    found.everything += _reasons(for_all)
    _noted(found, yard, {Path(each.place) for each in blind}, most_days, tidy=tidy)


def keep(found: Evidence, yard: Yard) -> list[str]:
    """Note which revisions are extended, if this search is trusted and could read all yards.

    Returns:
        Messages about why the note could not be written.
    """
    if found.began is not None and not found.below.blind and basesinuse.is_writer(yard):
        try:
            basesinuse.write(yard, found.began, dict(sorted(found.bases.items())))
        except OSError as error:  # of the disk; what was collected is
            return [f"cannot write {yard.bases_in_use}: {cause(error)}"]
    return []


def _since(found: Evidence, known: BasesInUse, covered: Sequence[BlindSpot]) -> list[BlindSpot]:
    """Add the bases in notes newer than the last complete search; returns yards with older, inconclusive notes."""
    unknown = []
    places = {(each.uid, each.place): each for each in covered}
    for note in found.below.notes:
        each = places.get((note.uid, str(note.root)))
        if each is not None and note.changed >= known.when:
            if note.bases is None:
                unknown.append(replace(each, why=f"{each.why}, and its note does not say what it extends"))
            else:
                _by_note(found, note)
    return unknown


def _noted(found: Evidence, yard: Yard, blind: set[Path], most_days: float, *, tidy: bool) -> None:
    """Add the notes of yards that are readable or missing; remove outdated notes."""
    extending = {root for root, _ in found.extends}
    newest = {(note.uid, note.root): note for note in sorted(found.below.notes, key=lambda note: note.changed)}
    over = []
    for note in found.below.notes:
        if note.root not in blind:
            age_s = clock.age_s(note.changed)
            if age_s <= (most_days * clock.DAY_S if note.root in found.below.absent else childnotes.BUILDING_S):
                _by_note(found, note)
            elif note.root not in extending or note is not newest[note.uid, note.root]:
                over.append(note.name)
    if tidy and over:
        childnotes.forget(yard, over)


def _by_note(found: Evidence, note: Note) -> None:
    for name in note.bases or ():
        place = place_of(name)
        if (note.root, place) not in found.extends:
            found.users[place].append(f"base of an extension in {plain(str(note.root), LONG)}, by its note")
            found.bases[place] += 1


def _reasons(blind: Iterable[BlindSpot]) -> list[str]:
    """The reasons why everything may be in use, one sentence for each cause."""
    accounts: dict[str, set[str]] = defaultdict(set)
    sentences = []
    for each in blind:
        if each.uid is None:
            sentences.append(f"possibly what {plain(each.place, LONG)} says, which cannot be looked into: {each.why}")
        else:
            accounts[each.why].add(each.account)
    for why, names in accounts.items():
        yards = f"the yard{'s' * (len(names) > 1)} of {some(sorted(names), _NAMED)}"
        sentences.append(f"possibly {yards}, which cannot be looked into: {why}")
    more = len(sentences) - _NAMED
    return [*sentences[:_NAMED], *([f"and {more} more such reasons"] if more > 0 else [])]
