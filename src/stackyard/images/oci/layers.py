"""Distributes files over layers, and writes a layer as a deterministic tar file.

A registry and a node's store keep each layer once. So each large package has its own layer, and small ones share a
fixed number of layers by a hash of their names: a change of one package changes one layer. Whether a package is large
enough depends on its own bytes alone, as long as there are not too many.
"""

from __future__ import annotations

import hashlib
import os
import stat
import tarfile
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, Literal, cast

from stackyard.host.files.hashing import sha256_file
from stackyard.host.tools import zstd
from stackyard.images import room
from stackyard.images.oci.layout import LAYER, LAYER_ZSTD, PACKAGES, TITLE, Descriptor
from stackyard.yard import disk

MOST = 100
"""Layers of an image, those of its base included: overlay file systems of older kernels and engines stop near 127."""
BUCKETS = 16
OWN_LAYER = 1 << 20
"""Bytes from which a package has a layer of its own."""
LEVEL = 6
Compression = Literal["gzip", "zstd"]
"""How a layer is packed: gzip is read everywhere, zstd packs closer and in a tenth of the time."""
ZSTD_LEVEL = 9
_BLOCK = 1 << 20


@dataclass(frozen=True)
class Entry:
    """One file, link or empty directory of the image.

    Attributes:
        name: its path in the image, without the leading slash.
        source: the path of its content; empty for a link.
        target: the target of a link.
    """

    name: str
    source: str = ""
    target: str = ""
    size: int = 0
    mode: int = 0o644
    directory: bool = False


@dataclass(frozen=True)
class Layer:
    """The entries of one layer; `title` describes the content, `packages` has names and versions."""

    title: str
    entries: tuple[Entry, ...]
    packages: tuple[str, ...] = ()

    @property
    def size(self) -> int:
        """Bytes before compression."""
        return sum(entry.size for entry in self.entries)


@dataclass(frozen=True)
class PackedLayer:
    """A packed layer: its descriptor, its digest before compression, and its file; None: the layout has it already."""

    layer: Layer
    descriptor: Descriptor
    diff_id: str
    file: Path | None


def grouped(owned: Mapping[str, Sequence[Entry]], versions: Mapping[str, str], room: int) -> list[Layer]:
    """Distribute packages over layers.

    Args:
        owned: the entries of each package; files without a package are under an empty name.
        versions: the version of each package, for titles.
        room: the maximal number of layers.
    """
    sizes = {name: sum(entry.size for entry in entries) for name, entries in owned.items() if name}
    least, most_own = OWN_LAYER, max(room - BUCKETS - 1, 0)
    while sum(size >= least for size in sizes.values()) > most_own:
        least *= 2
    groups: dict[str, list[str]] = {}
    for name in sorted(owned):
        groups.setdefault(name if not name or sizes[name] >= least else _bucket(name, min(BUCKETS, room)), []).append(
            name
        )
    return [_layer(title, names, owned, versions) for title, names in sorted(groups.items())]


def _bucket(name: str, buckets: int) -> str:
    return f"~small-{zlib.crc32(name.encode()) % buckets:02d}"


def _layer(
    title: str, names: Sequence[str], owned: Mapping[str, Sequence[Entry]], versions: Mapping[str, str]
) -> Layer:
    entries = sorted((entry for name in names for entry in owned[name]), key=lambda entry: entry.name)
    packages = tuple(f"{name} {versions.get(name, '')}".strip() for name in names if name)
    return Layer(title.lstrip("~") or "files of no package", tuple(entries), packages)


def write(layer: Layer, file: Path, compression: Compression = "gzip") -> PackedLayer:
    """Write a layer as a compressed tar file: sorted, owned by root, readable for everybody, times 0.

    Each layer has all directories above its files except the top-level ones, whose permissions are the base's.

    Raises:
        MissingError: zstd is missing.
    """
    with file.open("wb") as raw:
        diff, digest, size = _PACKERS[compression](layer, raw)
    descriptor = Descriptor(_KINDS[compression], f"sha256:{digest}", size, _notes(layer))
    return PackedLayer(layer, descriptor, f"sha256:{diff}", file)


def _gzip(layer: Layer, raw: IO[bytes]) -> tuple[str, str, int]:
    packed = _PackedFile(raw)
    _tar(layer, packed)
    packed.close()
    return packed.diff.hexdigest(), packed.blob.hexdigest(), packed.size


def _zstd(layer: Layer, raw: IO[bytes]) -> tuple[str, str, int]:
    with zstd.packing(raw, ZSTD_LEVEL) as stream:
        hashed = _HashedFile(stream)
        _tar(layer, hashed)
    return hashed.diff.hexdigest(), sha256_file(Path(raw.name)), Path(raw.name).stat().st_size


