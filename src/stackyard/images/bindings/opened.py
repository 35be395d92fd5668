"""The files of an image, whatever it is: a directory, a SquashFS file, or a SIF file with its overlays.

An image file is mounted with squashfuse, which copies nothing. Where that is not possible its programs and libraries
are unpacked with unsquashfs. Which of the two it was is said in `Opened.how`.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from stackyard.core.errors import InputError, MissingError, StackyardError
from stackyard.host.files.scratch import scratch
from stackyard.host.run.command import CommandError, run, which
from stackyard.images.bindings.tree import Tree

_SQUASHFS = b"hsqs"
_SIF_MAGIC_AT, _SIF_MAGIC = 32, b"SIF_MAGIC"
_SIF_TABLE = struct.Struct("<qqqqqqqq")  # created, modified, free, total, table offset, table size, data offset, size
_SIF_TABLE_AT = 64
_DESCRIPTOR = struct.Struct("<i?IIIqqqqqqq128s384s")
_PARTITION, _IS_SQUASHFS, _PRIMARY, _OVERLAY = 0x4004, 1, 2, 4
_MOST_DESCRIPTORS = 1024
_MOUNT_S, _UNPACK_S = 60, 1800


@dataclass(frozen=True)
class Opened:
    """An image's tree, and how it is read: ``directory``, ``mounted``, ``unpacked``."""

    tree: Tree
    how: str


@contextmanager
def opened(image: Path) -> Iterator[Opened]:
    """The files of an image, for as long as the context lasts.

    Raises:
        InputError: it does not exist, or is not an image.
        MissingError: neither squashfuse nor unsquashfs is installed.
    """
    if image.is_dir():
        yield Opened(Tree((image.absolute(),)), "directory")
        return
    offsets = _partitions(image)
    with ExitStack() as stack:
        directory = stack.enter_context(scratch("image"))
        layers, ways = [], []
        for number, offset in enumerate(offsets):
            layer = directory / str(number)
            layer.mkdir()
            ways.append(_open(image, offset, layer, stack))
            layers.append(layer)
        yield Opened(Tree(tuple(layers)), "unpacked" if "unpacked" in ways else "mounted")


def _partitions(image: Path) -> list[int]:
    """The offsets of an image file's SquashFS, the uppermost first."""
    try:
        with image.open("rb") as stream:
            head = stream.read(128)
            if head[:4] == _SQUASHFS:
                return [0]
            if head[_SIF_MAGIC_AT : _SIF_MAGIC_AT + len(_SIF_MAGIC)] != _SIF_MAGIC or len(head) < 128:
                raise InputError(
                    f"cannot read {image}: not an image", hint="use a directory, a SquashFS file or a SIF file"
                )
            _, _, _, total, table, *_ = _SIF_TABLE.unpack_from(head, _SIF_TABLE_AT)
            stream.seek(table)
            data = stream.read(_DESCRIPTOR.size * min(total, _MOST_DESCRIPTORS))
    except OSError as error:
        raise InputError(f"cannot read {image}: {error.strerror}", hint="check the path of the image") from error
    return _of_sif(image, data)


def _of_sif(image: Path, data: bytes) -> list[int]:
    """The partitions of a SIF file: the primary system below its overlays (sif/pkg/sif: descriptor.go)."""
    found: list[tuple[int, int]] = []
    for at in range(0, len(data) - _DESCRIPTOR.size + 1, _DESCRIPTOR.size):
        kind, used, _, _, _, offset, *_, extra = _DESCRIPTOR.unpack_from(data, at)
        if not used or kind != _PARTITION:
            continue
        system, part = struct.unpack_from("<ii", extra)
        if part in (_PRIMARY, _OVERLAY):
            if system != _IS_SQUASHFS:
                raise InputError(f"cannot read {image}: a partition is not SquashFS", hint="convert it to SquashFS")
            found.append((part, offset))
    if not any(part == _PRIMARY for part, _ in found):
        raise InputError(f"cannot read {image}: no system partition", hint="see `apptainer sif list`")
    overlays = [offset for part, offset in found if part == _OVERLAY]
    return [*reversed(overlays), *(offset for part, offset in found if part == _PRIMARY)]


def _open(image: Path, offset: int, directory: Path, stack: ExitStack) -> str:
    why = ""
    for program, more in (("squashfuse_ll", ",timeout=3600"), ("squashfuse", "")):  # it goes also if this is killed
        if which(program) is None:
            continue
        try:
            run(
                [program, "-o", f"ro,offset={offset}{more}", image.absolute(), directory],
                timeout_s=_MOUNT_S,
                leaves_others=True,
            )
        except CommandError as error:
            why = why or f"{error.message}: {error.result.output}"
            continue
        stack.callback(_unmount, directory)
        return "mounted"
    if which("unsquashfs") is None:
        missing = "unsquashfs" if why else "squashfuse and unsquashfs"
        raise MissingError(f"cannot read {image}: {missing} not found on PATH", hint="install one", detail=why)
    _unpack(image, offset, directory, why)
    return "unpacked"


def _unmount(directory: Path) -> None:
    """End a mount also where a program has a file open: a lazy unmount."""
    for program in ("fusermount3", "fusermount"):
        if which(program) is not None:
            run([program, "-u", "-z", directory], timeout_s=_MOUNT_S, check=False)
            return
    run(["umount", "-l", directory], timeout_s=_MOUNT_S, check=False)


def _unpack(image: Path, offset: int, directory: Path, why: str) -> None:
    """Unpack an image. What only root may make (devices, owners) is left out, and counts as no error.

    Args:
        why: what squashfuse said, if it was tried.
    """
    words = [
        "unsquashfs",
        "-q",
        "-n",
        "-f",
        "-no-xattrs",
        "-ignore-errors",
        "-d",
        directory,
        "-o",
        offset,
        image.absolute(),
    ]
    done = run([str(word) for word in words], timeout_s=_UNPACK_S, check=False)
    if not any(directory.iterdir()):
        raise StackyardError(
            f"cannot read {image}: unsquashfs failed", detail="\n".join((*filter(None, [why]), done.output))
        )
