"""Opens the files of an image of any kind: a directory, a SquashFS file, or a SIF file with its overlays.

An image file is mounted with squashfuse, which copies nothing. Where that is not possible its programs and libraries
are unpacked with unsquashfs. Which of the two it was is said in `OpenedImage.how`.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from stackyard.core.errors import InputError, MissingError, StackyardError
from stackyard.host.files.scratch import scratch
from stackyard.host.run.command import CommandError, run, which
from stackyard.images.bindings.tree import Tree
from stackyard.images.sif import file as sif

_SQUASHFS = b"hsqs"
_MOUNT_S, _UNPACK_S = 60, 1800


@dataclass(frozen=True)
class OpenedImage:
    """An image's tree, and the method: ``directory``, ``mounted``, ``unpacked``."""

    tree: Tree
    how: str


@contextmanager
def opened(image: Path) -> Iterator[OpenedImage]:
    """The files of an image, for as long as the context lasts.

    Raises:
        InputError: it does not exist, or is not an image.
        MissingError: neither squashfuse nor unsquashfs is installed.
    """
    if image.is_dir():
        yield OpenedImage(Tree((image.absolute(),)), "directory")
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
        yield OpenedImage(Tree(tuple(layers)), "unpacked" if "unpacked" in ways else "mounted")


def _partitions(image: Path) -> list[int]:
    """The offsets of an image file's SquashFS parts, the uppermost first: a SIF file's overlays, then its system."""
    try:
        with image.open("rb") as stream:
            head = stream.read(128)
    except OSError as error:
        raise InputError(f"cannot read {image}: {error.strerror}", hint="check the path of the image") from error
    if head[:4] == _SQUASHFS:
        return [0]
    if len(head) < 128 or not sif.is_one(head):
        raise InputError(f"cannot read {image}: not an image", hint="use a directory, a SquashFS file or a SIF file")
    image_file = sif.read(image)
    overlays = image_file.partitions(sif.OVERLAY)
    systems = image_file.partitions(sif.SYSTEM)
    if any(image_file.read(part, len(_SQUASHFS)) != _SQUASHFS for part in (*overlays, *systems)):
        raise InputError(f"cannot read {image}: a partition is not SquashFS", hint="convert it to SquashFS")
    if not systems:
        raise InputError(f"cannot read {image}: no system partition", hint="see `apptainer sif list`")
    return [part.offset for part in (*reversed(overlays), *systems)]


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
    """Unmount, lazily if a program has a file open."""
    for program in ("fusermount3", "fusermount"):
        if which(program) is not None:
            run([program, "-u", "-z", directory], timeout_s=_MOUNT_S, check=False)
            return
    run(["umount", "-l", directory], timeout_s=_MOUNT_S, check=False)


def _unpack(image: Path, offset: int, directory: Path, why: str) -> None:
    """Unpack an image. Devices and owners, which only root can set, are skipped without an error.

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
