"""sha256 of files, directories and downloads: everything in a lock has a hash that was computed or verified here."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable
from pathlib import Path
from typing import IO
from urllib.parse import unquote, urlsplit

from stackyard.errors import StackyardError
from stackyard.host import http
from stackyard.host.command import run, which

LOCK_MARK = "# Written by `stackyard lock`."
"""The first words of every lock."""
_BLOCK = 1 << 20
_SKIPPED = {".git", ".hg", ".svn", "__pycache__", ".venv", "venv", ".tox", ".nox", ".mypy_cache", ".pytest_cache",
            ".ruff_cache", "build", "dist", "node_modules"}  # fmt: skip


def local_path(url: str) -> Path | None:
    """The path of a ``file://`` URL or of a plain absolute path; None for anything remote."""
    if url.startswith("/"):
        return Path(url)
    parts = urlsplit(url)
    return Path(unquote(parts.path)) if parts.scheme == "file" else None


def sha256_file(path: Path) -> str:
    """sha256 of a file's bytes. Raises StackyardError when it cannot be read."""
    digest = hashlib.sha256()
    try:
        with path.open("rb") as stream:
            while block := stream.read(_BLOCK):
                digest.update(block)
    except OSError as error:
        raise StackyardError(f"cannot read {path}: {error.strerror}") from error
    return digest.hexdigest()


def sha256_url(url: str, cafile: str = "") -> tuple[str, int]:
    """sha256 and size in bytes of what a URL gives. Raises StackyardError, with the cause."""
    return digest_url(url, "sha256", cafile)


def digest_url(url: str, algorithm: str, cafile: str = "") -> tuple[str, int]:
    """The digest of what a URL gives, and its size in bytes; a remote one is downloaded once for it.

    Args:
        algorithm: a name that hashlib knows: sha256, sha384, sha512.

    Raises:
        StackyardError: it cannot be read, with the cause.
    """

    def digested(stream: IO[bytes]) -> tuple[str, int]:
        digest, size = hashlib.new(algorithm), 0
        while block := stream.read(_BLOCK):
            digest.update(block)
            size += len(block)
        return digest.hexdigest(), size

    path = local_path(url)
    return http.get(url if path is None else path.as_uri(), digested, timeout_s=60, cafile=cafile)


def tree_files(folder: Path) -> list[Path]:
    """The files of a project that belong to its snapshot, relative and sorted.

    In a git working tree: what git tracks and what it does not ignore. Elsewhere: everything but caches, virtual
    environments and build products. Stackyard's own locks and
    yards never belong to it, since locking would change what is locked.
    """
    if which("git") and _in_git(folder):
        listed = run(
            ["git", "-C", folder, "ls-files", "-z", "--cached", "--others", "--exclude-standard", "."], timeout_s=60
        )
        names = {Path(name) for name in listed.stdout.split("\0") if name}
        yards = {parent for name in names for parent in name.parents[:-1]}
        yards = {parent for parent in yards if _is_yard(folder / parent)}
        there = (name for name in names if (folder / name).is_file() or (folder / name).is_symlink())
        return sorted(n for n in there if yards.isdisjoint(n.parents) and not _is_lock(folder / n))
    return sorted(name for name in _walk(folder) if not _is_lock(folder / name))


def _in_git(folder: Path) -> bool:
    return any((parent / ".git").exists() for parent in (folder.resolve(), *folder.resolve().parents))


def _walk(folder: Path) -> Iterable[Path]:
    for root, folders, files in os.walk(folder):
        folders[:] = [
            n for n in folders if n not in _SKIPPED and not n.endswith(".egg-info") and not _is_yard(Path(root, n))
        ]
        for name in files:
            if not name.endswith(".pyc"):
                yield (Path(root) / name).relative_to(folder)


def _is_lock(path: Path) -> bool:
    """Whether a file is a Stackyard lock; the ``.lock`` of another tool belongs to its project."""
    if path.suffix != ".lock" or path.is_symlink():
        return False
    with path.open("rb") as stream:
        return stream.read(len(LOCK_MARK)) == LOCK_MARK.encode()


def _is_yard(folder: Path) -> bool:
    signs = ("deploy.lease", "cache/uv", "cache/repodata")
    return any((folder / sign).exists() for sign in signs) or (
        (folder / "stacks").is_dir() and (folder / "generations").is_dir()
    )


def sha256_tree(folder: Path) -> str:
    """sha256 of a project's snapshot: names, executable bits and contents of `tree_files`, links as links."""
    digest = hashlib.sha256()
    for name in tree_files(folder):
        path = folder / name
        if path.is_symlink():
            kind, content = "link", hashlib.sha256(str(path.readlink()).encode()).hexdigest()
        else:
            kind, content = ("exec" if os.access(path, os.X_OK) else "file"), sha256_file(path)
        digest.update(f"{kind} {content} {name.as_posix()}\0".encode())
    return digest.hexdigest()
