"""A full re-hash of a yard's caches: does everything still hold the bytes that were put there?"""

from __future__ import annotations

import base64
import csv
import hashlib
import json
import time
from collections.abc import Iterator
from pathlib import Path

from stackyard.host.hashing import sha256_file
from stackyard.yard.layout import Yard


def audit(yard: Yard) -> list[str]:
    """What is wrong with this yard's caches, one sentence each; empty when all is well. Reads every byte."""
    parts = (_conda, _sources, _wheels, _bytecode, _uv)
    return [problem for part in parts for problem in part(yard.cache)]


def _conda(cache: Path) -> Iterator[str]:
    """Unpacked packages against their own ``info/paths.json``. A folder whose name starts with a dot is unfinished."""
    for listing in sorted(cache.glob("conda/[!.]*/info/paths.json")):
        folder = listing.parent.parent
        for entry in json.loads(listing.read_text(encoding="utf-8"))["paths"]:
            path, expected = folder / entry["_path"], entry.get("sha256")
            if not path.is_symlink() and not path.exists():
                yield f"{path} is missing"
            elif expected and path.is_file() and not path.is_symlink() and sha256_file(path) != expected:
                yield f"{path} has changed"


def _sources(cache: Path) -> Iterator[str]:
    for path in sorted(cache.glob("sources/*/[!.]*")):
        if sha256_file(path) != path.parent.name:
            yield f"{path} has changed"


def _wheels(cache: Path) -> Iterator[str]:
    for meta in sorted(cache.glob("wheels/??/[!.]*/meta.json")):
        value = json.loads(meta.read_text(encoding="utf-8"))
        wheel = meta.parent / value["wheel"]
        if not wheel.is_file() or sha256_file(wheel) != value["sha256"]:
            yield f"{wheel} has changed"


def _bytecode(cache: Path) -> Iterator[str]:
    from stackyard.build.bytecode import content_hash

    for index in sorted(cache.glob("bytecode/*/??/[!.]*/files.json")):
        value = json.loads(index.read_text(encoding="utf-8"))
        if content_hash(index.parent, value["files"]) != value["content"]:
            yield f"{index.parent} has changed"


def _uv(cache: Path) -> Iterator[str]:
    """Unpacked wheels against their RECORD."""
    for record in sorted(cache.glob("uv/archive-v*/[!.]*/*.dist-info/RECORD")):
        with record.open(encoding="utf-8", newline="") as stream:
            rows = [row for row in csv.reader(stream) if len(row) > 1 and row[1].startswith("sha256=")]
        for name, expected, *_ in rows:
            path = record.parent.parent / name
            found = hashlib.sha256(path.read_bytes()).digest() if path.is_file() else b""
            if base64.urlsafe_b64encode(found).rstrip(b"=").decode() != expected.removeprefix("sha256="):
                yield f"{path} has changed"


def unfinished(yard: Yard, older_than_s: float = 86400) -> list[Path]:
    """What killed builds left in this yard's caches under temporary names: safe to remove while nobody builds.

    Args:
        older_than_s: seconds since it was last changed; what is younger may belong to a build that is running.
    """
    patterns = ("conda/.*", "sources/*/.*", "wheels/.*", "wheels/??/.*", "bytecode/*/??/.*", "uv/archive-v*/.*")
    latest = time.time() - older_than_s
    found = (path for pattern in patterns for path in yard.cache.glob(pattern) if path.name != ".cache.lock")
    return sorted(path for path in found if path.lstat().st_mtime <= latest)
