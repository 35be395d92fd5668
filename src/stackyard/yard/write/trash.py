"""The trash: removed items, until their grace time is over. A removal is one rename, which another rename undoes.

    <yard>/trash/<id>/what.json written first: kind, former path, account, time
    <yard>/trash/<id>/content     the files, as they were
    <yard>/trash/<id>/doomed      the same, once their deletion has begun
    <yard>/trash/<id>/again it is deployed again: its verification determines its new state
    <yard>/trash/<id>/settled the removal is final: no process that started in the same second uses the files

An entry without content was killed before its rename, or after its restoration: the files are in their place
(`interrupted`). The trash is on the yard's file system, so that a rename always works.
"""

from __future__ import annotations

import errno
import os
import re
import stat
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, Literal, get_args

from stackyard.core.errors import StackyardError, cause
from stackyard.core.late import dataclass
from stackyard.host.account import supervised
from stackyard.host.files import at, space
from stackyard.host.run import clock
from stackyard.host.run.identity import account_name, whoami
from stackyard.yard import disk, formats, members
from stackyard.yard.layout import Yard, place_of
from stackyard.yard.revision.directories import RevisionPaths
from stackyard.yard.revision.manifest import State
from stackyard.yard.revision.record import now
from stackyard.yard.write import atomic

Sort = Literal["revision", "build", "cache", "leftover", "modules"]
PLACES: Mapping[Sort, str] = {
    "revision": "stacks",
    "build": "stacks",
    "cache": "cache",
    "leftover": "",
    "modules": "generations",
}
"""The directory of a yard that each sort of thing is in."""

_TIME, _NAME = "%Y%m%dT%H%M%S", re.compile(r"\d{8}T\d{6}-")

_MOST_BYTES = 1 << 20
WHAT, CONTENT, DOOMED, SETTLED, AGAIN = "what.json", "content", "doomed", "settled", "again"


@dataclass(frozen=True)
class TrashNote:
    """The description of a removed item.

    Attributes:
        path: its former path, relative to the yard.
        module: the full name of a revision, or empty.
        state, pinned: the state that the revision had, and whether it was set as the default.
        batch: the identifier shared by all items of one command.
        bytes, inodes: its unshared size when it was removed.
        reason: a short reason.
    """

    sort: Sort
    path: str
    when: str
    who: str
    batch: str
    module: str = ""
    state: State = "built"
    pinned: bool = False
    bytes: int = 0
    inodes: int = 0
    reason: str = ""


KIND = formats.Kind(
    1,
    lambda value: _checked(members.make(TrashNote, value)),
    hint=lambda path: f"look at {path.parent}",
    checked_since=1,
)


@dataclass(frozen=True)
class Item:
    """One item in the trash."""

    yard: Yard
    directory: Path
    what: TrashNote

    @property
    def content(self) -> Path:
        """Its files."""
        return self.directory / CONTENT

    @property
    def doomed(self) -> Path:
        """The path of its files while they are being deleted and hence incomplete."""
        return self.directory / DOOMED

    @property
    def origin(self) -> Path:
        """The former path of the files."""
        return self.yard.inner(self.what.path)

    @property
    def is_settled(self) -> bool:
        """Whether its removal is final."""
        return disk.is_there(self.directory / SETTLED)

    @property
    def is_deployed_again(self) -> bool:
        """Whether a deploy began to restore it, so that its former state no longer applies."""
        return disk.is_there(self.directory / AGAIN)

    def due(self, grace_days: float) -> datetime:
        """The time from which it may be deleted."""
        return datetime.fromisoformat(self.what.when) + timedelta(days=grace_days)

    def is_due(self, grace_days: float) -> bool:
        """Whether its grace time is over. A slow clock only keeps it longer."""
        return clock.now() >= self.due(grace_days)


def _checked(what: TrashNote) -> TrashNote:
    """Reject a path that leads out of the yard, or does not fit its sort."""
    place = PLACES[what.sort]
    try:
        parts = at.parts(what.path)
    except ValueError:
        parts = []
    if len(parts) < 2 or (place and parts[0] != place):
        raise ValueError(f"path: not in this yard: {what.path!r:.100}")
    datetime.fromisoformat(what.when)
    return what


assert set(PLACES) == set(get_args(Sort))


def items(yard: Yard) -> list[Item]:
    """The items in the trash, oldest first; without those that have no files or cannot be read."""
    candidates = (_item(yard, directory) for directory in _directories(yard))
    return [item for item in candidates if item and _has_files(item.directory)]


def interrupted(yard: Yard) -> list[Item]:
    """Items that a killed process had noted but not moved, or moved back: their files are in place."""
    candidates = (_item(yard, directory) for directory in _directories(yard))
    there = (item for item in candidates if item and not _has_files(item.directory))
    return [item for item in there if os.path.lexists(item.origin)]


def unreadable(yard: Yard) -> list[Path]:
    """Entries with files but an unreadable ``what.json``: the user must handle them."""
    return [directory for directory in _directories(yard) if _item(yard, directory) is None and _has_files(directory)]


