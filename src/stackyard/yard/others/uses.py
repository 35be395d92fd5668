"""Use notes: a small file for each process or job that uses a revision, which prevents its removal.

    <yard>/uses/<stack>~<revision>@<host>.<pid>.<random>.json

Any account that may read the site's yard may write such a file there, and can list or remove only its own: the
directory is like /tmp (`open_to_users`). If that is not writable (a read-only mount, another account's yard), the file
is in the user's own yard, which the parent reads too. A file has only a name, and its owner is its account; so all it
can do is to keep a revision.

The file is written before the record is read, and a removal looks for files after it has moved the revision aside
(`stackyard.upkeep.gc.remove`). So either the process notices the removal, or the removal finds the process.

A process that was replaced by a program (`stackyard run`) keeps its number and its start time: it can be looked up on
its host. For other hosts the scheduler is asked about a job; without an answer the revision counts as in use for some
days.
"""

from __future__ import annotations

import json
import os
import stat
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import field, replace
from pathlib import Path
from typing import Any

from stackyard.core.errors import MissingError
from stackyard.core.late import dataclass
from stackyard.core.quoting import plain
from stackyard.host.files import at, home
from stackyard.host.run import clock
from stackyard.host.run.identity import Identity, account_name, hostname, this_process
from stackyard.yard import disk, formats
from stackyard.yard.layout import Yard
from stackyard.yard.others import drops
from stackyard.yard.revision.directories import RevisionPaths
from stackyard.yard.write import atomic
from stackyard.yard.write.permissions import Policy

_MOST_BYTES, _MOST_NOTES = 16_384, 10_000
"""Of a note, and of each account: it has one for each process and each job that waits in a queue."""
_MOST_SHOWN = 80
_MOST_S = 5.0
"""How long the files of a revision may be away while a removal finds that it is in use."""


@dataclass(frozen=True)
class Use:
    """One use of a revision.

    Attributes:
        directory: the directory of the revision.
        what: ``run``, ``shell``, ``launch`` or ``job``.
        scheduler, job: the batch job, if any.
        owner: the process; for a queued job, the one that submitted it.
        uid: the account that wrote the note.
        age_s: seconds since the file was written, by the clock of the file's server.
    """

    file: Path
    directory: str
    what: str
    owner: Identity
    scheduler: str = ""
    job: str = ""
    uid: int = -1
    age_s: float = 0.0

    def __str__(self) -> str:
        who = plain(self.owner.user, _MOST_SHOWN)
        if self.job:
            return f"job {plain(self.job, _MOST_SHOWN)} of {who}"
        what, host = plain(self.what, _MOST_SHOWN), plain(self.owner.host, _MOST_SHOWN)
        return f"{what} of {who} on {host}, process {self.owner.pid}"


def mode(policy: Policy) -> int:
    """The mode of the directory: accounts that may read the yard may add files; those that may write may list them."""
    bits = 0o1700
    for shift, read, write in ((0o010, 0o040, 0o020), (0o001, 0o004, 0o002)):
        if not policy.umask & read:
            bits |= 3 * shift
        if not policy.umask & write:
            bits |= 7 * shift
    return bits


def open_to_users(yard: Yard, policy: Policy, *, count: bool) -> None:
    """Create the drop directories of a yard for its owner; another account's directory is not changed.

    Args:
        count: also create that of `yard.others.usage`, with the start date. Only its owner can write this note, and
            `usage.since` accepts no other.
    """
    for directory in (yard.uses, yard.children, *([yard.usage] if count else [])):
        with at.parent(yard.root, directory) as (root, name):
            with suppress(FileExistsError):
                os.mkdir(name, dir_fd=root)
            with suppress(at.UnexpectedFileError):  # another account's
                at.set_mode(root, name, lambda now: mode(policy) | now.st_mode & stat.S_ISGID, kinds=(stat.S_IFDIR,))
    if count and yard.usage.lstat().st_uid == os.geteuid() and not disk.is_there(yard.usage_since):
        atomic.write_text(yard.usage_since, f"{clock.today().isoformat()}\n", top=yard.root)


def hold(directory: str | Path, own: Yard | None, what: str, **job: str) -> Path | None:
    """Note that this process uses a revision; returns the file, or None if no place is writable.

    Call it before the record is read, and `require_files` after it.

    Args:
        directory: the directory of the revision.
        own: the user's yard, used if the revision's yard is not writable.
        job: the `scheduler` and the `job`.
    """
    paths = RevisionPaths.of(directory)
    me = this_process()
    value = {"revision": str(paths.root), "what": what, **job, **me.to_json()}
    name = f"{paths.root.parent.name}~{paths.root.name}@{_host()}.{me.pid}.{me.token}.json"
    places = [Yard(paths.yard).uses, *([own.uses] if own and disk.is_directory(own.root) else [])]
    _forget_dead()
    for place in dict.fromkeys(places):
        with suppress(OSError):
            atomic.write_text(place / name, json.dumps(value), mode=0o644, synced=False)
            if what != "job":
                _remember(place / name)
            return place / name
    return None


