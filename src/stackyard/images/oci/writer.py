"""Writes into a layout: blobs by digest, then the index, so that a kill does not affect existing images.

Blobs are made in a directory ``.writing-...`` of the layout, which its process locks (flock(2)): the next writer
removes unlocked ones. Concurrent writers share common blobs; each replaces the index, which it has read under the lock
of the layout, with one entry more.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import shutil
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from stackyard.core.errors import InputError, StackyardError
from stackyard.host.files import at, filelocks, space
from stackyard.images.oci.layout import INDEX, NAME, Descriptor, blob, index, size_of
from stackyard.yard.write.atomic import fault_point, write_text

_WRITING = ".writing-"
_LOCK = ".lock"
LOCK_LIMIT_S = 60.0
_POLL_S = 0.05


@dataclass(frozen=True)
class Writer:
    """A layout being written, and the directory for new blobs."""

    directory: Path
    work: Path

    def add_file(self, path: Path, digest: str) -> None:
        """Move a finished file of `work` to its digest, unless the layout has that blob."""
        target = blob(self.directory, digest)
        if size_of(target) == path.stat().st_size:
            path.unlink()
            return
        with path.open("rb") as stream:
            os.fsync(stream.fileno())
        path.chmod(0o644)
        fault_point("blob")
        os.replace(path, target)

    def add_json(self, kind: str, value: Mapping[str, Any], annotations: Mapping[str, str] | None = None) -> Descriptor:
        """Add a value as a blob, serialised deterministically."""
        return self.add_bytes(kind, json.dumps(value, sort_keys=True, separators=(",", ":")).encode(), annotations)

    def add_bytes(self, kind: str, data: bytes, annotations: Mapping[str, str] | None = None) -> Descriptor:
        """Add bytes as a blob."""
        digest = f"sha256:{hashlib.sha256(data).hexdigest()}"
        path = self.work / digest.removeprefix("sha256:")
        path.write_bytes(data)
        self.add_file(path, digest)
        return Descriptor(kind, digest, len(data), annotations or {})

    def publish(self, name: str, manifest: Descriptor) -> None:
        """Add the image to the index under its name, replacing a former image of that name."""
        named = replace(manifest, annotations={**manifest.annotations, NAME: name})
        fault_point("index")
        with _locked(self.directory):
            others = [descriptor for descriptor in index(self.directory) if descriptor.annotations.get(NAME) != name]
            _write_index(self.directory, [*others, named])


@contextmanager
def writer(directory: Path) -> Iterator[Writer]:
    """Open a layout for writing; it is created if needed.

    Raises:
        InputError: the directory is not a layout.
        StackyardError: it cannot be written to, or its file system is full.
    """
    work = None
    try:
        _prepare(directory)
        _remove_left(directory)
        work = Path(tempfile.mkdtemp(prefix=_WRITING, dir=directory))
        with at.closing(_hold(work)):
            yield Writer(directory, work)
    except OSError as error:
        hint = "free some space there, or name another directory" if space.is_full(error) else None
        raise StackyardError(
            f"cannot write {directory}: {(error.strerror or str(error)).lower()}", hint=hint
        ) from error
    finally:
        if work is not None:
            shutil.rmtree(work, ignore_errors=True)


def _prepare(directory: Path) -> None:
    """Create an empty layout; the file ``oci-layout``, which marks it, is written last."""
    mark = directory / "oci-layout"
    if mark.exists():
        return
    there = {path.name for path in directory.iterdir()} if directory.is_dir() else set()
    strange = sorted(name for name in there - {"blobs", "index.json", _LOCK} if not name.startswith((_WRITING, ".")))
    if strange:
        raise InputError(f"{directory} is not an OCI image layout, and not empty: it has {strange[0]}",
                         hint="name a directory that does not exist yet, or a layout")  # fmt: skip
    (directory / "blobs" / "sha256").mkdir(parents=True, exist_ok=True)
    with _locked(directory):
        if not (directory / "index.json").exists():
            _write_index(directory, [])
        write_text(mark, '{"imageLayoutVersion": "1.0.0"}\n', mode=0o644)


def _write_index(directory: Path, entries: list[Descriptor]) -> None:
    value = {"schemaVersion": 2, "mediaType": INDEX, "manifests": [entry.to_json() for entry in entries]}
    write_text(directory / "index.json", json.dumps(value, indent=2, sort_keys=True) + "\n", mode=0o644)


# --------------------------------------------------------------------------- locks


@contextmanager
def _locked(directory: Path) -> Iterator[None]:
    lock = os.open(directory / _LOCK, os.O_RDWR | os.O_CREAT, 0o666)  # as the umask of those who share it says
    with at.closing(lock):
        _wait(lock, directory)
        yield


def _wait(handle: int, directory: Path) -> None:
    until = time.monotonic() + LOCK_LIMIT_S
    while not filelocks.take(handle, fcntl.LOCK_EX):
        if time.monotonic() > until:
            raise StackyardError(f"timed out after {LOCK_LIMIT_S:g} s waiting for {directory / _LOCK}: "
                                 "another process writes this layout", hint="try again once it has ended")  # fmt: skip
        time.sleep(_POLL_S)


def _hold(directory: Path) -> int:
    handle = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    filelocks.take(handle, fcntl.LOCK_EX)
    return handle


def _remove_left(directory: Path) -> None:
    """Remove leftovers of killed processes."""
    for left in directory.glob(f"{_WRITING}*"):
        flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW
        with suppress(OSError), at.closing(os.open(left, flags)) as handle:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(left, ignore_errors=True)
