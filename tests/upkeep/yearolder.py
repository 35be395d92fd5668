"""Files of a yard as an earlier version of Stackyard wrote them: `stackyard.yard.formats` reads them for ever."""

from __future__ import annotations

import gzip
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from stackyard.yard import checksum
from stackyard.yard.write import atomic


def as_an_older_version_wrote_them(yard: Path) -> None:
    """Rewrite what says nothing that an earlier format could not: records, their copies, manifests and reports."""
    for path, value in _found(yard, "stacks/*/*/record*.json", 7):
        if value["base"] is None and value["adopted"] is None and value["form"]["kind"] == "prefix":
            _write(path, {**_without(value, "base", "adopted"), "format": 4, "form": "prefix"})
    for packed in yard.glob("generations/*/manifest.json.gz"):
        _unpack(packed)
    for path, value in _found(yard, "generations/*/manifest.json", 4):
        if not any(e["pinned"] or e["retired"] or e["successor"] or e["state"] == "removed" for e in value["entries"]):
            entries = [_without(e, "pinned", "retired", "successor") for e in value["entries"]]
            _write(path, {**value, "format": 3, "entries": entries})
    for path, value in _found(yard, "stacks/*/*/report.json", 3):
        _write(path, {**_without(value, "check_hash"), "format": 2})


def _unpack(packed: Path) -> None:
    """An earlier version packed none."""
    status, path = packed.stat(), packed.with_suffix("")
    path.write_bytes(gzip.decompress(packed.read_bytes()))
    path.chmod(status.st_mode & 0o777)
    os.chown(path, status.st_uid, status.st_gid)
    packed.unlink()


def _found(yard: Path, pattern: str, version: int) -> Iterator[tuple[Path, dict[str, Any]]]:
    for path in sorted(yard.glob(pattern)):
        value = json.loads(checksum.remove(path.read_text())[0])
        value.pop("checksum", None)
        if value["format"] == version:
            yield path, value


def _without(value: dict[str, Any], *keys: str) -> dict[str, Any]:
    return {key: item for key, item in value.items() if key not in keys}


def _write(path: Path, value: dict[str, Any]) -> None:
    """In place of the present file, with its owner and its mode."""
    status = path.stat()
    atomic.write_json(path, value, checked=True, mode=status.st_mode & 0o777, synced=False)
    os.chown(path, status.st_uid, status.st_gid)
