"""The yards that extend revisions of this one: registered ones (`yard.others.childnotes`), and those found.

They are searched for at the site's place for users' yards (``user_yard``), and read by `host.account.reading`: readable
ones by this process, closed ones by a child process of root under their account (`host.account.supervised`). A yard
that could not be read completely may extend everything.
"""

from __future__ import annotations

import os
import pwd
import time
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator
from contextlib import suppress
from dataclasses import field
from pathlib import Path
from typing import Any

from stackyard.core.errors import StackyardError, cause
from stackyard.core.findings import some
from stackyard.core.late import dataclass
from stackyard.core.quoting import LONG, plain
from stackyard.host.account import reading, supervised
from stackyard.host.account.reading import Reading
from stackyard.host.run.identity import account_name, whoami
from stackyard.yard import disk, formats
from stackyard.yard.layout import Yard, is_yard
from stackyard.yard.others import childnotes
from stackyard.yard.others.childnotes import Note, register
from stackyard.yard.write import trash

__all__ = ["BlindSpot", "Child", "Children", "interpreters", "known", "own_bases", "register"]

_MOST_RECORD = 1 << 25
_MOST_YARDS = 32
"""Yards that the notes of one account may name."""
_MOST_S = 2 * reading.MOST_S
"""For all yards of an account that this process reads itself."""


@dataclass(frozen=True)
class Child:
    """A yard, its account, and its contents (`host.account.reading.Reading`); `closed`: unreadable for this process."""

    root: Path
    uid: int
    items: tuple[tuple[str, ...], ...]
    closed: bool = False

    def of(self, kind: str) -> Iterator[tuple[str, ...]]:
        """The items of a kind, without its name."""
        return (item[1:] for item in self.items if item and item[0] == kind)


@dataclass(frozen=True)
class BlindSpot:
    """A place that could not be read, and why: an account's yard, or without an account a directory of the yard itself.

    `always`: regardless of earlier searches, since notes of this account cannot be read either.
    """

    uid: int | None
    place: str
    why: str
    always: bool = False

    @property
    def account(self) -> str:
        """The name of the account."""
        return "" if self.uid is None else plain(account_name(self.uid), LONG)


@dataclass
class Children:
    """The yards below a yard.

    Attributes:
        seen: those that were read, completely or partly.
        blind: the places that could not be read.
        notes: the registered notes.
        absent: roots without a yard.
        unseen: messages about places that were not read.
    """

    seen: list[Child] = field(default_factory=list)
    blind: list[BlindSpot] = field(default_factory=list)
    notes: list[Note] = field(default_factory=list)
    absent: set[Path] = field(default_factory=set)
    unseen: list[str] = field(default_factory=list)

    @property
    def yards(self) -> list[Yard]:
        """The yards that were read."""
        return [Yard(child.root) for child in self.seen]

    def of(self, kind: str) -> Iterator[tuple[Child, tuple[str, ...]]]:
        """The items of a kind in these yards, each with its yard."""
        return ((child, item) for child in self.seen for item in child.of(kind))

    def solutions(self) -> set[str] | None:
        """The spec hashes of their revisions' locks; None if some are unknown.

        Open yards are read for this only now, since it is seldom needed.
        """
        read = [reading.read_yard(child.root) for child in self.seen if not child.closed]
        if self.blind or any(answer.problem for answer in read):
            return None
        items = (
            *(item for answer in read for item in answer.items),
            *(item for child in self.seen for item in child.items),
        )
        return {item[1] for item in items if item[0] == "solution"}


def known(yard: Yard, template: str, despite: Collection[int] = ()) -> Children:
    """The yards that extend revisions of this one, as far as they are visible.

    Args:
        template: the place of users' yards: the site's ``user_yard``; empty: only registered ones are read.
        despite: accounts whose notes and yards are ignored.
    """
    result = Children()
    places: dict[Path, list[int | None]] = {}
    for root, uid in _places(template, result) if template else ():
        places.setdefault(root, []).append(uid)
    for root, uid in _registered(yard, result, despite):
        accounts = places.setdefault(root, [])
        accounts += [uid] if uid not in accounts and None not in accounts else []
    places.pop(yard.root, None)
    _Look(result, places, despite).look()
    return result


