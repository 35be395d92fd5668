"""Writes conda packages: ``.tar.bz2``, and ``.conda`` with stored (uncompressed) zstd frames.

Both formats are the real ones. The zstd frames hold raw blocks only, which every decoder reads and which cost no
time to make: a 60 MB package is written in well under a second.
"""

from __future__ import annotations

import bz2
import io
import json
import tarfile
import zipfile
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

BLOCK_BYTES = 128 * 1024
ZSTD_MAGIC = 0xFD2FB528.to_bytes(4, "little")
WINDOW_1_MIB = bytes([0x00, 0x50])  # frame header: no sizes, no checksum; window of 2**20 bytes (RFC 8878, 3.1.1.1)
RAW_BLOCK = 0


class Member(NamedTuple):
    """One entry of a package: a file with its content, or a symbolic link with its target."""

    path: str
    content: bytes
    mode: int
    link: str = ""


def stored_zstd(data: bytes) -> bytes:
    """`data` as a valid zstd frame of raw blocks (RFC 8878, section 3.1.1.2)."""
    blocks = [data[start : start + BLOCK_BYTES] for start in range(0, len(data), BLOCK_BYTES)] or [b""]
    parts = [ZSTD_MAGIC, WINDOW_1_MIB]
    for number, block in enumerate(blocks, 1):
        last = number == len(blocks)
        parts += [(last | RAW_BLOCK << 1 | len(block) << 3).to_bytes(3, "little"), block]
    return b"".join(parts)


def tar_bytes(members: Iterable[Member], mtime: int) -> bytes:
    """A tar archive of the members in their order; the same members always give the same bytes."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.GNU_FORMAT) as archive:
        for member in members:
            entry = tarfile.TarInfo(member.path)
            entry.mode, entry.mtime = member.mode, mtime
            if member.link:
                entry.type, entry.linkname = tarfile.SYMTYPE, member.link
                archive.addfile(entry)
            else:
                entry.size = len(member.content)
                archive.addfile(entry, io.BytesIO(member.content))
    return buffer.getvalue()


def write_tar_bz2(path: Path, info: list[Member], payload: list[Member], mtime: int) -> None:
    """Write the older format: one bzip2 archive, metadata first."""
    path.write_bytes(bz2.compress(tar_bytes([*info, *payload], mtime), 1))


def write_conda(path: Path, info: list[Member], payload: list[Member], mtime: int) -> None:
    """Write the newer format: a zip that stores two zstd archives, ``info-*`` and ``pkg-*``."""
    stem = path.name.removesuffix(".conda")
    inner = {
        "metadata.json": json.dumps({"conda_pkg_format_version": 2}).encode(),
        f"pkg-{stem}.tar.zst": stored_zstd(tar_bytes(payload, mtime)),
        f"info-{stem}.tar.zst": stored_zstd(tar_bytes(info, mtime)),
    }
    with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as archive:
        for name, data in inner.items():
            archive.writestr(zipfile.ZipInfo(name), data)


WRITERS = {".tar.bz2": write_tar_bz2, ".conda": write_conda}
