"""What time it is, and how long ago a file was written: what retires, removes, collects and counts uses asks here."""

from __future__ import annotations

import time
from datetime import date, datetime, timezone

DAY_S = 86400.0


def now() -> datetime:
    """The present time, in UTC."""
    return datetime.fromtimestamp(_shown(time.time()), timezone.utc)


def today() -> date:
    """The present day, where this process is."""
    return date.fromtimestamp(_shown(time.time()))


def age_s(written: float) -> float:
    """Seconds since a time that a file system gave, and never less than none: its clock may be ahead."""
    return max(0.0, _shown(time.time()) - _shown(written))


def _shown(timestamp: float) -> float:
    """What the calendar shows at a time of this machine: the same. A simulated year passes in minutes."""
    return timestamp
