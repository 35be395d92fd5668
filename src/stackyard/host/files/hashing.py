"""sha256 of files, directories and downloads."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import IO, Any, BinaryIO
from urllib.parse import unquote, urlsplit

from stackyard.core.digest import sha256_hex
from stackyard.core.errors import StackyardError
from stackyard.host.files import at
from stackyard.host.net.trust import PLAIN, Trust

_BLOCK = 1 << 20


def local_path(url: str) -> Path | None:
    """The path of a ``file://`` URL or of a plain absolute path; None for anything remote."""
    if url.startswith("/"):
        return Path(url)
    parts = urlsplit(url)
    return Path(unquote(parts.path)) if parts.scheme == "file" else None


def sha256_file(path: Path) -> str:
    """sha256 of a file's bytes. Raises StackyardError when it cannot be read."""
    try:
        with at.open_regular(path) as stream:
            return sha256_stream(stream)
    except OSError as error:
        raise StackyardError(f"cannot read {path}: {error.strerror}") from error


def sha256_stream(stream: BinaryIO) -> str:
    """sha256 of the rest of an open file."""
    import hashlib  # late: with it OpenSSL

    digest = hashlib.sha256()
    while block := stream.read(_BLOCK):
        digest.update(block)
    return digest.hexdigest()


def urlsafe(digest: bytes) -> str:
    """A digest as a wheel's RECORD has it (PEP 427): base64 for URLs, without padding."""
    return base64.urlsafe_b64encode(digest).rstrip(b"=").decode()


def sha256_text(text: str) -> str:
    """sha256 of a text's UTF-8 bytes."""
    return sha256_hex(text.encode())


def sha256_values(values: Mapping[str, Any]) -> str:
    """sha256 of plain values, independent of the order of keys."""
    return sha256_text(json.dumps(values, sort_keys=True, separators=(",", ":")))


def sha256_once(path: Path) -> str:
    """sha256 of a file, cached by inode, size and time."""
    try:
        status = path.stat()
    except OSError as error:
        raise StackyardError(f"cannot read {path}: {error.strerror}") from error
    return _sha256_of(path, status.st_ino, status.st_size, status.st_mtime_ns)


@lru_cache(maxsize=4096)
def _sha256_of(path: Path, _inode: int, _size: int, _mtime_ns: int) -> str:
    return sha256_file(path)


def digest_url(url: str, algorithm: str = "sha256", trust: Trust = PLAIN) -> tuple[str, int]:
    """The digest of a URL's content, and its size in bytes; a remote one is downloaded for this.

    Args:
        algorithm: a name that hashlib knows: sha256, sha384, sha512.

    Raises:
        StackyardError: it cannot be read, with the cause.
    """

    import hashlib

    from stackyard.host.net import http  # with it ssl, which the commands that only read a yard do not need

    def digested(stream: IO[bytes]) -> tuple[str, int]:
        digest, size = hashlib.new(algorithm), 0
        while block := stream.read(_BLOCK):
            digest.update(block)
            size += len(block)
        return digest.hexdigest(), size

    path = local_path(url)
    return http.get(url if path is None else path.as_uri(), digested, timeout_s=60, trust=trust)
