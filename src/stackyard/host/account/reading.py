"""Reads a user's yard: the bases, interpreters and solutions of its revisions, and the uses of its account.

The contents are untrusted. So they are read by descriptors, without following links below the root, and with limits:
only regular files, of limited number, size and time. The result can only keep revisions; unreadable parts are in
`Reading.problem`, and count as in use. A process reads accessible yards; a closed one is read by a child under its
account (`stackyard.host.account.supervised`). Such a child starts before anything else is imported: standard library
and `stackyard.host.files.at` only. The names are those of `stackyard.yard.layout`, which a test compares.
"""

from __future__ import annotations

import errno
import json
import os
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from stackyard.host.files import at

MOST_RECORDS, MOST_BYTES, MOST_ANSWER, MOST_S = 2_000, 1 << 23, 1 << 20, 5.0
"""Records of a yard, bytes of each, characters of all that is taken from it, and seconds."""
MOST_USES, MOST_USE = 1_000, 16_384
"""Notes on uses in a yard, and bytes of each."""
MOST_YARDS, _MOST_TEXT = 32, 4_096
"""Yards in which it has bases, and characters of a path or name."""
STACKS, TRASH, CONTENT, USES = "stacks", "trash", "content", "uses"
RECORDS, LOCK = ("record.json", "record.spare.json"), ("lock", "stack.lock")
SPEC_HASH = re.compile(rb'^spec_hash = "([^"\n]{1,200})"', re.MULTILINE)
_NO_RECORD = {errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.ELOOP, errno.EINVAL, errno.ENXIO}
"""What has the name is missing, a directory, a link, a pipe or a device: not what this program writes."""


class Reading(NamedTuple):
    """The contents of a yard.

    Attributes:
        items: ``("base", yard, id, module)``, ``("interpreter", path)``, ``("solution", spec hash)`` and ``("use", text
            of the note, its age in seconds, uid of its owner)``; empty for a directory that is not a yard.
        problem: why it could not be read completely; empty: it was.
    """

    items: list[tuple[str, ...]]
    problem: str


class _ReadLimit(Exception):
    """A limit was reached."""


def read_yard(root: Path, *, records: bool = True, solutions: bool = True, within_s: float = MOST_S) -> Reading:
    """Read a yard. Links are followed to its root, but not below it.

    Args:
        root: its possible path; the result is empty if it does not exist or is not a yard.
        records: read the records of its revisions too, not only the uses of its account.
        solutions: read their spec hashes too.
        within_s: the time limit in seconds; the rest is reported as unread.
    """
    reader = _Reader(root, solutions, time.monotonic() + within_s, within_s)
    try:
        with at.directory(root, root) as top:
            reader.uses(top)
            if records:
                reader.records(top)
    except (FileNotFoundError, NotADirectoryError):
        pass
    except (OSError, _ReadLimit) as error:
        reader.note(error)
    return Reading(list(reader.items), reader.problem)


