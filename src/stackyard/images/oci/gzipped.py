"""Compresses a stream with gzip on all cores; the bytes are the same on any number of them.

Blocks are deflated apart, each with the end of the one before as its dictionary, and joined to one member: any program
reads it. The bytes depend on the zlib. Source: RFC 1951 and 1952.
"""

from __future__ import annotations

import hashlib
import zlib
from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import IO

from stackyard.make.job import cores

LEVEL = 6
BLOCK = 1 << 20
_WINDOW = 32 << 10
_HEAD = b"\x1f\x8b\x08\0\0\0\0\0\0\xff"  # without name and time


class GzipReader:
    """The compressed bytes of a stream, to be read once; then `digest` and `size` are those of the stream."""

    def __init__(self, source: IO[bytes]) -> None:
        self._source = source
        self._hash, self._crc, self.size = hashlib.sha256(), 0, 0
        self._parts = self._compressed()

    @property
    def digest(self) -> str:
        """The digest before compression, ``sha256:...``."""
        return f"sha256:{self._hash.hexdigest()}"

    def read(self, _size: int = -1) -> bytes:
        """The next bytes, whatever their number; empty at the end."""
        return next(self._parts, b"")

    def _compressed(self) -> Iterator[bytes]:
        yield _HEAD
        waiting: deque[Future[bytes]] = deque()
        with ThreadPoolExecutor(cores()) as pool:
            for block, before, is_last in self._blocks():
                waiting.append(pool.submit(_deflated, block, before, is_last))
                if len(waiting) > 2 * cores():
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        yield self._crc.to_bytes(4, "little") + (self.size & 0xFFFFFFFF).to_bytes(4, "little")

    def _blocks(self) -> Iterator[tuple[bytes, bytes, bool]]:
        """Each block, the end of the one before, and whether it is the last."""
        before, block = b"", self._next()
        while True:
            after = self._next() if block else b""
            yield block, before, not after
            if not after:
                return
            before, block = block[-_WINDOW:], after

    def _next(self) -> bytes:
        block = self._source.read(BLOCK)
        self._hash.update(block)
        self._crc = zlib.crc32(block, self._crc)
        self.size += len(block)
        return block


def _deflated(block: bytes, before: bytes, is_last: bool) -> bytes:
    deflate = zlib.compressobj(LEVEL, zlib.DEFLATED, -zlib.MAX_WBITS, zdict=before)
    return deflate.compress(block) + deflate.flush(zlib.Z_FINISH if is_last else zlib.Z_SYNC_FLUSH)
