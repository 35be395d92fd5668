"""A full re-hash of a yard's caches, which checks that every entry still has the bytes that were written."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from stackyard.yard.cache import notes
from stackyard.yard.cache.caches import KINDS, Kind, parts, unchecked
from stackyard.yard.layout import Yard


def audit(yard: Yard) -> list[str]:
    """The problems of this yard's caches, one sentence each; empty if there are none. Reads every byte."""
    return [
        problem
        for part in parts(yard)
        for kind in KINDS
        for entry in kind.complete(part)
        for problem in _problems(part, kind, entry)
    ]


def _problems(yard: Yard, kind: Kind, entry: Path) -> Iterable[str]:
    """The damage of an entry: by its note, or by its own listing if it has no note.

    A dangling link to an entry that its owner has removed is not damage.
    """
    if entry.is_symlink() and not entry.exists():
        return ()
    try:
        checked = notes.check(yard, kind, entry, deep=True) if kind.linked else None
    except OSError as error:
        return [unchecked(entry, error)]
    return checked.problems if checked else kind.audited(entry)


def discard_damaged(yard: Yard) -> list[str]:
    """Remove every damaged entry and say why; builds fetch or compile it again."""
    entries = []
    for part in parts(yard):
        for kind, entry in [(cache_kind, entry) for cache_kind in KINDS for entry in cache_kind.complete(part)]:
            problems = list(_problems(part, kind, entry))
            if problems:
                try:
                    kind.discard(entry, part)
                except PermissionError:  # another account's part, which its next build looks after
                    continue
                entries.append(problems[0])
    return entries


def unfinished(yard: Yard) -> list[Path]:
    """Leftovers of killed builds in this yard's caches: safe to remove while no build is running."""
    return sorted(path for kind in KINDS for path in kind.leftovers(yard))
