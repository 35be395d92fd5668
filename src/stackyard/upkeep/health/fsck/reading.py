"""Reads each file once: hard links of one file are hashed together."""

from __future__ import annotations

import os
import threading
from pathlib import Path

from stackyard.yard.revision.contents import digest_if_readable


class Reader:
    """Hashes files from several threads, and counts them.

    The hash of a file with several hard links is dropped once each link has been requested.
    """

    def __init__(self) -> None:
        self.files = 0
        self.bytes = 0
        self._kept: dict[tuple[int, ...], tuple[str, int]] = {}
        self._lock = threading.Lock()

    def digest(self, path: Path) -> str:
        """sha256 of a file; empty where it cannot be read."""
        try:
            status = os.lstat(path)
        except OSError:
            return ""
        key = (status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns)
        known = self._known(key) if status.st_nlink > 1 else ""
        if known:
            return known
        digest = digest_if_readable(path)
        with self._lock:
            self.files += 1
            self.bytes += status.st_size
            if digest and status.st_nlink > 1:
                self._kept[key] = digest, status.st_nlink - 1
        return digest

    def count(self, path: Path) -> None:
        """Count a file that other code reads."""
        self.files += 1
        self.bytes += path.lstat().st_size

    def _known(self, key: tuple[int, ...]) -> str:
        with self._lock:
            digest, left = self._kept.pop(key, ("", 0))
            if left > 1:
                self._kept[key] = digest, left - 1
        return digest
