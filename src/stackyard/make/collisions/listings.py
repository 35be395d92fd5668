"""Edits a package's list of installed files (RECORD, conda-meta), so that it has only the package's own files.

Pure functions produce the new text; the file is replaced, never modified in place, since it may be a hard link into a
cache.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

from stackyard.yard.write.atomic import write_text

MADE = "unix_python_entry_point"
"""How conda-meta names a console script that the installer wrote."""


def record_without(text: str, gone: Collection[str]) -> str:
    """A RECORD without the lines for these paths."""
    if '"' not in text:
        return "".join(line for line in text.splitlines(keepends=True) if line.partition(",")[0] not in gone)
    stream = io.StringIO()
    rows = (row for row in csv.reader(text.splitlines(keepends=True)) if row and row[0] not in gone)
    csv.writer(stream, lineterminator="\n").writerows(rows)
    return stream.getvalue()


def conda_without(value: dict[str, Any], gone: Collection[str]) -> dict[str, Any]:
    """A conda record without these paths."""
    return _renamed(value, lambda name: "" if name in gone else name)


def conda_from(value: dict[str, Any], directory: str) -> dict[str, Any]:
    """A conda record in which the paths in a directory (``__clobbers__/x/``) are replaced by those in the prefix."""
    return _renamed(value, lambda name: name.removeprefix(directory))


def _renamed(value: dict[str, Any], name: Callable[[str], str]) -> dict[str, Any]:
    """The record with renamed paths; entries renamed to an empty path are dropped.

    Console scripts are sorted and come first: rattler lists them in the order in which its threads finished.
    """
    entries = [{**entry, "_path": name(entry["_path"])} for entry in value["paths_data"]["paths"]]
    listing = [entry for entry in entries if entry["_path"]]
    bytecode_entries = sorted((e for e in listing if e.get("path_type") == MADE), key=lambda e: str(e["_path"]))
    paths = [*bytecode_entries, *(entry for entry in listing if entry.get("path_type") != MADE)]
    scripts = {entry["_path"] for entry in bytecode_entries}
    files = [path for path in map(name, value["files"]) if path]
    ordered = [*sorted(path for path in files if path in scripts), *(path for path in files if path not in scripts)]
    return {**value, "files": ordered, "paths_data": {**value["paths_data"], "paths": paths}}


def is_in_order(entries: list[dict[str, Any]]) -> bool:
    """Whether the console scripts of a conda record are in the order of `_renamed`."""
    paths = [str(entry["_path"]) for entry in entries if entry.get("path_type") == MADE]
    return paths == sorted(paths) and all(entry.get("path_type") == MADE for entry in entries[: len(paths)])


def write_conda(path: Path, value: dict[str, Any]) -> None:
    """Write a conda record in rattler's format."""
    write_text(path, json.dumps(value, indent=2, ensure_ascii=False))