class _Look:
    """One search of yards, each at a path and of one of some accounts; None: of the directory's owner."""

    def __init__(self, children: Children, places: dict[Path, list[int | None]], despite: Collection[int]) -> None:
        self.found, self.places, self.despite = children, places, despite
        self.closed: list[tuple[int, Path]] = []
        self.denied: list[str] = []
        self.left_s: dict[int, float] = defaultdict(lambda: _MOST_S)

    def look(self) -> None:
        """Search. Each yard on another disk is opened in a thread first, since that may hang."""
        for root, error in disk.looked_into(list(self.places)):
            try:
                if error is not None:
                    raise error
                if not is_yard(root):
                    self.found.absent.add(root)
                elif _is_private(root):
                    self._close(root)
                else:
                    self._read(root)
            except disk.ABSENT:
                self.found.absent.add(root)
            except PermissionError:
                self._close(root)
            except (OSError, StackyardError) as problem:
                self._blind(self._accounts(root), root, cause(problem))
        self._ask()
        if self.denied:
            self.found.unseen.append(f"permission denied: {some(self.denied, 3)}")

    def _accounts(self, root: Path) -> list[int]:
        """The possible accounts of a yard, without ignored ones."""
        uids = [_owner(root) if uid is None else uid for uid in self.places[root]]
        return [uid for uid in dict.fromkeys(uids) if uid not in self.despite]

    def _read(self, root: Path) -> None:
        for uid in self._accounts(root)[:1]:
            start, within_s = time.monotonic(), min(reading.MOST_S, round(self.left_s[uid], 1))
            answer = reading.read_yard(root, solutions=False, within_s=max(within_s, 0.1))
            self.left_s[uid] -= time.monotonic() - start
            if answer.problem.endswith("permission denied") and supervised.is_active():
                self._close(root)
            else:
                self._take(uid, root, answer, closed=False)

    def _close(self, root: Path) -> None:
        """Have a yard read under its own account, or report it as closed."""
        accounts = self._accounts(root)
        if supervised.is_active():
            self.closed += [(uid, root) for uid in accounts]
        elif accounts:
            self.denied.append(plain(str(root), LONG))
            self.found.blind += [BlindSpot(uid, str(root), "permission denied") for uid in accounts]

    def _ask(self) -> None:
        answers: dict[Path, list[tuple[int, Reading]]] = defaultdict(list)
        for (uid, root), answer in zip(self.closed, supervised.read(self.closed), strict=True):
            answers[root].append((uid, answer))
        for root, read in answers.items():
            uid, answer = next((pair for pair in read if not pair[1].problem), read[0])
            if answer.problem:
                self._take(uid, root, answer, closed=True)
                self.found.blind += [BlindSpot(other, str(root), answer.problem) for other, _ in read if other != uid]
            elif answer.items:
                self._take(uid, root, answer, closed=True)
            else:
                self.found.absent.add(root)

    def _take(self, uid: int, root: Path, answer: Reading, *, closed: bool) -> None:
        self.found.seen.append(Child(root, uid, tuple(answer.items), closed))
        if answer.problem:
            self._blind([uid], root, answer.problem)

    def _blind(self, accounts: Iterable[int], root: Path, why: str) -> None:
        accounts = list(accounts)
        self.found.blind += [BlindSpot(uid, str(root), plain(why, LONG)) for uid in accounts]
        if accounts:
            self.found.unseen.append(f"cannot look into the yard {plain(str(root), LONG)}: {plain(why, LONG)}")


def _is_private(root: Path) -> bool:
    """Whether only root's rights give access to a root: then it is read as its owner."""
    if os.geteuid() != 0:
        return False
    status = root.stat()
    return status.st_uid != 0 and status.st_mode & 0o005 != 0o005


def _owner(root: Path) -> int:
    """The owner of a directory, or of the nearest readable one above."""
    for place in (root, *root.parents):
        with suppress(OSError):
            return place.stat().st_uid
    return 0


