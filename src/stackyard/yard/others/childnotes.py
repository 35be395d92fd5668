"""Notes by which yards tell a parent which of its revisions they extend.

    <parent>/children/<uid>.<random>.json   {"format": 2, "yard": "/home/anna/.local/share/stackyard",
                                             "bases": ["tool/1.0-py311-1"]}
    <parent>/children/<hash of a path>.json {"yard": ...} format 1: the revisions are unknown
    <child>/registered/<uid>-<hash>.json the names of its notes, since an account may not list the notes of a parent

Any account may write one (`yard.others.drops`). So a note of format 2 counts only if its owner is the account in its
name; all it can do is to keep a revision. It is written before an extension is built, and again after extensions are
removed. A new note exists before the old ones are removed.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import field, replace
from pathlib import Path
from typing import Any

from stackyard.core.errors import StackyardError
from stackyard.core.late import dataclass
from stackyard.host.account import reading
from stackyard.host.files import at
from stackyard.host.run import clock
from stackyard.yard import disk, formats, members
from stackyard.yard.layout import Yard
from stackyard.yard.others import drops
from stackyard.yard.write import atomic, within

MOST_NOTES = 1_000
"""Of an account; with more it counts as one whose yards cannot be looked into."""
_MOST_BYTES = 16_384
_MOST_S = 60.0
BUILDING_S = clock.DAY_S
"""No build of an extension takes longer; it is registered before it begins."""
_NAME = re.compile(r"(\d{1,10})\.[0-9a-f]{8,64}\.json")
_OLD = re.compile(r"[0-9a-f]{32}\.json")


@dataclass(frozen=True)
class Note:
    """One note: its account, the root of its yard, the extended revisions, and the time of writing.

    `bases` is None if they are unknown; `changed` is by the clock of the file's server.
    """

    name: str
    uid: int
    root: Path
    bases: tuple[str, ...] | None
    changed: float


@dataclass
class Notes:
    """All notes of a yard; a sentence for each other entry; and by account the reason for unreadable notes."""

    notes: list[Note] = field(default_factory=list)
    left: list[str] = field(default_factory=list)
    unread: dict[int, str] = field(default_factory=dict)


@dataclass(frozen=True)
class _Text:
    yard: str
    bases: tuple[str, ...] | None = None


@dataclass(frozen=True)
class _Memory:
    """An account's memory of its notes: their names, the last content, and extensions being built since."""

    parent: str
    yard: str = ""
    names: tuple[str, ...] = ()
    bases: tuple[str, ...] | None = None
    building: Mapping[str, float] = field(default_factory=dict)


KIND = formats.Kind(2, lambda value: _checked(members.make(_Text, value)), unnumbered=1)
MEMORY = formats.Kind(
    1, lambda value: members.make(_Memory, value), hint=lambda path: f"remove it: {path}", checked_since=1
)


def _checked(text: _Text) -> _Text:
    if not Path(text.yard).is_absolute() or not text.yard.isprintable():
        raise ValueError(f"yard: not an absolute path: {text.yard!r:.100}")
    return text


def notes(yard: Yard) -> Notes:
    """The notes in a yard.

    Raises:
        OSError: the directory cannot be listed.
    """
    with drops.opened(yard.children, MOST_NOTES) as drop:
        result = Notes(unread=dict.fromkeys(drop.crowded, f"more than {MOST_NOTES:,} notes in {drop.directory.name}/"))
        for name in sorted(drop.files):
            if not _is_of(name, drop.files[name].st_uid):
                drop.leave(name)
            elif (taken := drop.take(name, _MOST_BYTES, result.unread)) is not None:
                note = _note(name, *taken)
                if note is None:
                    drop.leave(name)
                else:
                    result.notes.append(note)
        result.left = drop.left
        return result


def _is_of(name: str, uid: int) -> bool:
    """Whether a name belongs to a note of an account."""
    owner = _NAME.fullmatch(name)
    return int(owner[1]) == uid if owner else bool(_OLD.fullmatch(name))


def _note(name: str, raw: bytes, status: os.stat_result) -> Note | None:
    """One note; None: it is not a note, incomplete, or was exchanged for another account's."""
    try:
        text = formats.parsed(raw, name, KIND)
    except StackyardError:
        return None
    bases = text.bases if _NAME.fullmatch(name) else None
    note = Note(name, status.st_uid, Path(text.yard), bases, status.st_ctime)
    return note if _is_of(name, status.st_uid) else None


def forget(yard: Yard, names: Iterable[str]) -> None:
    """Remove notes of yards that no longer extend this one, as far as this account may."""
    names = list(names)
    with suppress(OSError), at.directory(yard.root, yard.children) as directory:
        for name in names:
            with suppress(OSError):
                os.unlink(name, dir_fd=directory)


# --------------------------------------------------------------------------- writing one's own


def register(parent: Yard, child: Yard, base: str = "") -> bool:
    """Note in a parent which of its revisions this yard extends; False if that is not possible.

    Args:
        base: a revision that it is about to extend as well.
    """
    return _write(parent, child, _memory(parent, child, _bases(child), [base] if base else []))


