"""Writing an OCI image layout: blobs by their digest, a manifest, an index; `oci.layout` reads them.

Source: the OCI image specification 1.1.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from stackyard.core.errors import InputError, StackyardError, cause
from stackyard.images.bases.model import Layer
from stackyard.images.oci.layout import CONFIG, MANIFEST, MOST_JSON, blob, read

TAR = "application/vnd.oci.image.layer.v1.tar"
EPOCH = "1970-01-01T00:00:00Z"
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
_BLOCK = 1 << 20


@dataclass(frozen=True)
class Blob:
    """A blob of a layout: its digest (``sha256:...``) and its size in bytes."""

    digest: str
    size: int


@dataclass(frozen=True)
class Layout:
    """A directory with ``oci-layout``, ``index.json`` and ``blobs/sha256``."""

    directory: Path

    def path(self, digest: str) -> Path:
        """The path for the blob of this digest.

        Raises:
            StackyardError: it is not a valid sha256; any other text could be a path to elsewhere.
        """
        if not _DIGEST.fullmatch(digest):
            raise StackyardError(
                f"unsupported digest in {self.directory}: {digest:.80}", hint="only sha256 is supported"
            )
        return blob(self.directory, digest)

    def add(self, stream: IO[bytes], *, expected: str = "", size: int = -1) -> Blob:
        """Copy a stream to a blob, which is renamed to its digest once it is complete.

        Args:
            expected, size: its digest and its size, if known; at most one byte more is read.

        Raises:
            StackyardError: they differ.
        """
        directory = self.directory / "blobs" / "sha256"
        directory.mkdir(parents=True, exist_ok=True)
        path = directory / ".new"
        try:
            with path.open("wb") as target:
                copied_blob = _copy(stream, target, size)
            _compare(copied_blob, expected, size)
            path.replace(self.path(copied_blob.digest))
        finally:
            path.unlink(missing_ok=True)
        return copied_blob

    def add_json(self, value: Mapping[str, Any]) -> Blob:
        """Add a manifest or a configuration, serialised deterministically."""
        return self.add_bytes(_serialised(value))

    def add_bytes(self, data: bytes) -> Blob:
        """Add a blob from memory."""
        path = self.path("sha256:" + hashlib.sha256(data).hexdigest())
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
        return Blob(f"sha256:{path.name}", len(data))

    def read_json(self, digest: str) -> dict[str, Any]:
        """A manifest or a configuration, verified against its digest.

        Raises:
            StackyardError: it cannot be read, or differs.
        """
        return parsed(read(self.directory, digest), str(self.path(digest)))

    def finish(self, manifest: Blob, tag: str) -> None:
        """Write the index, with the one image of this layout."""
        entry = {
            "mediaType": MANIFEST, "digest": manifest.digest, "size": manifest.size,
            "annotations": {"org.opencontainers.image.ref.name": tag},
        }  # fmt: skip
        index = {"schemaVersion": 2, "manifests": [entry]}
        (self.directory / "index.json").write_text(json.dumps(index, sort_keys=True), encoding="utf-8")
        (self.directory / "oci-layout").write_text('{"imageLayoutVersion":"1.0.0"}', encoding="utf-8")

    def sync(self) -> None:
        """Flush the layout to disk."""
        for path in (self.directory / "index.json", *(self.directory / "blobs" / "sha256").iterdir()):
            handle = os.open(path, os.O_RDONLY)
            with suppress(OSError):
                os.fsync(handle)
            os.close(handle)


def digest_of(value: Mapping[str, Any]) -> str:
    """The digest of a manifest or a configuration, as `Layout.add_json` writes it."""
    return "sha256:" + hashlib.sha256(_serialised(value)).hexdigest()


def _serialised(value: Mapping[str, Any]) -> bytes:
    return json.dumps(value, sort_keys=True, separators=(",", ":")).encode()


def manifest_of(config: Blob, layers: Sequence[Layer]) -> dict[str, Any]:
    """The manifest for a configuration and its layers."""
    return {
        "schemaVersion": 2,
        "mediaType": MANIFEST,
        "config": {"mediaType": CONFIG, "digest": config.digest, "size": config.size},
        "layers": [{"mediaType": layer.media_type, "digest": layer.digest, "size": layer.size} for layer in layers],
    }


def read_small(path: Path) -> bytes:
    """The content of a file no larger than a manifest may be.

    Raises:
        InputError: it cannot be read, or is larger.
    """
    try:
        with path.open("rb") as stream:
            data = stream.read(MOST_JSON + 1)
    except OSError as error:
        raise InputError(f"cannot read {path}: {cause(error)}") from error
    if len(data) > MOST_JSON:
        raise InputError(f"{path} is too large for a manifest: more than {MOST_JSON >> 20} MiB")
    return data


def parsed(data: bytes, origin: str) -> dict[str, Any]:
    """The values of a JSON object. Raises InputError if it is not one."""
    try:
        value = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise InputError(f"cannot read {origin}: {str(error) or 'nested too deep'}") from error
    if not isinstance(value, dict):
        raise InputError(f"cannot read {origin}: not an object with keys")
    return value


def _copy(stream: IO[bytes], target: IO[bytes], size: int) -> Blob:
    digest, length = hashlib.sha256(), 0
    while block := stream.read(_BLOCK if size < 0 else min(_BLOCK, size + 1 - length)):
        digest.update(block)
        target.write(block)
        length += len(block)
    return Blob(f"sha256:{digest.hexdigest()}", length)


def _compare(copied: Blob, expected: str, size: int) -> None:
    if 0 <= size != copied.size:
        found_size = f"more than {size}" if copied.size > size else str(copied.size)
        message = f"wrong size: {expected or 'a blob'} has {found_size} bytes, expected {size}"
        raise StackyardError(message, hint="it is truncated or damaged: copy it again")
    if expected not in ("", copied.digest):
        raise StackyardError(
            f"wrong digest: expected {expected}, found {copied.digest}", hint="it is damaged, or not what you expect"
        )
