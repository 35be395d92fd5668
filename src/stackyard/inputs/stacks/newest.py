"""The time up to which `exclude_newer` admits packages, of conda and PyPI alike."""

from __future__ import annotations

import datetime
import re

from stackyard.core.errors import InputError
from stackyard.core.quoting import quoted

_DATE = re.compile(r"\d{4}-\d\d-\d\d(?P<time>[T ]\d\d:\d\d(:\d\d)?(Z|[+-]\d\d:\d\d)?)?", re.ASCII)
"""Versions of Python differ in what else of ISO 8601 they read."""


def end_of(date: str) -> datetime.datetime:
    """The end of a day, or a time, in UTC; a time without a zone is one of UTC.

    Raises:
        InputError: it is neither.
    """
    form = _DATE.fullmatch(date)
    try:
        moment = datetime.datetime.fromisoformat(date.replace("Z", "+00:00") if form else "")  # 3.10 does not read Z
        if form and not form["time"]:
            moment = moment.replace(hour=23, minute=59, second=59)
        return moment.replace(tzinfo=moment.tzinfo or datetime.timezone.utc).astimezone(datetime.timezone.utc)
    except (ValueError, OverflowError) as error:
        message = f"channels.exclude_newer: {quoted(date)} is not a date"
        raise InputError(message, hint="write it as 2025-06-30 or 2025-06-30T12:00Z") from error
