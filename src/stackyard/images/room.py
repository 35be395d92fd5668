"""Whether a disk has room for what is to be packed, asked before it is packed.

Where the files would fit as they are, nothing more is looked at. Else a sample of them is packed, and the size
estimated from that. The estimate may be a fifth too large, so only a disk that lacks more is refused; of a quota that
statvfs(2) does not show nothing is known before it is used up.
"""

from __future__ import annotations

import os
import stat
import zlib
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import accumulate
from pathlib import Path

from stackyard.host.files import at
from stackyard.yard import disk
from stackyard.yard.revision import contents

BLOCK, BLOCKS = 128 << 10, 64
"""The bytes of a block of the sample, and how many there are at most: 8 MiB are packed in 0.3 s."""
CERTAIN = 0.8
"""The part of an estimate that is needed at least."""
Files = Sequence[tuple[str, int]]
"""Files by path, with their bytes."""
Packer = Callable[[Iterable[bytes]], int]
"""Packs blocks; the bytes that they take."""


def gzipped(blocks: Iterable[bytes]) -> int:
    """The bytes that blocks take in a layer of an OCI image."""
    return sum(min(len(block), len(zlib.compress(block, 6))) for block in blocks)


def files_of(tree: Path) -> Files:
    """The files of a tree, each once, however many names it has."""
    found = contents.scan(tree).items()
    seen = {status.st_ino: (f"{tree}/{name}", status.st_size) for name, status in found if stat.S_ISREG(status.st_mode)}
    return list(seen.values())


def require(
    directory: Path, files: Files, what: str, packer: Packer, *, times: int = 1, copied: int = 0,
    hint: str = disk.MAKE_ROOM,
) -> None:  # fmt: skip
    """Require room for files that are packed below a directory, temporary files included.

    Args:
        what: the operation that is impossible: "cannot write demo.sif".
        times: how often they are written there.
        copied: the bytes of further files that are copied and not packed.

    Raises:
        DiskFull: there is less.
    """
    most = copied + times * sum(size for _, size in files)
    if free(directory) < most:
        require_bytes(directory, copied + times * estimate(files, packer), what, hint)


def require_bytes(directory: Path, needed: int, what: str, hint: str = disk.MAKE_ROOM) -> None:
    """Require room for an estimated number of bytes, as `require`."""
    there = free(directory)
    if there < needed * CERTAIN:
        raise disk.DiskFull(
            f"{what}: no space left: about {_mib(needed)} are needed, {_mib(there)} are free in {directory}", hint=hint
        )


def free(directory: Path) -> int:
    """The bytes that this account can still write below a directory, which may have to be created."""
    place = next(path for path in (directory, *directory.parents) if path.is_dir())
    room = os.statvfs(place)
    return (room.f_bfree if os.geteuid() == 0 else room.f_bavail) * room.f_frsize


def estimate(files: Files, packer: Packer) -> int:
    """The bytes that files take when packed: blocks at equal distances in all files behind each other are packed."""
    ends = list(accumulate(size for _, size in files))
    total = ends[-1] if ends else 0
    places = range(0, total, max(BLOCK, total // BLOCKS))
    blocks = [block for place in places if (block := b"".join(_read(files, ends, place)))]
    read = sum(map(len, blocks))
    return total * packer(blocks) // read if read else 0


def _read(files: Files, ends: Sequence[int], place: int) -> Iterator[bytes]:
    """The bytes of one block, which begins in one file and may end in a later one; without what cannot be read."""
    number, left = bisect_right(ends, place), BLOCK
    while left > 0 and number < len(files):
        path, size = files[number]
        start = max(0, place - (ends[number] - size))
        with suppress(OSError), at.open_regular(Path(path)) as stream:
            stream.seek(start)
            yield stream.read(min(left, size - start))
        left -= size - start
        number += 1


def _mib(size: int) -> str:
    return f"{size >> 20:,} MiB" if size >= 10 << 20 else f"{size / (1 << 20):.1f} MiB"
