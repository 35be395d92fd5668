"""Reads and writes the Singularity Image Format without Apptainer, deterministically.

A file is a header, a table of descriptors, and the data they name. All numbers are little-endian, nothing is padded.
Source: github.com/apptainer/sif, pkg/sif/sif.go; `siftool header` and `siftool list` of other makers show the same.
"""

from __future__ import annotations

import hashlib
import json
import os
import struct
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from stackyard.core.errors import InputError, StackyardError, cause
from stackyard.host.files import at

ARCHITECTURES = {"amd64": b"02", "arm64": b"04", "ppc64le": b"06", "s390x": b"11", "riscv64": b"12"}
"""The names of OCI images and the numbers of SIF."""
DEFINITION, LABELS, PARTITION, SIGNATURE, JSON = 0x4001, 0x4003, 0x4004, 0x4005, 0x4006
KINDS = {
    DEFINITION: "definition", LABELS: "labels", PARTITION: "partition", SIGNATURE: "signature", JSON: "JSON",
}  # fmt: skip
SYSTEM, DATA, OVERLAY = 2, 3, 4
PARTS = {1: "system", SYSTEM: "primary system", DATA: "data", OVERLAY: "overlay"}
INSPECT = "inspect-metadata.json"
"""The name of the descriptor that `apptainer inspect` reads."""

HEAD = 128
"""The bytes by which a SIF file is known."""
_LAUNCH, _MAGIC, _VERSION = b"#!/usr/bin/env run-singularity\n", b"SIF_MAGIC", b"01"
_HEADER = struct.Struct("<32s10s3s3s16sqqqqqqqq")
_DESCRIPTOR = struct.Struct("<i?IIIqqqqqqq128s384s")
_PART = struct.Struct("<ii3s")
_SQUASHFS = 1
_TABLE, _SLOTS, _ALIGN, _GROUP = 4096, 48, 4096, 0xF0000000
_MOST_SLOTS = 1 << 16
_BLOCK = 4 << 20
_AGAIN = "copy or build it again"


@dataclass(frozen=True)
class Part:
    """One descriptor: kind, name, position of its data, and for a partition its type."""

    kind: int
    name: str
    offset: int
    size: int
    part: int = 0
    architecture: str = ""

    @property
    def title(self) -> str:
        """A readable title: ``overlay partition``, ``labels``."""
        if self.kind == PARTITION:
            return f"{PARTS.get(self.part, str(self.part))} partition"
        return KINDS.get(self.kind, hex(self.kind))


@dataclass(frozen=True)
class Sif:
    """A SIF file: its UUID and its parts."""

    file: Path
    uuid: str
    parts: tuple[Part, ...]

    def find(self, kind: int, name: str = "") -> Part | None:
        """The first part of a kind, and of this name if one is given."""
        return next((part for part in self.parts if part.kind == kind and name in ("", part.name)), None)

    def partition(self, part: int) -> Part | None:
        """The first partition of this kind."""
        return next(iter(self.partitions(part)), None)

    def partitions(self, part: int) -> list[Part]:
        """The partitions of this kind."""
        return [partition for partition in self.parts if (partition.kind, partition.part) == (PARTITION, part)]

    def layers(self) -> list[Part]:
        """The partitions that a container joins, the lowest first: the system, and its overlays."""
        return [*self.partitions(SYSTEM)[:1], *self.partitions(OVERLAY)]

    @property
    def signatures(self) -> list[Part]:
        """The signatures, which nothing here verifies."""
        return [part for part in self.parts if part.kind == SIGNATURE]

    def labels(self) -> dict[str, str]:
        """The labels that `apptainer inspect` shows; empty if the file has none."""
        part = self.find(JSON, INSPECT)
        try:
            value = json.loads(self.read(part)) if part else {}
            return {str(key): str(text) for key, text in value["data"]["attributes"]["labels"].items()}
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            return {}

    def read(self, part: Part, most: int = 16 << 20) -> bytes:
        """The data of a small part."""
        with at.open_regular(self.file) as stream:
            stream.seek(part.offset)
            return stream.read(min(part.size, most))

    def sha256(self, part: Part) -> str:
        """The hash of a part's data."""
        digest, left = hashlib.sha256(), part.size
        with at.open_regular(self.file) as stream:
            stream.seek(part.offset)
            while left and (block := stream.read(min(_BLOCK, left))):
                digest.update(block)
                left -= len(block)
        return digest.hexdigest()


def is_one(head: bytes) -> bool:
    """Whether a file with this beginning is a SIF file."""
    return head[32:41] == _MAGIC