def renew(child: Yard) -> None:
    """Update the notes of this account in every parent of a yard, after extensions were removed."""
    bases = _bases(child)
    if bases is None:
        return
    known = {os.path.realpath(memory.parent): memory for memory in _memories(child)}
    for root in sorted(bases.keys() | known.keys()):
        with suppress(OSError, StackyardError):
            parent = Yard(Path(known[root].parent if root in known else root))
            disk.look_into(parent.root)
            before, now = known.get(root), _memory(parent, child, bases)
            same = before and (before.yard, before.bases) == (now.yard, now.bases)
            if not same or not _is_there(parent, now.names):
                _write(parent, child, now, wanted=now.bases != ())


def _memory(parent: Yard, child: Yard, by_root: Mapping[str, set[str]] | None, new: Sequence[str] = ()) -> _Memory:
    """The memory of the notes in a parent, including those of other processes, and the content of the next note."""
    memories = (memory for memory in _memories(child) if memory.parent == str(parent.root))
    before = next(memories, _Memory(str(parent.root)))
    built = None if by_root is None else by_root.get(os.path.realpath(parent.root), set())
    now = clock.now().timestamp()
    building = {name: at for name, at in before.building.items() if now - at < BUILDING_S and name not in (built or ())}
    building |= dict.fromkeys(new, now)
    bases = None if built is None else tuple(sorted({*built, *building}))
    return replace(before, yard=str(child.root), bases=bases, building=building)


def _bases(child: Yard) -> dict[str, set[str]] | None:
    """The revisions that a yard extends, by the real path of their yard; None if some records cannot be read."""
    answer, own = reading.read_yard(child.root, solutions=False, within_s=_MOST_S), os.path.realpath(child.root)
    bases: dict[str, set[str]] = {}
    for item in answer.items:
        if item[0] == "base":
            bases.setdefault(os.path.realpath(item[1]), set()).add(item[2])
    bases.pop(own, None)
    return None if answer.problem else bases


def _write(parent: Yard, child: Yard, memory: _Memory, *, wanted: bool = True) -> bool:
    """Replace the former notes by a new one; with none `wanted`, only remove them."""
    names = [f"{os.geteuid()}.{os.urandom(16).hex()}.json"] if wanted else []
    try:
        _remember(child, replace(memory, names=(*memory.names, *names)))
        with at.directory(parent.root, parent.children, make=True) as directory:
            for name in names:
                _leave(directory, name, _json(child, memory.bases))
            atomic.fault_point("child-noted")
            _remove_own(directory, (*memory.names, parent.child(child.root).name))
    except OSError:
        return False
    _remember(child, replace(memory, names=tuple(names)))
    return True


def _json(child: Yard, bases: Sequence[str] | None) -> bytes:
    """The text of a note; if it would be too long, one that covers all revisions."""
    value: dict[str, Any] = {"format": KIND.version, "yard": str(child.root), "bases": bases}
    text = json.dumps(value).encode()
    return text if len(text) <= _MOST_BYTES else json.dumps({**value, "bases": None}).encode()


def _leave(directory: int, name: str, text: bytes) -> None:
    try:
        with at.open_new(directory, name) as stream:
            os.fchmod(stream.fileno(), 0o644)  # whatever the umask is: the owner of the parent reads it
            stream.write(text)
            stream.flush()
            os.fsync(stream.fileno())
    except BaseException:
        with suppress(OSError):
            os.unlink(name, dir_fd=directory)
        raise


def _remove_own(directory: int, names: Iterable[str]) -> None:
    for name in names:
        with suppress(OSError):
            if os.stat(name, dir_fd=directory, follow_symlinks=False).st_uid == os.geteuid():
                os.unlink(name, dir_fd=directory)


def _is_there(parent: Yard, names: Sequence[str]) -> bool:
    """Whether the last note exists: the owner of the parent may have removed it."""
    with suppress(OSError, IndexError), at.directory(parent.root, parent.children) as directory:
        os.stat(names[-1], dir_fd=directory, follow_symlinks=False)
        return True
    return False


def _remember(child: Yard, memory: _Memory) -> None:
    """Store the names of this account's notes, if possible: the parent's owner removes forgotten ones."""
    file = child.registration(os.geteuid(), Path(memory.parent))
    with suppress(OSError):
        if memory.names:
            atomic.write_json(file, {"format": MEMORY.version, **vars(memory)}, checked=True, top=child.root)
        else:
            within.unlink(child.root, file)


def _memories(child: Yard) -> Iterator[_Memory]:
    """This account's memory of its notes, for every parent."""
    for name in sorted(disk.names(child.registrations)):
        if name.startswith(f"{os.geteuid()}-"):
            with suppress(StackyardError):
                memory = formats.load(child.registrations / name, MEMORY)
                if all(_NAME.fullmatch(revision) for revision in memory.names):
                    yield memory