class _Reader:
    """One reading: the items, the first problem, and the number of visited entries."""

    def __init__(self, root: Path, solutions: bool, until: float, within_s: float) -> None:
        self.items: dict[tuple[str, ...], None] = {}
        self.problem = ""
        self._root, self._solutions, self._until, self._within_s = root, solutions, until, within_s
        self._seen = self._size = 0
        self._yards: set[str] = set()

    def note(self, error: Exception, place: str = "") -> None:
        """Keep the first problem."""
        text = ((error.strerror if isinstance(error, OSError) else "") or str(error) or "not enough memory").strip()
        text = text[:1].lower() + text[1:]
        self.problem = self.problem or (f"{place}: {text}" if place else text)

    def records(self, top: int) -> None:
        """Read all records of a yard; the trash last, so that records moved meanwhile are found there."""
        for stack, place in self._directories(top, STACKS):
            for revision, inner in self._each(stack, place):
                self._revision(revision, inner)
        for item, place in self._directories(top, TRASH):
            with self._opened(item, CONTENT, f"{place}/{CONTENT}") as content:
                if content is not None:
                    self._revision(content, f"{place}/{CONTENT}")

    def _directories(self, top: int, name: str) -> Iterator[tuple[int, str]]:
        with self._opened(top, name, name) as fd:
            if fd is not None:
                yield from self._each(fd, name)

    def _each(self, fd: int, place: str) -> Iterator[tuple[int, str]]:
        """The subdirectories of a directory, each open during the iteration."""
        for name in self._names(fd, place):
            self._seen += 1
            if self._seen > MOST_RECORDS:
                raise _ReadLimit(f"more than {MOST_RECORDS:,} records")
            with self._opened(fd, name, f"{place}/{name}") as below:
                if below is not None:
                    yield below, f"{place}/{name}"

    def _names(self, fd: int, place: str) -> Iterator[str]:
        try:
            with os.scandir(fd) as entries:
                for entry in entries:
                    if time.monotonic() > self._until:
                        raise _ReadLimit(f"timed out after {self._within_s:g} s")
                    yield entry.name
        except FileNotFoundError:  # removed meanwhile
            return
        except OSError as error:
            self.note(error, place)

    @contextmanager
    def _opened(self, top: int, name: str, place: str) -> Iterator[int | None]:
        """An open directory; None for anything else, which is reported only if it leads out of the yard."""
        fd = None
        try:
            fd = at.open_directory(top, name)
        except OSError as error:
            if error.errno not in _NO_RECORD:
                self.note(error, place)
            elif error.errno != errno.ENOENT and name != LOCK[0] and self._leads_out(top, name, place):
                self.note(ValueError("is a symbolic link"), place)
        try:
            yield fd
        finally:
            if fd is not None:
                os.close(fd)

    def _leads_out(self, top: int, name: str, place: str) -> bool:
        """Whether a link leads to a place that is not read anyway. It is not followed."""
        try:
            target = (self._root / place).parent / os.readlink(name, dir_fd=top)
        except OSError:
            return False
        inside = self._root / place.partition("/")[0]
        return name == place or not f"{os.path.normpath(target)}/".startswith(f"{os.path.normpath(inside)}/")

    def _revision(self, fd: int, place: str) -> None:
        value = self._record(fd, place)
        if value is None:
            return
        base, python = value.get("base"), value.get("interpreter")
        if isinstance(base, dict):
            self._base(base.get("yard"), base.get("id"), value.get("module"))
        if isinstance(python, dict):
            self._add("interpreter", python.get("path"))
        if self._solutions:
            self._lock(fd, place)

    def _record(self, fd: int, place: str) -> dict[str, Any] | None:
        """The record of a revision, or its copy."""
        for name in RECORDS:
            try:
                value = json.loads(at.read_bounded(fd, name, MOST_BYTES)[0], parse_int=str, parse_float=str)
            except (OSError, MemoryError) as error:
                if not isinstance(error, OSError) or error.errno not in _NO_RECORD:
                    self.note(error, f"{place}/{name}")
                continue
            except (ValueError, RecursionError):
                continue
            if isinstance(value, dict):
                return value
        return None

    def _base(self, yard: object, name: object, module: object) -> None:
        if isinstance(yard, str) and isinstance(name, str):
            self._yards.add(yard)
            if len(self._yards) > MOST_YARDS:
                raise _ReadLimit(f"names bases in more than {MOST_YARDS} yards")
            self._add("base", yard, name, module if isinstance(module, str) and len(module) <= _MOST_TEXT else "")

    def _lock(self, fd: int, place: str) -> None:
        directory, name = LOCK
        with self._opened(fd, directory, f"{place}/{directory}") as lock:
            if lock is None:
                return
            try:
                text, _ = at.read_bounded(lock, name, MOST_BYTES)
            except OSError as error:
                if error.errno not in _NO_RECORD:
                    self.note(error, f"{place}/{directory}/{name}")
                return
        for digest in SPEC_HASH.findall(text):
            self._add("solution", digest.decode("utf-8", "replace"))

    def uses(self, top: int) -> None:
        """Read the use notes."""
        with self._opened(top, USES, USES) as fd:
            if fd is None:
                return
            names = [name for name in self._names(fd, USES) if name.endswith(".json") and not name.startswith(".")]
            for name in names[:MOST_USES]:
                self._use(fd, name)
        if len(names) > MOST_USES:
            self.note(ValueError(f"more than {MOST_USES:,} notes"), USES)

    def _use(self, fd: int, name: str) -> None:
        try:
            text, status = at.read_bounded(fd, name, MOST_USE)
            age_s = max(0.0, time.time() - status.st_mtime)
            self._add("use", text.decode(), f"{age_s:.0f}", str(status.st_uid), most=MOST_USE)
        except OSError as error:
            if error.errno not in (*_NO_RECORD, errno.EFBIG):
                self.note(error, f"{USES}/{name}")
        except ValueError:  # not a note: not UTF-8
            return

    def _add(self, kind: str, *texts: object, most: int = _MOST_TEXT) -> None:
        """Add an item, unless one of its texts is invalid or too long."""
        item = (kind, *(text for text in texts if isinstance(text, str) and "\0" not in text and len(text) <= most))
        if len(item) <= len(texts) or item in self.items:
            return
        self._size += sum(map(len, item))
        if self._size > MOST_ANSWER:
            raise _ReadLimit(f"says more than {MOST_ANSWER:,} characters")
        self.items[item] = None