def _registered(yard: Yard, children: Children, despite: Collection[int]) -> Iterator[tuple[Path, int]]:
    """The yards that notes name. If an account names too many, they are not read."""
    try:
        notes = childnotes.notes(yard)
    except OSError as error:
        children.blind.append(BlindSpot(None, str(yard.children), cause(error), always=True))
        children.unseen.append(f"cannot read {yard.children}: {cause(error)}")
        return
    children.unseen += notes.left
    roots: dict[int, set[Path]] = defaultdict(set)
    for note in notes.notes:
        roots[note.uid].add(note.root)
    many = (uid for uid, of in roots.items() if len(of) > _MOST_YARDS)
    crowds = notes.unread | dict.fromkeys(many, f"notes on more than {_MOST_YARDS} yards in {yard.children.name}/")
    for uid, why in sorted(crowds.items()):
        if uid not in despite:
            children.blind.append(BlindSpot(uid, str(yard.children), why, always=True))
            children.unseen.append(f"notes of {plain(account_name(uid), LONG)}: {why}")
    children.notes = [note for note in notes.notes if note.uid not in {*crowds, *despite}]
    yield from ((note.root, note.uid) for note in children.notes)


def _places(template: str, children: Children) -> Iterator[tuple[Path, int | None]]:
    """The yards of all accounts at a template's path: below their homes, or beside the own one."""
    plain = template.replace("${", "$").replace("}", "")
    first, _, rest = plain.partition("/")
    if first in ("~", "$HOME"):
        yield from ((Path(home, rest), uid) for home, uid in _homes())
        return
    parts = Path(os.path.expandvars(plain)).parts
    mine = [at for at, part in enumerate(parts) if part == whoami()]
    if not mine or any("$" in part for part in parts):
        children.unseen.append(f"yards of other users are not looked for: {template} does not say where they are")
        return
    above, below = Path(*parts[: mine[0]]), parts[mine[0] + 1 :]
    try:
        disk.look_into(above)
        yield from ((above.joinpath(name, *below), None) for name in sorted(disk.names(above)))
    except disk.ABSENT:
        return
    except PermissionError:  # it may be entered, as /home of many sites
        yield from ((above.joinpath(entry.pw_name, *below), entry.pw_uid) for entry in pwd.getpwall())
    except (OSError, StackyardError) as error:
        children.blind.append(BlindSpot(None, str(above), cause(error)))
        children.unseen.append(f"cannot look into {above}: {cause(error)}")


def _homes() -> list[tuple[str, int]]:
    """The homes of the accounts that the system lists, without those directly below the root directory."""
    return sorted({(entry.pw_dir, entry.pw_uid) for entry in pwd.getpwall() if len(Path(entry.pw_dir).parts) > 2})


# --------------------------------------------------------------------------- the records of the yard itself


def own_bases(yard: Yard) -> Iterator[tuple[str, str, str]]:
    """The yard and the name of each base that a record of this yard has, and the module that extends it."""
    for value in _records(yard):
        base = value.get("base")
        if isinstance(base, dict):
            texts = (base.get("yard"), base.get("id"), value.get("module"))
            if all(isinstance(text, str) and "\0" not in text for text in texts):
                yield str(texts[0]), str(texts[1]), str(texts[2])


def interpreters(yard: Yard) -> Iterator[Path]:
    """The paths of the interpreters that the records of this yard name."""
    for value in _records(yard):
        interpreter = value.get("interpreter")
        if isinstance(interpreter, dict) and isinstance(interpreter.get("path"), str):
            yield Path(interpreter["path"])


def _records(yard: Yard) -> Iterator[dict[str, Any]]:
    """The records of this yard, including those in its trash, which can be restored."""
    built = disk.matching(yard.stacks, "*/*/record.json")  # first: what is removed meanwhile is in the trash then
    for file in (*built, *disk.matching(yard.trash, f"*/{trash.CONTENT}/record.json")):
        value = None
        with suppress(OSError, ValueError, RecursionError):
            top = yard.root if file.is_relative_to(yard.trash) else None
            value = formats.content(disk.of_anybody(file, _MOST_RECORD, top)[0])
        if isinstance(value, dict):
            yield value
