"""The file of a generation's manifest: plain as published, or compressed with gzip once it is old.

Every manifest lists all revisions ever published, so the total size of a long history grows quadratically. A compressed
one has the same content and checksum. During compression both files exist, and the compressed one is complete, so
readers always find one of them.
"""

from __future__ import annotations

import os
from pathlib import Path

from stackyard.host.account import supervised
from stackyard.host.files import at
from stackyard.yard import disk
from stackyard.yard.revision.directories import GenerationPaths
from stackyard.yard.write import atomic, within

_END = 4096
"""Bytes of the text's end that are packed by themselves: a gzip file may have several members (RFC 1952)."""
_MEMBER = b"\x1f\x8b\x08" + bytes(5)
"""How each of them begins: compressed with deflate, without flags or a time, so that the same text is the same file."""


def is_there(manifest: Path) -> bool:
    """Whether a generation has a manifest, given the plain file's path. Raises as `disk.is_there` does."""
    return disk.is_there(manifest) or disk.is_there(_packed(manifest))


def place(manifest: Path) -> Path:
    """The existing file of the manifest; the given path if there is none."""
    packed = _packed(manifest)
    return packed if os.path.lexists(packed) and not os.path.lexists(manifest) else manifest


def text(manifest: Path) -> bytes:
    """The content of a manifest.

    Raises:
        OSError: it cannot be read.
        ValueError: its packed file is damaged.
    """
    try:
        return at.read_regular(manifest)
    except FileNotFoundError:
        packed = disk.content(_packed(manifest))
        if packed is None:
            raise
        return _unpack(packed)


def end(manifest: Path) -> bytes:
    """The last bytes of its content, read without the rest if plain. Raises as `text` does."""
    try:
        return _tail(manifest, _END)
    except FileNotFoundError:
        tail = _tail(_packed(manifest), 2 * _END)
        return _unpack(tail[tail.rfind(_MEMBER) :])


def freed(manifest: Path) -> int:
    """The bytes that compressing it frees. Raises OSError if it cannot be read."""
    data, _ = _plain(manifest)
    return len(data) - len(_pack(data))


def pack(manifest: Path) -> int:
    """Compress it, keeping its mode; returns the bytes freed.

    It keeps its owner. Only root's collection runs as the owner of the yard, who cannot give files away.

    Raises:
        OSError: it is packed already, or belongs to another account, or the disk is full.
    """
    plain, status = _plain(manifest)
    data, top = _pack(plain), _top(manifest)
    keeps = os.geteuid() == 0 or not supervised.is_active()
    owner = (status.st_uid, status.st_gid) if keeps and status.st_uid != os.geteuid() else None
    atomic.write_bytes(_packed(manifest), data, mode=status.st_mode & 0o777, top=top, owner=owner)
    atomic.fault_point("manifest-packed")
    within.unlink(top, manifest)
    return len(plain) - len(data)


def _plain(manifest: Path) -> tuple[bytes, os.stat_result]:
    """The content of an uncompressed one, which must be a file of this generation itself."""
    with within.named(manifest.parent), at.parent(_top(manifest), manifest) as place:
        return at.read_bounded(*place, at.MOST)


def _top(manifest: Path) -> Path:
    """The yard of a manifest."""
    return manifest.parents[2]


def _packed(manifest: Path) -> Path:
    return GenerationPaths(manifest.parent).packed


def _pack(data: bytes) -> bytes:
    import gzip

    return b"".join(gzip.compress(part, mtime=0) for part in (data[:-_END], data[-_END:]))


def _unpack(data: bytes) -> bytes:
    import gzip
    import zlib

    try:
        return gzip.decompress(data)
    except (EOFError, OSError, zlib.error) as error:
        raise ValueError(f"damaged gzip file: {error}") from error


def _tail(file: Path, most: int) -> bytes:
    with at.open_regular(file) as stream:
        stream.seek(max(0, stream.seek(0, os.SEEK_END) - most))
        return stream.read()
