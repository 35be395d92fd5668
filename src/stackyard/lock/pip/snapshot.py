"""The snapshot of a local project: its files, and one hash over them."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Iterator
from pathlib import Path

from stackyard.core.errors import InputError
from stackyard.host.files.hashing import sha256_file
from stackyard.host.run.command import run, which
from stackyard.lock.lockfile.model import LOCK_MARK
from stackyard.yard.layout import is_yard

_SKIPPED = {".git", ".hg", ".svn", "__pycache__", ".venv", "venv", ".tox", ".nox", ".mypy_cache", ".pytest_cache",
            ".ruff_cache", "build", "dist", "node_modules"}  # fmt: skip


def tree_files(directory: Path) -> list[Path]:
    """The files of a project that belong to its snapshot, relative and sorted.

    In a git working tree these are the files that git tracks or does not ignore, those of submodules included;
    elsewhere all files except caches, virtual environments and build products. Lock files of this program and yards are
    left out: otherwise locking would change what is locked.

    Raises:
        InputError: a submodule is not checked out.
    """
    above = (directory.resolve(), *directory.resolve().parents)
    if which("git") and any((parent / ".git").exists() for parent in above):
        names = set(_tracked(directory))
        yards = {parent for name in names for parent in name.parents[:-1]}
        yards = {parent for parent in yards if is_yard(directory / parent)}
        there = (name for name in names if (directory / name).is_file() or (directory / name).is_symlink())
        return sorted(n for n in there if yards.isdisjoint(n.parents) and not _is_lock(directory / n))
    return sorted(name for name in _walk(directory) if not _is_lock(directory / name))


def _tracked(directory: Path) -> Iterator[Path]:
    """The files of a git working tree, relative, and those of the repositories inside it, as submodules are."""
    argv = ["git", "-C", str(directory), "ls-files", "-z", "--cached", "--others", "--exclude-standard", "."]
    for text in run(argv, timeout_s=60).stdout.split("\0"):
        name = Path(text)
        if not text or (directory / name).is_symlink() or not (directory / name).is_dir():
            yield from [name] if text else []
        elif (directory / name / ".git").exists():
            yield from (name / inner for inner in _tracked(directory / name))
        else:
            hint = f"git -C {directory} submodule update --init --recursive"
            raise InputError(f"the submodule {name} of {directory} is not checked out", hint=hint)


def sha256_tree(directory: Path) -> str:
    """sha256 of a project's snapshot: names, executable bits and contents of `tree_files`, symlinks by their target."""
    return sha256_files(directory, tree_files(directory))


def sha256_files(directory: Path, names: Iterable[Path]) -> str:
    """The hash of these files, for a copy of a snapshot."""
    digest = hashlib.sha256()
    for name in names:
        path = directory / name
        if path.is_symlink():
            kind, content = "link", hashlib.sha256(str(path.readlink()).encode()).hexdigest()
        else:
            kind, content = ("exec" if os.access(path, os.X_OK) else "file"), sha256_file(path)
        digest.update(f"{kind} {content} {name.as_posix()}\0".encode())
    return digest.hexdigest()


def _walk(directory: Path) -> Iterable[Path]:
    for root, directories, files in os.walk(directory):
        directories[:] = [
            n for n in directories if n not in _SKIPPED and not n.endswith(".egg-info") and not is_yard(Path(root, n))
        ]
        for name in files:
            if not name.endswith(".pyc"):
                yield (Path(root) / name).relative_to(directory)


def _is_lock(path: Path) -> bool:
    """Whether a file is a lock of this program; a ``.lock`` of another tool is part of the project."""
    if path.suffix != ".lock" or path.is_symlink():
        return False
    with path.open("rb") as stream:
        return stream.read(len(LOCK_MARK)) == LOCK_MARK.encode()