def _directories(yard: Yard) -> list[Path]:
    try:
        return sorted(yard.thrown(name) for name in disk.names(yard.trash) if not name.startswith("."))
    except OSError as error:
        hint = "what was removed is there until its grace time is over; move away what is not that directory"
        raise StackyardError(f"cannot read the trash {yard.trash}: {cause(error)}", hint=hint) from error


def _item(yard: Yard, directory: Path) -> Item | None:
    try:
        with at.directory(yard.root, directory) as entry:
            raw, _ = at.read_bounded(entry, WHAT, _MOST_BYTES)
        return Item(yard, directory, formats.parsed(raw, str(directory / WHAT), KIND))
    except (OSError, StackyardError):
        return None


def removed(yard: Yard) -> dict[str, RevisionPaths]:
    """The present paths of removed revisions, by their former `place`. The last one counts."""
    there = (item for item in items(yard) if item.what.sort == "revision" and os.path.lexists(item.content))
    return {place_of(item.origin): RevisionPaths(item.content) for item in there}


def require_own(yard: Yard, path: Path) -> None:
    """Raise StackyardError unless a path is in this yard itself, and not behind a link that leads out of it."""
    with _shown("remove", path), at.parent(yard.root, path) as place:
        _require_no_link(path, place)


@contextmanager
def _shown(what: str, path: Path, hint: str = "") -> Iterator[None]:
    """Within a ``with`` block, turn file system errors into removal errors with operation and path."""
    try:
        yield
    except OSError as error:
        place = Path(error.filename or path)  # absolute where `at` could not enter a directory
        if error.errno in (errno.ELOOP, errno.ENOTDIR) and place.is_absolute() and place.is_symlink():
            raise _linked(what, path, place) from error
        raise StackyardError(f"cannot {what} {path}: {error.strerror}", hint=hint or None) from error


def _require_no_link(path: Path, place: at.Place) -> None:
    if stat.S_ISLNK(os.stat(place[1], dir_fd=place[0], follow_symlinks=False).st_mode):
        raise _linked("remove", path, path)


def _linked(what: str, path: Path, link: Path) -> StackyardError:
    return StackyardError(
        f"cannot {what} {path}: {link} is a symbolic link", hint=f"{what} by hand what is behind a link"
    )


def begin(yard: Yard, path: Path, what: TrashNote) -> Item:
    """Note that an item is about to be moved to the trash; `move` does it.

    Raises:
        StackyardError: the path is behind a link, or the note cannot be written.
    """
    require_own(yard, path)
    item = Item(yard, yard.thrown(f"{_stamp(yard, what)}-{os.urandom(6).hex()}"), what)
    try:
        with at.parent(yard.root, item.directory, make=True) as (trash, name):
            os.mkdir(name, dir_fd=trash)
        value = {"format": KIND.version, **asdict(what)}
        atomic.write_json(item.directory / WHAT, value, checked=True, top=yard.root)
    except OSError as error:
        forget(item)
        hint = "it was not removed; `stackyard gc --now` deletes all that was put aside before"
        raise disk.failure(error, f"removing {path}", hint) from error
    atomic.fault_point("trash-noted")
    return item


def _stamp(yard: Yard, what: TrashNote) -> str:
    """The beginning of a new item's name: its time, and in any case later than earlier commands' items."""
    time = datetime.fromisoformat(what.when)
    last = max((name for name in disk.names(yard.trash) if _NAME.match(name)), default="")
    if last and f"{time:{_TIME}}" <= last[:15]:
        item = _item(yard, yard.thrown(last))
        time = datetime.strptime(last[:15], _TIME)
        time += timedelta(seconds=0 if item and item.what.batch == what.batch else 1)
    return f"{time:{_TIME}}"


def move(item: Item) -> None:
    """Move a noted item to the trash, with one rename.

    Raises:
        StackyardError: it is behind a link or on another file system, or belongs to an account that keeps you out.
    """
    root, hint = item.yard.root, "run it as the account that owns the files, or as root"
    with _shown("remove", item.origin, hint), at.parent(root, item.origin) as origin:
        _require_no_link(item.origin, origin)
        _allow_move(*origin)
        with at.directory(root, item.directory) as entry:
            os.rename(origin[1], CONTENT, src_dir_fd=origin[0], dst_dir_fd=entry)
    atomic.fault_point("trash-moved")


def put(yard: Yard, path: Path, what: TrashNote) -> Item:
    """`begin` and `move`; on failure no note is left."""
    item = begin(yard, path, what)
    try:
        move(item)
    except StackyardError:
        forget(item)
        raise
    return item


def forget(item: Item) -> None:
    """Remove the note of an item whose files are not in the trash."""
    with suppress(OSError):
        disk.delete_tree(item.directory, item.yard.root)


