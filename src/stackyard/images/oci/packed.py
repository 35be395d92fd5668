"""Decompresses the layers of images, whatever their compression."""

from __future__ import annotations

import bz2
import gzip
import lzma
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO

from stackyard.host.files.damage import checked
from stackyard.host.tools import zstd


@contextmanager
def plain(raw: IO[bytes]) -> Iterator[IO[bytes]]:
    """The decompressed stream, by its first bytes. Reading it raises EOFError if it is damaged.

    Raises:
        MissingError: the decompressor is missing.
    """
    magic = raw.read(6)
    raw.seek(0)
    if magic.startswith(b"\x1f\x8b"):
        with gzip.GzipFile(fileobj=raw) as of_gzip:
            yield checked(of_gzip, zlib.error, gzip.BadGzipFile)
    elif magic.startswith(b"BZh"):
        with bz2.BZ2File(raw) as of_bzip2:
            yield checked(of_bzip2, OSError)
    elif magic.startswith(b"\xfd7zXZ\x00"):
        with lzma.LZMAFile(raw) as of_xz:
            yield checked(of_xz, lzma.LZMAError)
    elif magic.startswith(b"\x28\xb5\x2f\xfd"):
        with zstd.unpacking(raw) as unpacked:
            yield unpacked
    else:
        yield raw
