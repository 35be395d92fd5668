"""TOML by the standard library, which has a parser since Python 3.11."""

from __future__ import annotations

import sys
from typing import Any

if sys.version_info >= (3, 11):
    import tomllib
else:  # pragma: no cover - only on Python 3.10
    import tomli as tomllib


def loads(text: str) -> dict[str, Any]:
    """The values of a text. Raises ValueError, or RecursionError if they are nested too deeply."""
    values: dict[str, Any] = tomllib.loads(text)
    return values