def known(layer: Layer, there: Mapping[str, Descriptor]) -> PackedLayer | None:
    """The layer as packed before: hashing it takes a tenth of the time of packing.

    Args:
        there: packed layers, by digest before compression.
    """
    if not there:
        return None
    hashed = _HashedFile()
    _tar(layer, hashed)
    diff_id = f"sha256:{hashed.diff.hexdigest()}"
    descriptor = there.get(diff_id)
    return (
        None
        if descriptor is None
        else PackedLayer(layer, replace(descriptor, annotations=_notes(layer)), diff_id, None)
    )


def require_room(work: Path, new: Iterable[Layer], copied: int) -> None:
    """Require room for new layers, and for the bytes of files that are copied as they are.

    Args:
        work: the layout's directory for files that are being written.

    Raises:
        DiskFull: there is less.
    """
    with suppress(OSError):  # it is full
        copied *= not disk.can_reflink(work)
    files = [(entry.source, entry.size) for layer in new for entry in layer.entries if entry.source]
    room.require(work.parent, files, "cannot write the layers", room.gzipped, copied=copied,
                 hint="free some space there, or write to another disk")  # fmt: skip


def _tar(layer: Layer, into: _HashedFile | _PackedFile) -> None:
    with tarfile.open(fileobj=cast(IO[bytes], into), mode="w|", format=tarfile.PAX_FORMAT, bufsize=_BLOCK) as tar:
        for directory in _directories(layer.entries):
            tar.addfile(_header(Entry(directory, mode=0o755, directory=True)))
        for entry in layer.entries:
            _add(tar, entry)


def _notes(layer: Layer) -> dict[str, str]:
    return {TITLE: layer.title, PACKAGES: ", ".join(layer.packages)}


def _directories(entries: Iterable[Entry]) -> list[str]:
    """Every directory with entries, except the top-level ones; an empty one is an entry itself."""
    directories: set[str] = set()
    for entry in entries:
        above = entry.name.rpartition("/")[0]
        while "/" in above and above not in directories:
            directories.add(above)
            above = above.rpartition("/")[0]
    return sorted(directories - {entry.name for entry in entries})


def _header(entry: Entry) -> tarfile.TarInfo:
    info = tarfile.TarInfo(entry.name)
    info.mode = entry.mode
    if entry.directory:
        info.type = tarfile.DIRTYPE
    elif entry.target:
        info.type, info.linkname, info.mode = tarfile.SYMTYPE, entry.target, 0o777
    else:
        info.size = entry.size
    return info


def _add(tar: tarfile.TarFile, entry: Entry) -> None:
    header = _header(entry)
    if not header.isreg():
        tar.addfile(header)
        return
    with Path(entry.source).open("rb") as stream:
        header.size = os.fstat(stream.fileno()).st_size
        tar.addfile(header, stream)


class _HashedFile:
    """A file that is hashed while it is written; without a stream, only the digest is computed."""

    def __init__(self, stream: IO[bytes] | None = None) -> None:
        self.diff, self._stream = hashlib.sha256(), stream

    def write(self, data: bytes) -> int:
        self.diff.update(data)
        if self._stream is not None:
            self._stream.write(data)
        return len(data)


class _PackedFile:
    """A file that is compressed while it is written; counts and hashes both sides."""

    def __init__(self, raw: IO[bytes]) -> None:
        self._raw = raw
        self._deflate = zlib.compressobj(LEVEL, zlib.DEFLATED, 31)  # gzip's header, without name and time
        self.diff, self.blob, self.size = hashlib.sha256(), hashlib.sha256(), 0

    def write(self, data: bytes) -> int:
        self.diff.update(data)
        self._out(self._deflate.compress(data))
        return len(data)

    def close(self) -> None:
        self._out(self._deflate.flush())

    def _out(self, data: bytes) -> None:
        self.blob.update(data)
        self.size += len(data)
        self._raw.write(data)


def mode_of(status: os.stat_result) -> int:
    """The mode of a file in the image: readable for all, and executable for all if its owner may execute it."""
    return 0o755 if stat.S_ISDIR(status.st_mode) or status.st_mode & stat.S_IXUSR else 0o644


def compressor(compression: Compression = "gzip") -> str:
    """The identity of the compressor, on which the compressed bytes depend.

    Raises:
        MissingError: zstd is missing.
    """
    if compression == "zstd":
        return f"zstd {zstd.version()}, level {ZSTD_LEVEL}"
    return f"zlib {zlib.ZLIB_RUNTIME_VERSION}, level {LEVEL}"


_PACKERS: Mapping[Compression, Callable[[Layer, IO[bytes]], tuple[str, str, int]]] = {"gzip": _gzip, "zstd": _zstd}
_KINDS: Mapping[Compression, str] = {"gzip": LAYER, "zstd": LAYER_ZSTD}
