"""Notes on the contents of cache entries at their creation, so that builds link only unchanged entries.

    cache/notes/<kind>/<path of the entry in its cache>.json

An entry without a note was made by an earlier version, or its writer was killed: it is compared with its own listing
(conda's paths.json, a wheel's RECORD) once, and noted then.
"""

from __future__ import annotations

from pathlib import Path

from stackyard.core.errors import StackyardError
from stackyard.core.late import dataclass
from stackyard.yard import checksum, formats
from stackyard.yard.cache.caches import Kind, trusted
from stackyard.yard.layout import Yard
from stackyard.yard.revision import contents
from stackyard.yard.revision.contents import Contents, Tree
from stackyard.yard.write import atomic

KIND = formats.Kind(
    contents.FORMAT, contents.KIND.make, hint=lambda path: f"remove it: {path}", checked_since=contents.FORMAT
)


@dataclass(frozen=True)
class CheckedEntry:
    """A checked entry: its recorded contents, its present files, and its problems, a sentence each."""

    contents: Contents
    tree: Tree
    problems: tuple[str, ...] = ()


def place(yard: Yard, kind: Kind, entry: Path) -> Path:
    """The path of the note on a cache entry."""
    return yard.note(kind.name, entry.relative_to(kind.directory(yard)).as_posix())


def write(yard: Yard, kind: Kind, entry: Path) -> CheckedEntry:
    """Note the contents of a complete entry, and make its files read-only."""
    tree = contents.scan(entry)
    contents.seal(entry, tree, directories=False, leave=kind.is_rewritten)
    listing = contents.note(entry, tree)
    atomic.write_text(place(yard, kind, entry), checksum.add(listing.to_text()), top=trusted(yard))
    return CheckedEntry(listing, tree)


def read(yard: Yard, kind: Kind, entry: Path) -> Contents | None:
    """The note on an entry; None if it is missing or damaged."""
    try:
        return formats.load(place(yard, kind, entry), KIND)
    except StackyardError:
        return None


def check(yard: Yard, kind: Kind, entry: Path, *, deep: bool = False) -> CheckedEntry | None:
    """Compare an entry with its note: sizes and times, and the bytes of the files whose time changed.

    Args:
        deep: read every byte.

    Returns:
        None if the note is missing or damaged.
    """
    noted = read(yard, kind, entry)
    if noted is None:
        return None
    tree = contents.scan(entry)
    every = noted.hashed if deep else ()
    damages = contents.compare(noted, entry, tree, every)
    problems = tuple(f"{entry}/{damage}" for damage in damages if damage.what != "permissions")
    return CheckedEntry(noted, tree, problems)
