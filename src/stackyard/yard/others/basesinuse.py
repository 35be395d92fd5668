"""The revisions of a yard that are extended, as noted by the last account with access to all users' yards.

    <yard>/bases-in-use.json   {"format": 1, "looked": "2026-11-22T03:17:00.5+00:00", "bases": {"tool/1.0-py311-1": 3}}

The nightly `gc` of root, or of the account that owns the yard, writes it: names of revisions, and how many extensions
each has; no accounts. It is for staff without access to homes. Only a collection that could read all yards writes it,
so that complete knowledge is never lost; after some days it is no longer trusted. `looked` is the time before the
collection began to search, by the clock of the yard's file system, which also stamps users' notes.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Mapping
from contextlib import suppress
from datetime import datetime, timezone

from stackyard.core.errors import StackyardError
from stackyard.core.late import dataclass
from stackyard.host.files import at
from stackyard.host.run import clock
from stackyard.yard import formats, members
from stackyard.yard.layout import Yard
from stackyard.yard.write import atomic
from stackyard.yard.write.permissions import file_mode

_MOST_BYTES = 1 << 23


@dataclass(frozen=True)
class BasesInUse:
    """The number of extensions of each revision, by name; and when this was determined."""

    looked: str
    bases: Mapping[str, int]

    @property
    def when(self) -> float:
        """The time, in seconds since the epoch."""
        return datetime.fromisoformat(self.looked).timestamp()

    @property
    def day(self) -> str:
        """The date."""
        return self.looked[:10]


def _checked(value: BasesInUse) -> BasesInUse:
    if datetime.fromisoformat(value.looked).tzinfo is None or not all(type(n) is int for n in value.bases.values()):
        raise ValueError("looked: no time zone, or bases: not numbers")
    return value


KIND = formats.Kind(
    1,
    lambda value: _checked(members.make(BasesInUse, value)),
    hint=lambda path: f"remove it: {path}; the next `stackyard gc` of root or the yard's owner writes it",
    checked_since=1,
)


def moment(yard: Yard) -> float | None:
    """The present time by the yard's file system; None if the yard is not writable."""
    with suppress(OSError), at.directory(yard.root, yard.root) as top:
        name = f".{yard.bases_in_use.name}.{os.urandom(8).hex()}"
        with at.open_new(top, name) as stream:
            os.unlink(name, dir_fd=top)
            return os.fstat(stream.fileno()).st_mtime
    return None


def write(yard: Yard, when: float, bases: Mapping[str, int]) -> None:
    """Store the result of a search that began at a `moment`. Only the owner of the yard may write it."""
    looked = datetime.fromtimestamp(when, timezone.utc).isoformat()
    value = {"format": KIND.version, "looked": looked, "bases": dict(bases)}
    atomic.write_json(yard.bases_in_use, value, checked=True, mode=file_mode() & ~0o022, top=yard.root)


def is_writer(yard: Yard) -> bool:
    """Whether this account's searches are trusted: it is root, or owns the yard."""
    return os.geteuid() in (0, yard.root.stat().st_uid)


def read(yard: Yard, most_days: float, problems: list[str]) -> BasesInUse | None:
    """The result of the last such search; None if it is older than this many days.

    Args:
        problems: receives the reason why an existing file is not trusted.
    """
    try:
        with at.directory(yard.root, yard.root) as top:
            raw, status = at.read_bounded(top, yard.bases_in_use.name, _MOST_BYTES)
            if status.st_uid not in (0, os.fstat(top).st_uid):
                raise at.UnexpectedFileError(
                    errno.EPERM, f"belongs to account {status.st_uid}, which does not own the yard"
                )
        bases = formats.parsed(raw, str(yard.bases_in_use), KIND)
    except FileNotFoundError:
        return None
    except OSError as error:
        problems.append(f"cannot read {yard.bases_in_use}: {error.strerror}")
        return None
    except StackyardError as error:
        problems.append(error.message)
        return None
    return bases if clock.age_s(bases.when) <= most_days * clock.DAY_S else None