def _host() -> str:
    return hostname()[:64]


def _own_notes() -> Path:
    """The file in which an account remembers its notes: it cannot list the directories with them."""
    path = home.xdg("XDG_CACHE_HOME", ".cache")
    return path / "stackyard" / "uses" if path else home.NOWHERE


def _remember(note: Path) -> None:
    with suppress(OSError):  # no home: the owner of the yard removes the note
        atomic.write_text(_own_notes() / f"{_host()}.{note.name}", str(note), mode=0o600, synced=False)


def _forget_dead() -> None:
    """Remove this account's notes of ended processes of this host: a process replaced by a program leaves its note."""
    with suppress(OSError):
        for name in disk.names(_own_notes()):
            if name.startswith(f"{_host()}."):
                _forget_if_dead(_own_notes() / name)


def _forget_if_dead(known: Path) -> None:
    with suppress(OSError, ValueError):
        note = Path(known.read_text(encoding="utf-8"))
        content = disk.content(note)
        owner = Identity.from_json(json.loads(content)) if content is not None else None
        if owner is None or owner.fate == "dead" or owner.before_restart:
            if content is not None:
                note.unlink(missing_ok=True)
            known.unlink(missing_ok=True)


def belongs_to(file: Path | None, **job: str) -> None:
    """Add the job to a note that was written before the job had an id."""
    if file is not None:
        with suppress(OSError, ValueError):
            value = {**json.loads(file.read_bytes()), **job}
            atomic.write_text(file, json.dumps(value), mode=0o644, synced=False)


def release(file: Path | None) -> None:
    """Remove a note, when the use ends with this process."""
    if file is not None:
        with suppress(OSError), at.parent(file.parents[1], file) as (directory, name):
            os.unlink(name, dir_fd=directory)


def require_files(directory: str | Path) -> None:
    """Require the files of a revision, after `hold`.

    A removal in progress that finds the note moves them back; this waits for it.

    Raises:
        MissingError: they were removed.
    """
    paths, until = RevisionPaths.of(directory), time.monotonic() + _MOST_S
    while not disk.is_there(paths.record):
        if time.monotonic() > until or not _is_being_removed(paths):
            raise MissingError(
                f"{paths.root} not found: the revision was removed",
                hint="choose another: `stackyard list`; its staff can bring it back: `stackyard remove REV --undo`",
            )
        time.sleep(0.02)


def _is_being_removed(paths: RevisionPaths) -> bool:
    """Whether a removal of this revision is in progress."""
    from stackyard.yard.write import trash  # late: a file is missing only then

    return any(str(item.origin) == str(paths.root) and not item.is_settled for item in trash.items(Yard(paths.yard)))


@dataclass
class UnreadNotes:
    """Other entries in a directory of notes, a sentence each; and by account the reason for unreadable notes."""

    left: list[str] = field(default_factory=list)
    unread: dict[int, str] = field(default_factory=dict)


def found(place: Path, unknown: UnreadNotes | None = None) -> Iterator[Use]:
    """The uses noted in a directory. Other entries are left out.

    Args:
        unknown: receives the other entries.

    Raises:
        OSError: the directory cannot be listed.
    """
    unknown = UnreadNotes() if unknown is None else unknown
    with drops.opened(place, _MOST_NOTES) as drop:
        unknown.unread |= dict.fromkeys(drop.crowded, f"more than {_MOST_NOTES:,} notes in {place.name}/")
        for name in sorted(drop.files):
            taken = drop.take(name, _MOST_BYTES, unknown.unread)
            if taken is not None:
                use = parsed(taken[0], place / name, taken[1].st_uid, clock.age_s(taken[1].st_mtime))
                if use is not None and name.endswith(".json"):
                    yield use
                else:
                    drop.leave(name)
        unknown.left += drop.left


def parsed(text: str | bytes, file: Path, uid: int, age_s: float) -> Use | None:
    """The use from the text of a note; None: the text is invalid.

    Args:
        uid: the account of the note.
        age_s: its age in seconds.
    """
    try:
        value = formats.content(text)
        owner = Identity.from_json(value)
        texts: Mapping[str, Any] = {key: value.get(key, "") for key in ("what", "scheduler", "job")}
        words = [value["revision"], owner.host if owner else None, *texts.values()]
    except (ValueError, KeyError, AttributeError, TypeError):
        return None
    if owner is None or not all(isinstance(text, str) and text.isprintable() for text in words):
        return None
    if Path(value["revision"]).parts[-3:-2] != ("stacks",):
        return None
    if texts["job"] and not (texts["job"][0].isalnum() and len(texts["job"].split()) == 1):
        return None  # it becomes a word of a scheduler's command line
    return Use(file, value["revision"], owner=replace(owner, user=account_name(uid)), uid=uid, age_s=age_s, **texts)