def _allow_move(directory: int, name: str) -> None:
    """Make a directory writable for its owner: rename(2) to another parent writes into it; root needs no permission."""
    status = os.stat(name, dir_fd=directory, follow_symlinks=False)
    if stat.S_ISDIR(status.st_mode) and status.st_uid == os.geteuid() and not status.st_mode & stat.S_IWUSR:
        at.set_mode(directory, name, lambda status: status.st_mode | stat.S_IWUSR, kinds=(stat.S_IFDIR,))


def settle(item: Item) -> None:
    """Note that the item is unused, so that processes need not wait for its return.

    On a full file system they wait for some seconds, although the files are removed.
    """
    try:
        with at.directory(item.yard.root, item.directory) as entry:
            _mark(entry, SETTLED)
    except OSError as error:
        if not (isinstance(error, FileNotFoundError) or space.is_full(error)):  # not: another collection deleted it
            raise


def _mark(entry: int, name: str) -> None:
    with suppress(FileExistsError):
        at.open_new(entry, name, 0o666).close()


def bring_back(item: Item, *, again: bool = False) -> None:
    """Move the files back to their former path. The note, with the revision's state, stays until `forget`.

    Args:
        again: whether this is for a deploy, which verifies it before publication.

    Raises:
        StackyardError: the path is in use, or its deletion has begun.
    """
    if not os.path.lexists(item.content):
        raise StackyardError(f"cannot bring back {item.origin}: its files are being deleted")
    root = item.yard.root
    with (
        _shown("bring back", item.origin),
        at.directory(root, item.directory) as entry,
        at.parent(root, item.origin, make=True) as (directory, name),
    ):
        if _is_in(directory, name):
            raise StackyardError(
                f"cannot bring back {item.origin}: it exists again", hint=f"the removed files are in {item.content}"
            )
        _mark(entry, AGAIN) if again else at.remove_tree(entry, AGAIN)
        os.rename(CONTENT, name, src_dir_fd=entry, dst_dir_fd=directory)
    atomic.fault_point("trash-back")


def _is_in(directory: int, name: str) -> bool:
    """Whether an open directory has an entry of this name, including links."""
    try:
        os.stat(name, dir_fd=directory, follow_symlinks=False)
    except FileNotFoundError:
        return False
    return True


def delete(item: Item) -> None:
    """Delete the item permanently. Links in it are removed, and never followed.

    Raises:
        StackyardError: it, or a part of it, belongs to another account.
    """
    try:
        with at.directory(item.yard.root, item.directory) as entry:
            if _is_in(entry, CONTENT):
                _require_own_content(item, entry)
                os.rename(CONTENT, DOOMED, src_dir_fd=entry, dst_dir_fd=entry)  # it cannot be brought back any more
            elif not _is_in(entry, DOOMED):
                return  # another collection was faster
            atomic.fault_point("trash-doomed")
            _empty(item, entry)
        disk.delete_tree(item.directory, item.yard.root)
    except FileNotFoundError:
        return
    except OSError as error:
        place = item.directory / (error.filename or "")
        raise StackyardError(f"cannot delete {place}: {error.strerror}", hint=_OWNERS) from error


def _is_anothers(entry: int, name: str) -> bool:
    status = os.stat(name, dir_fd=entry, follow_symlinks=False)
    return stat.S_ISDIR(status.st_mode) and os.geteuid() not in (0, status.st_uid)


def _require_own_content(item: Item, entry: int) -> None:
    """Raise StackyardError if a directory belongs to another account and root is not available to empty it."""
    if _is_anothers(entry, CONTENT) and not supervised.is_active():
        owner = account_name(os.stat(CONTENT, dir_fd=entry, follow_symlinks=False).st_uid)
        raise StackyardError(f"cannot delete {item.content}: it belongs to {owner}", hint=_OWNERS)


def _empty(item: Item, entry: int) -> None:
    """Delete the files of an item; those of another account by a process of that account."""
    if not _is_anothers(entry, DOOMED):
        at.remove_tree(entry, DOOMED)
        return
    try:
        supervised.empty(item.directory.name)
    except StackyardError as error:
        raise StackyardError(f"cannot delete {item.doomed}: {error.message}", hint=_OWNERS) from error


_OWNERS = "run `stackyard gc` as the account that owns the files, or as root"


def sweep(yard: Yard) -> None:
    """Remove entries without files that are older than a day, left by killed processes."""
    for directory in _directories(yard):
        with suppress(OSError):
            if not _has_files(directory) and clock.age_s(directory.stat().st_mtime) > clock.DAY_S:
                disk.delete_tree(directory, yard.root)


def _has_files(directory: Path) -> bool:
    return any(os.path.lexists(directory / name) for name in (CONTENT, DOOMED))


def note_of(sort: Sort, yard: Yard, path: Path, batch: str, **more: Any) -> TrashNote:
    """The description of an item that this account is about to remove."""
    return TrashNote(sort, path.relative_to(yard.root).as_posix(), now(), whoami(), batch, **more)