def read(file: Path) -> Sif:
    """The parts of a SIF file.

    Raises:
        InputError: it cannot be read, or is not a SIF.
        StackyardError: it is truncated or damaged.
    """
    try:
        with at.open_regular(file) as stream:
            size = os.fstat(stream.fileno()).st_size
            head = stream.read(_HEADER.size)
            if not is_one(head) or len(head) < _HEADER.size:
                raise InputError(f"{file} is not a SIF image", hint="it may be truncated or of another format")
            _, _, _, _, unique, _, _, _, slots, table, _, _, _ = _HEADER.unpack(head)
            if not (0 <= slots <= _MOST_SLOTS and 0 <= table <= size):
                raise StackyardError(f"{file} is damaged: impossible table of descriptors", hint=_AGAIN)
            stream.seek(table)
            table = stream.read(slots * _DESCRIPTOR.size)
    except OSError as error:
        raise InputError(f"cannot read {file}: {cause(error)}") from error
    # every part must lie within the file: a download that stopped has an intact header
    step = _DESCRIPTOR.size
    parts = (_part(table[n : n + step]) for n in range(0, len(table) - step + 1, step))
    present = tuple(part for part in parts if part is not None)
    for part in present:
        end = part.offset + part.size
        if part.offset < 0 or part.size < 0 or end > size:
            raise StackyardError(f"{file} is truncated: its {part.title} ends at {end} of {size} bytes", hint=_AGAIN)
    return Sif(file, str(uuid.UUID(bytes=unique)), present)


def _part(data: bytes) -> Part | None:
    kind, used, _, _, _, offset, size, _, _, _, _, _, name, extra = _DESCRIPTOR.unpack(data)
    if not used:
        return None
    text = name.split(b"\0")[0].decode("utf-8", "replace")
    if kind != PARTITION:
        return Part(kind, text, offset, size)
    _, part, code = _PART.unpack(extra[: _PART.size])
    architecture = next((key for key, number in ARCHITECTURES.items() if number == code[:2]), "")
    return Part(kind, text, offset, size, part, architecture)


@dataclass(frozen=True)
class PartSource:
    """The input of a part: bytes, or a file with its hash, which is verified while it is copied.

    Attributes:
        part: the type of a partition: `SYSTEM`, `DATA` or `OVERLAY`.
    """

    kind: int
    name: str
    data: bytes | Path
    part: int = 0
    sha256: str = ""


def write(file: Path, architecture: str, sources: Sequence[PartSource]) -> Sif:
    """Write a new SIF file, deterministically.

    Args:
        architecture: OCI's name.

    Raises:
        StackyardError: a part's hash differs.
        OSError: it cannot be written.
    """
    code, digest = ARCHITECTURES[architecture], hashlib.sha256()
    at = start = _up(_TABLE + _SLOTS * _DESCRIPTOR.size)
    table = b""
    with file.open("xb") as stream:
        for number, source in enumerate(sources, 1):
            offset = _up(at) if source.kind == PARTITION else at
            stream.seek(offset)
            size, sha256 = _copy(source, stream)
            digest.update(sha256)
            table += _descriptor(source, number, offset, size, offset - at + size, code)
            at = offset + size
        unique = uuid.UUID(bytes=hashlib.sha256(digest.digest() + table).digest()[:16], version=5)
        stream.seek(0)
        stream.write(_HEADER.pack(
            _LAUNCH, _MAGIC, _VERSION, code, unique.bytes, 0, 0, _SLOTS - len(sources), _SLOTS, _TABLE,
            _SLOTS * _DESCRIPTOR.size, start, at - start,
        ))  # fmt: skip
        stream.seek(_TABLE)
        stream.write(table)
        stream.flush()
        os.fsync(stream.fileno())
    return read(file)


def _copy(part_source: PartSource, stream: IO[bytes]) -> tuple[int, bytes]:
    """Write the data of a part; returns its size and sha256."""
    if isinstance(part_source.data, bytes):
        stream.write(part_source.data)
        return len(part_source.data), hashlib.sha256(part_source.data).digest()
    digest, size = hashlib.sha256(), 0
    with at.open_regular(part_source.data) as source:
        while block := source.read(_BLOCK):
            digest.update(block)
            stream.write(block)
            size += len(block)
    if part_source.sha256 not in ("", digest.hexdigest()):
        message = f"{part_source.data} has changed: its hash is not the one in the record"
        raise StackyardError(message, hint="see `stackyard image check`")
    return size, digest.digest()


def _descriptor(source: PartSource, number: int, offset: int, size: int, padded: int, code: bytes) -> bytes:
    extra = _PART.pack(_SQUASHFS, source.part, code + b"\0") if source.kind == PARTITION else b""
    return _DESCRIPTOR.pack(source.kind, True, number, _GROUP | 1, 0, offset, size, padded, 0, 0, 0, 0,
                            source.name.encode()[:127], extra)  # fmt: skip


def _up(number: int) -> int:
    return -(-number // _ALIGN) * _ALIGN
