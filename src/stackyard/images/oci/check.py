"""Verifies an image in a layout: the digest of every blob, and of every layer once decompressed."""

from __future__ import annotations

import hashlib
import zlib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from stackyard.images.oci.layout import Descriptor, Image, blob, size_of
from stackyard.images.oci.packed import plain
from stackyard.make.job import cores

_BLOCK = 1 << 20


def problems(directory: Path, image: Image) -> list[str]:
    """Sentences about the damaged blobs of an image; empty: none."""
    with ThreadPoolExecutor(cores()) as pool:
        pairs = [*zip(image.layers, image.diff_ids, strict=True), (image.config, ""), (image.manifest, "")]
        problems_of_blob = pool.map(lambda pair: list(_of_blob(directory, *pair)), pairs)
        return list(dict.fromkeys(sentence for sentences in problems_of_blob for sentence in sentences))


def _of_blob(directory: Path, descriptor: Descriptor, diff_id: str) -> Iterator[str]:
    path = blob(directory, descriptor.digest)
    size = size_of(path)
    if size < 0:
        yield f"{path.name} is missing"
    elif size != descriptor.size:
        yield f"{path.name} is truncated or changed: {size} bytes instead of {descriptor.size}"
    else:
        try:
            packed, unpacked = digests(path, gzipped=descriptor.kind.endswith("gzip"))
            unpacked = _unpacked(path) if diff_id and descriptor.kind.endswith("zstd") else unpacked
        except OSError as error:
            yield f"{path.name} cannot be read: {error.strerror}"
            return
        if packed != descriptor.digest:
            yield f"{path.name} has changed: its bytes do not have its digest"
        elif diff_id and unpacked != diff_id:
            yield f"{path.name} is not the layer {diff_id} of the configuration"


def digests(path: Path, *, gzipped: bool) -> tuple[str, str]:
    """The digests of a file, compressed and decompressed; the latter is empty for damaged data."""
    packed, unpacked = hashlib.sha256(), hashlib.sha256()
    inflate = zlib.decompressobj(31)
    with path.open("rb") as stream:
        while block := stream.read(_BLOCK):
            packed.update(block)
            if not gzipped:
                unpacked.update(block)
                continue
            try:
                inflate = _inflated(inflate, block, unpacked)
            except zlib.error:
                gzipped, unpacked = False, hashlib.sha256(b"damaged")
    return f"sha256:{packed.hexdigest()}", f"sha256:{unpacked.hexdigest()}"


def _unpacked(path: Path) -> str:
    """The digest of a zstd file's decompressed content."""
    digest = hashlib.sha256()
    try:
        with path.open("rb") as raw, plain(raw) as stream:
            while block := stream.read(_BLOCK):
                digest.update(block)
    except EOFError:
        return "damaged"
    return f"sha256:{digest.hexdigest()}"


def _inflated(inflate: zlib._Decompress, block: bytes, into: hashlib._Hash) -> zlib._Decompress:
    """Decompress a block, a piece at a time; a gzip file may have several members."""
    while block:
        into.update(inflate.decompress(block, _BLOCK))
        block = inflate.unconsumed_tail
        if inflate.eof and inflate.unused_data:
            block, inflate = inflate.unused_data, zlib.decompressobj(31)
    return inflate
