"""Detects a yard that is not at the path where it was built, which its revisions' files contain. Standard library only.

The entries of a generation have the directories of their revisions, so they tell where the yard was. A path that leads
to the same directory (a symbolic link, a second mount of one file system) is the same place, at which those files work.
"""

from __future__ import annotations

import json
import os
import re
import shlex
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from stackyard.core.errors import StackyardError
from stackyard.core.late import dataclass
from stackyard.yard import disk, formats, members
from stackyard.yard.generation import manifestfile
from stackyard.yard.layout import Yard, is_yard
from stackyard.yard.others import same
from stackyard.yard.write import atomic

if TYPE_CHECKING:
    from stackyard.yard.revision.manifest import Entry
    from stackyard.yard.revision.record import BuildRecord

_DIRECTORY = rb'"folder":\s*("(?:[^"\\]|\\.)*")'


@dataclass(frozen=True)
class Note:
    """A note of an unpublished move, in the new yard.

    Attributes:
        source: the yard at its present place; for a rebuild in place, the same place.
        built_in: the path that its files contain.
        is_aside: whether the former parts at the place are put aside.
    """

    source: str
    built_in: str
    is_aside: bool = False

    @classmethod
    def read(cls, yard: Yard) -> Note | None:
        """The note in a yard; None: no move to it is in progress.

        Raises:
            StackyardError: it is damaged, or of a newer version.
        """
        return formats.load(yard.move_note, NOTE) if disk.is_there(yard.move_note) else None

    def write(self, yard: Yard) -> None:
        """Write the note into a yard."""
        atomic.write_json(yard.move_note, {"format": NOTE.version, **vars(self)}, checked=True, top=yard.root)

    def command(self, root: Path) -> str:
        """The command that continues the move."""
        where = "--here" if Path(self.source) == root else shlex.quote(str(root))
        return f"stackyard --yard {shlex.quote(self.source)} move {where}"


NOTE = formats.Kind(
    1, lambda value: members.make(Note, value), hint=lambda path: f"remove {path}, and move again", checked_since=1
)


@dataclass(frozen=True)
class MovedYard:
    """The finding that a yard is not where it was built.

    Attributes:
        built_in: its root when its revisions were built.
        is_copy: whether the original still exists.
        begun: the unfinished move to this place, if any.
    """

    root: Path
    built_in: Path
    is_copy: bool = False
    begun: Note | None = None

    @property
    def sentence(self) -> str:
        """What is wrong, and why the yard cannot be used."""
        if self.begun:
            return f"{self.root} is not complete: the move of {self.begun.source} to it was not finished"
        names = "the files of its revisions name that path"
        if self.is_copy:
            return f"{self.root} is a copy of the yard {self.built_in}: {names}"
        return f"{self.root} was moved from {self.built_in}, which does not lead to it any more: {names}"

    @property
    def remedy(self) -> str:
        """The command to run, for accounts with write access; else whom to ask."""
        if self.begun:
            return f"continue it: {self.begun.command(self.root)}"
        line = f"stackyard --yard {shlex.quote(str(self.root))} move --here"
        if not os.access(self.root, os.W_OK):
            return f"ask its owner to build them again where it is: {line}"
        other = f"use the original with --yard {shlex.quote(str(self.built_in))}" if self.is_copy else self._link
        return f"build them again where it is: {line}; or {other}"

    @property
    def _link(self) -> str:
        return f"keep the former path: ln -s {shlex.quote(str(self.root))} {shlex.quote(str(self.built_in))}"

    def error(self) -> StackyardError:
        """The error for verbs that would use or change it."""
        return StackyardError(self.sentence, hint=self.remedy)


def look(yard: Yard, *, writing: bool = False) -> MovedYard | None:
    """The finding for a moved or copied yard; None: it is at its place, or not yet published.

    Args:
        writing: whether it may be written to, which distinguishes a snapshot from the yard itself (`yard.others.same`).
    """
    with suppress(OSError):
        if begun := Note.read(yard):
            return MovedYard(yard.root, Path(begun.built_in), begun=begun)
    built_in = _named(yard)
    if writing:
        _tell_apart(yard, built_in)
    return _compared(yard, built_in) if built_in else None


def tell_apart(yard: Yard) -> None:
    """Determine, by writing to it, whether a yard is only a snapshot of the one that its files name."""
    _tell_apart(yard, _named(yard) or _named(yard.former()))


def _tell_apart(yard: Yard, built_in: Path | None) -> None:
    if built_in not in (None, yard.root):
        same.tell_apart(yard.root, built_in)


def _named(yard: Yard) -> Path | None:
    """The yard root in the current generation; None: it cannot be read."""
    with suppress(OSError, ValueError, IndexError):
        number = int(yard.modules.readlink().parent.name)
        match = re.search(_DIRECTORY, manifestfile.text(yard.generation(number).manifest))
        return _yard_of(json.loads(match[1])) if match else None
    return None


def as_it_lies(yard: Yard, entries: tuple[Entry, ...]) -> tuple[Entry, ...]:
    """The entries of a generation with the present directories of their revisions."""
    here = f"{yard.stacks}/"
    if all(entry.folder.startswith(here) for entry in entries):
        return entries
    built_in = _yard_of(entries[0].folder)
    if built_in is None or _compared(yard, built_in) is None:
        return entries
    return at(yard, entries)


def at(yard: Yard, entries: Iterable[Entry]) -> tuple[Entry, ...]:
    """The entries with their revisions' directories in this yard."""
    return tuple(replace(e, folder=str(yard.revision(e.stack, Path(e.folder).name).root)) for e in entries)


def located(record: BuildRecord, entry: Entry) -> BuildRecord:
    """The record of an entry with its present directory, and that of its base if it is in the same yard.

    The path of its prefix is unchanged: the one that its files contain.
    """
    if record.path == entry.folder:
        return record
    before, now, base = _yard_of(record.path), _yard_of(entry.folder), record.base
    if base is not None and now is not None and Path(base.yard) == before:
        base = replace(base, yard=str(now))
    return replace(record, path=entry.folder, base=base)


def is_elsewhere(yard: Yard, directory: str) -> bool:
    """Whether a revision was built at a path that does not lead to this yard."""
    built_in = _yard_of(directory)
    return built_in is not None and _compared(yard, built_in) is not None


def _yard_of(directory: str) -> Path | None:
    """The yard of a revision's directory; None where it is not in one."""
    parents = Path(directory).parents
    return parents[2] if len(parents) > 2 and parents[1].name == Yard(parents[2]).stacks.name else None


def _compared(yard: Yard, built_in: Path) -> MovedYard | None:
    """The finding for a yard that was built at a path; None: the path leads here, or that is unknown."""
    if built_in == yard.root:
        return None
    try:
        disk.look_into(built_in)
    except (*disk.ABSENT, StackyardError):  # it is gone, or its file system hangs, which this one does not
        return MovedYard(yard.root, built_in)
    except OSError:
        pass  # a directory that can only be entered
    try:
        return None if same.is_same(built_in, yard.root) else MovedYard(yard.root, built_in, is_copy=is_yard(built_in))
    except disk.ABSENT:
        return MovedYard(yard.root, built_in)
    except OSError:
        return None
