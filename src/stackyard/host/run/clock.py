"""The present time and the age of files, for everything that retires, removes, collects and counts."""

from __future__ import annotations

import time
from datetime import date, datetime, timezone

DAY_S = 86400.0


def now() -> datetime:
    """The present time, in UTC."""
    return datetime.fromtimestamp(_shown(time.time()), timezone.utc)


def today() -> date:
    """The present date in this process's time zone."""
    return date.fromtimestamp(_shown(time.time()))


def stamp(seconds: float | None = None) -> str:
    """A time in records and JSON, or the present one: ISO 8601 in this process's time zone, to the second."""
    moment = now() if seconds is None else datetime.fromtimestamp(seconds, timezone.utc)
    return moment.astimezone().isoformat(timespec="seconds")


def age_s(written: float) -> float:
    """Seconds since a file system's time, at least 0: its clock may be ahead."""
    return max(0.0, _shown(time.time()) - _shown(written))


def _shown(timestamp: float) -> float:
    """The calendar time for a time of this machine, normally the same; simulations replace it."""
    return timestamp
