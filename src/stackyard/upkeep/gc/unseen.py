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


def judge(evidence: Evidence, yard: Yard, most_days: float, *, tidy: bool) -> None:
    """Add the revisions that may be in use by yards which could not be read.

    Args:
        most_days: for how many days the last search with access to all yards is trusted.
        tidy: remove notes of yards that no longer extend anything.
    """
    blind = evidence.below.blind
    known = basesinuse.read(yard, most_days, evidence.unseen) if blind else None
    covered = [spot for spot in blind if known and not spot.always]
    for_all = [spot for spot in blind if spot not in covered]
    if known and covered:
        for_all += _since(evidence, known, covered)
        by = f"by {yard.bases_in_use.name} of {known.day}"
        for name, number in known.bases.items():
            evidence.users[place_of(name)].append(f"base of {counted(number, 'extension')}, {by}")
    evidence.everything += _reasons(for_all)
    _noted(evidence, yard, {Path(spot.place) for spot in blind}, most_days, tidy=tidy)


def keep(evidence: Evidence, yard: Yard) -> list[str]:
    """Note which revisions are extended, if this search is trusted and could read all yards.

    Returns:
        Messages about why the note could not be written.
    """
    if evidence.began is not None and not evidence.below.blind and basesinuse.is_writer(yard):
        try:
            basesinuse.write(yard, evidence.began, dict(sorted(evidence.bases.items())))
        except OSError as error:  # of the disk; what was collected is
            return [f"cannot write {yard.bases_in_use}: {cause(error)}"]
    return []


def _since(evidence: Evidence, known: BasesInUse, covered: Sequence[BlindSpot]) -> list[BlindSpot]:
    """Add the bases in notes newer than the last complete search; returns yards with older, inconclusive notes."""
    unknown = []
    places = {(covered_spot.uid, covered_spot.place): covered_spot for covered_spot in covered}
    for note in evidence.below.notes:
        spot = places.get((note.uid, str(note.root)))
        if spot is not None and note.changed >= known.when:
            if note.bases is None:
                unknown.append(replace(spot, why=f"{spot.why}, and its note does not say what it extends"))
            else:
                _by_note(evidence, note)
    return unknown


def _noted(evidence: Evidence, yard: Yard, blind: set[Path], most_days: float, *, tidy: bool) -> None:
    """Add the notes of yards that are readable or missing; remove outdated notes."""
    extending = {root for root, _ in evidence.extends}
    newest = {(note.uid, note.root): note for note in sorted(evidence.below.notes, key=lambda note: note.changed)}
    over = []
    for note in evidence.below.notes:
        if note.root not in blind:
            age_s = clock.age_s(note.changed)
            if age_s <= (most_days * clock.DAY_S if note.root in evidence.below.absent else childnotes.BUILDING_S):
                _by_note(evidence, note)
            elif note.root not in extending or note is not newest[note.uid, note.root]:
                over.append(note.name)
    if tidy and over:
        childnotes.forget(yard, over)


def _by_note(evidence: Evidence, note: Note) -> None:
    for name in note.bases or ():
        place = place_of(name)
        if (note.root, place) not in evidence.extends:
            evidence.users[place].append(f"base of an extension in {plain(str(note.root), LONG)}, by its note")
            evidence.bases[place] += 1


def _reasons(blind: Iterable[BlindSpot]) -> list[str]:
    """The reasons why everything may be in use, one sentence for each cause."""
    accounts: dict[str, set[str]] = defaultdict(set)
    sentences = []
    for spot in blind:
        if spot.uid is None:
            sentences.append(f"possibly what {plain(spot.place, LONG)} says, which cannot be looked into: {spot.why}")
        else:
            accounts[spot.why].add(spot.account)
    for why, names in accounts.items():
        yards = f"the yard{'s' * (len(names) > 1)} of {some(sorted(names), _NAMED)}"
        sentences.append(f"possibly {yards}, which cannot be looked into: {why}")
    more = len(sentences) - _NAMED
    return [*sentences[:_NAMED], *([f"and {more} more such reasons"] if more > 0 else [])]
