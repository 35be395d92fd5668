"""Memos of deploys that changed nothing, so that repeating them need not read all files.

A memo has the hash of every file that was read, and the published state of the stacks. It is used only if all of that
is unchanged, every revision in it is on disk, and the result depended on files only (not on host tools or variables).
It is a cache: it can always be removed.
"""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from stackyard import __version__
from stackyard.core.digest import sha256_hex
from stackyard.yard import checksum, disk, formats
from stackyard.yard.layout import Yard
from stackyard.yard.revision import revisions
from stackyard.yard.revision.directories import RevisionPaths
from stackyard.yard.revision.manifest import Entry, Manifest
from stackyard.yard.write import atomic


def memo_path(yard: Yard, request: Mapping[str, Any]) -> Path:
    """The path of the memo of a request.

    Its name hashes files, options, the program's version, pip's variables and the architecture of this machine, since
    machines of several architectures may share a yard.
    """
    pip = {k: v for k, v in os.environ.items() if k.startswith(("PIP_", "CONDA_", "UV_"))}
    text = json.dumps([__version__, platform.machine(), dict(request), pip], sort_keys=True, default=str)
    return yard.memo(sha256_hex(text.encode())[:32])


def recall(path: Path, manifest: Manifest | None) -> list[str] | None:
    """The modules of the memo if it still holds, else None."""
    try:
        memo = formats.content(checksum.read(path))
        modules: list[str] = memo["modules"]
        if memo["published"] != _published(modules, manifest):
            return None
        if any(_digest(Path(file)) != digest for file, digest in memo["files"].items()):
            return None
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):  # damaged: a memo is a cache
        return None
    return modules


def remember(path: Path, files: Mapping[str, str], modules: Iterable[str], manifest: Manifest | None) -> None:
    """Write the memo of a deploy that left `manifest` as the current one. `files`: the hashes of its input files."""
    names = list(modules)
    value = {"files": dict(files), "modules": names, "published": _published(names, manifest)}
    atomic.write_json(path, value, checked=True)


def digests(files: Iterable[str]) -> dict[str, str]:
    """The hash of each file's content now; empty for one that does not exist (a file that appears is a change too)."""
    return {name: _digest(Path(name)) for name in files}


def _published(modules: Iterable[str], manifest: Manifest | None) -> str:
    """A hash over all revisions of the stacks of these modules, and whether they are on disk.

    So any change by another deploy, a rollback or a verification invalidates the memo.
    """
    stacks = {module.partition("/")[0] for module in modules}
    rows = [[vars(e), _is_there(e)] for e in manifest.entries if e.stack in stacks] if manifest else []
    return sha256_hex(json.dumps(rows, sort_keys=True).encode())


def _is_there(entry: Entry) -> bool:
    """Whether the directory of an entry has all files that a deploy writes, and the revision can stay."""
    paths = RevisionPaths.of(entry.folder)
    whole = not revisions.condition(paths) and revisions.can_stay(paths)
    return whole and disk.is_there(paths.module) and disk.is_there(paths.condarc)


def _digest(path: Path) -> str:
    content = disk.content(path)
    return "" if content is None else sha256_hex(content)
