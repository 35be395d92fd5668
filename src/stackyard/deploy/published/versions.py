"""The order of a stack's versions: Python's (PEP 440) if all are valid there, else conda's.

2.9 is before 2.13, 1.0rc1 before 1.0, 1.0 before 1.0.post1, 1.1.1k before 1.1.1w.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Any

from packaging.version import Version


def version_keys(versions: Collection[str]) -> dict[str, Any]:
    """A sort key for each of these versions; keys of one call can be compared with each other only."""
    try:
        return {version: Version(version) for version in versions}
    except ValueError:
        return _conda_keys(versions)


def _conda_keys(versions: Collection[str]) -> dict[str, Any]:
    """Keys by conda's order; if one is not a valid conda version, compared number by number and word by word."""
    from rattler import Version as CondaVersion  # late: few stacks need it
    from rattler.exceptions import InvalidVersionError

    try:
        return {version: CondaVersion(version) for version in versions}
    except InvalidVersionError:
        return {version: _parts(version) for version in versions}


def _parts(version: str) -> list[tuple[int, int, str]]:
    pieces = re.findall(r"(\d+)|([^\W\d_]+)", version)
    return [(1, int(number), "") if number else (0, 0, word.lower()) for number, word in pieces]
