"""The journal of a search: a file of JSON lines to which one process appends.

    {"event": "asked", "trial": 3, "seed": 41, "known": 12, "params": {"lr": 0.01}}
    {"event": "started", "trial": 3, "rung": 0, "slot": "n1/2"}
    {"event": "report", "trial": 3, "resource": 1, "value": 0.7}
    {"event": "ended", "trial": 3, "rung": 0, "state": "done", "value": 0.7, "seconds": 4.1}

`known` is the number of lines above the one that asks: what was known when the trial was asked for. A line counts once
it has its line break; the rest of one, left by a kill or a full disk, is dropped by the next writer, who says so.
"""

from __future__ import annotations

import errno
import json
import math
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from stackyard.core.errors import InputError
from stackyard.core.late import dataclass
from stackyard.host.files import at
from stackyard.yard import disk
from stackyard.yard.write import atomic

FORMAT = 1
Event = dict[str, Any]
MOST_NUMBER = 10**12
STATES = ("done", "failed", "no-value", "timeout", "interrupted")
"""How a trial leaves a rung; all but the last one are results."""


@dataclass(frozen=True)
class JournalText:
    """The events of a journal; `torn` bytes at its end are the beginning of a line that was never finished."""

    events: tuple[Event, ...]
    torn: int


def read_journal(path: Path) -> JournalText:
    """The events so far; none if the file does not exist.

    Raises:
        InputError: a line is damaged.
    """
    try:
        raw = at.read_regular(path)
    except FileNotFoundError:
        return JournalText((), 0)
    except OSError as error:
        raise InputError(f"cannot read {path}: {(error.strerror or str(error)).lower()}") from error
    *lines, rest = raw.split(b"\n")
    events = []
    for number, line in enumerate(lines, 1):
        try:
            events.append(_checked(json.loads(line)))
        except (ValueError, KeyError, TypeError, RecursionError, OverflowError) as error:
            raise InputError(f"{path}:{number}: not an event of a search: {error}",
                             hint="restore the file from a backup, or begin another search") from error  # fmt: skip
    return JournalText(tuple(events), len(rest))


def _checked(line: Any) -> Event:
    """An event whose numbers can be calculated with; a study may be read by another account."""
    event: Event = dict(line)
    kind, trial = event["event"], event.get("trial", 0)
    if not isinstance(trial, int) or not 0 <= trial <= MOST_NUMBER:
        raise ValueError(f"trial {trial!r:.40}")
    if kind == "asked" and not isinstance(event["params"], dict):
        raise TypeError("its parameters are not a mapping")
    if kind in ("started", "ended") and not 0 <= int(event["rung"]) < 100:
        raise ValueError(f"rung {event['rung']!r:.40}")
    if kind == "report":
        event = {**event, "value": float(event["value"]), "resource": int(event["resource"])}
    if kind == "ended":
        if event["state"] not in STATES:
            raise ValueError(f"state {event['state']!r:.40}")
        value = event.get("value")
        event = {**event, "value": None if value is None else float(value), "seconds": float(event.get("seconds", 0))}
    if any(isinstance(number, float) and not math.isfinite(number) for number in event.values()):
        raise ValueError("a number that is not finite")
    return event


class JournalWriter:
    """Appends to a journal; the caller holds the lease of the study.

    Attributes:
        torn: bytes of an unfinished last line that were dropped.
    """

    def __init__(self, path: Path) -> None:
        """Open it, without an unfinished line.

        Raises:
            InputError: it is damaged.
            StackyardError: it cannot be written.
        """
        found = read_journal(path)
        self.events, self.torn, self._path = list(found.events), found.torn, path
        with disk.during(f"writing {path}"):
            self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW, 0o644)
            self._size = os.fstat(self._fd).st_size - found.torn
            if found.torn:
                os.ftruncate(self._fd, self._size)

    def append(self, events: Iterable[Event], *, synced: bool = True) -> None:
        """Append events, all of them or none.

        Args:
            synced: wait until they are on the disk: results, not each report.

        Raises:
            StackyardError: they cannot be written, as on a full disk.
        """
        fresh = list(events)
        data = b"".join(json.dumps(event, separators=(",", ":")).encode() + b"\n" for event in fresh)
        try:
            with disk.during(f"writing {self._path}", hint="free some space, and continue the search"):
                atomic.fault_point("tune-journal")
                if os.write(self._fd, data) != len(data):
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(self._path))
                if synced:
                    os.fsync(self._fd)
        except BaseException:
            os.ftruncate(self._fd, self._size)
            raise
        self._size += len(data)
        self.events += fresh

    def close(self) -> None:
        """Close the file."""
        os.close(self._fd)
