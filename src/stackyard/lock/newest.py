"""The moment up to which `exclude_newer` admits packages, conda's and PyPI's alike."""

from __future__ import annotations

import datetime

from stackyard.errors import InputError
from stackyard.host.quoting import quoted


def end_of(date: str) -> datetime.datetime:
    """The end of a day, or a time, in UTC; a time without a zone is one of UTC.

    Raises:
        InputError: it is neither.
    """
    try:
        found = datetime.datetime.fromisoformat(date.replace("Z", "+00:00"))  # Python 3.10 does not read Z
    except ValueError as error:
        raise InputError(
            f"channels.exclude_newer: {quoted(date)} is not a date", hint="write it as 2025-06-30"
        ) from error
    if len(date) == len("2025-06-30"):
        found = found.replace(hour=23, minute=59, second=59)
    return found.astimezone(datetime.timezone.utc) if found.tzinfo else found.replace(tzinfo=datetime.timezone.utc)
