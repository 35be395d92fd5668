"""Memos of deploys that changed nothing, so that the next one of the same files need not read them.

A memo names every file that was read with its hash. It is used only if all of them are unchanged, every revision that
it names is still published and on disk, and nothing but files (no host tools, no variables) could have influenced the
result. It is a cache: removing it costs time, never correctness.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from stackyard import __version__
from stackyard.yard import atomic
from stackyard.yard.layout import RevisionPaths, Yard
from stackyard.yard.record import Entry, Manifest


def memo_path(yard: Yard, request: Mapping[str, Any]) -> Path:
    """The path of the memo of a request: its name hashes files, options, the program's version and pip's variables."""
    pip = {k: v for k, v in os.environ.items() if k.startswith(("PIP_", "CONDA_", "UV_"))}
    text = json.dumps([__version__, dict(request), pip], sort_keys=True, default=str)
    return yard.memo(hashlib.sha256(text.encode()).hexdigest()[:32])


def recall(path: Path, manifest: Manifest | None) -> list[str] | None:
    """The modules of the memo if it still holds, else None."""
    try:
        memo = json.loads(path.read_bytes())
        visible = {e.module: e for e in manifest.entries if e.state != "withdrawn"} if manifest else {}
        modules: list[str] = memo["modules"]
        if not all(module in visible and _is_there(visible[module]) for module in modules):
            return None
        if any(_digest(Path(file)) != digest for file, digest in memo["files"].items()):
            return None
    except (OSError, ValueError, KeyError):
        return None
    return modules


def _is_there(entry: Entry) -> bool:
    """Whether a published revision is still in the directory that its entry names."""
    return RevisionPaths.of(entry.folder).record.exists()


def remember(path: Path, files: Iterable[str], modules: Iterable[str]) -> None:
    """Write the memo of a successful deploy."""
    digests = {str(name): _digest(Path(name)) for name in files}
    atomic.write_json(path, {"files": digests, "modules": list(modules)})


def _digest(path: Path) -> str:
    """The hash of a file's content, or a word for its absence (a file that appears is a change too)."""
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest()
    except FileNotFoundError:
        return "absent"
