"""The published stacks that have a Python module, for a job that did not find it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from stackyard.cli.context import Context
from stackyard.core.errors import StackyardError
from stackyard.core.findings import some
from stackyard.yard.api import RevisionPaths, Yard, listing

_CAUSE = "module-not-found"
_NAMED = re.compile(r"module ([\w.]+) not found")
_MOST = 300
"""Stacks that are looked into."""


def stacks_having(cause: Mapping[str, Any]) -> str:
    """A hint for the cause of a failure that names the stacks with the module that it misses; else empty."""
    found = _NAMED.search(str(cause.get("cause", ""))) if cause.get("rule") == _CAUSE else None
    context = click.get_current_context().find_object(Context)
    if not found or context is None:
        return ""
    try:
        modules = _with(context.yard(reading=True), found[1].partition(".")[0])
    except (StackyardError, OSError):  # a note beside a failure: nothing else fails by it
        return ""
    return f"{some(modules, 5)} {'have' if len(modules) > 1 else 'has'} it: --with {modules[0]}" if modules else ""


def _with(yard: Yard, module: str) -> list[str]:
    """The visible revisions with a file or a directory of this name among their packages, the newest first."""
    rows = [row for row in listing(yard) if row.get("state") == "published"][-_MOST:]
    return [str(row["module"]) for row in reversed(rows) if _has(RevisionPaths.of(row["path"]).prefix, module)]


def _has(prefix: Path, module: str) -> bool:
    places = prefix.glob("lib/python3*/site-packages")
    return any((place / module).is_dir() or any(place.glob(f"{module}.*")) for place in places)
