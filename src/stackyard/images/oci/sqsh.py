"""Writes an image of a layout as one SquashFS file that Enroot and Pyxis start: a root with their three files.

Enroot's documentation, image-format.md: ``/etc/environment`` has ``NAME=VALUE`` lines, ``/etc/rc`` is what a start runs
(Pyxis only with an entrypoint), ``/etc/fstab`` has mounts of the image.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from stackyard.core.errors import InputError
from stackyard.core.late import dataclass
from stackyard.host.files.scratch import scratch
from stackyard.images.bases.model import Layer
from stackyard.images.bases.unpack import MOST_BYTES, UnpackedTree
from stackyard.images.oci.build import verified
from stackyard.images.oci.layout import Image, Reference, blob
from stackyard.images.squashfs import file as squashfs
from stackyard.images.squashfs import possible
from stackyard.yard.write.atomic import fault_point
from stackyard.yard.write.permissions import file_mode

SHELLS = ("bin/sh", "usr/bin/sh")


@dataclass(frozen=True)
class WrittenSqsh:
    """A written file: its sha256, its bytes, and sentences about what it lacks."""

    file: Path
    sha256: str
    bytes: int
    notices: tuple[str, ...]


def write(source: Reference, file: Path, *, most_bytes: int = MOST_BYTES) -> WrittenSqsh:
    """Unpack an image and write it as a file, completely or not at all.

    Args:
        file: an existing one is replaced.

    Raises:
        InputError: no such directory; the image has no sh, by which Enroot starts a container.
        MissingError: mksquashfs is missing.
        DiskFull, StackyardError: the image is damaged or harmful; the file cannot be written.
    """
    if not file.parent.is_dir():
        raise InputError(f"no such directory: {file.parent}", hint="create it, or choose another -o")
    possible.require_packing()
    image = verified(source)
    with scratch("sqsh", file.parent) as work:
        (work / "root").mkdir()
        tree = UnpackedTree(work / "root", most_bytes)
        for layer, diff in zip(image.layers, image.diff_ids, strict=True):
            tree.apply(Layer(layer.digest, layer.size, layer.kind, diff), blob(source.directory, layer.digest))
        if not any(os.path.lexists(tree.place(name)) for name in SHELLS):
            hint = "Enroot and Pyxis start a container by its sh: build it on a base that has one, e.g. debian"
            raise InputError(f"{source} has no /bin/sh", hint=hint)
        notices = _settle(tree, image)
        packed = squashfs.pack(tree.root, work / "new.sqsh", as_it_is=True, level=squashfs.QUICK)
        (work / "new.sqsh").chmod(file_mode())
        fault_point("sqsh")
        (work / "new.sqsh").replace(file)
    return WrittenSqsh(file, packed.sha256, packed.size, notices)


def _settle(tree: UnpackedTree, image: Image) -> tuple[str, ...]:
    """Write Enroot's files; returns sentences about variables that they cannot hold."""
    config: Mapping[str, Any] = image.settings.get("config") or {}
    every = [str(line) for line in config.get("Env") or ()]
    lines = [line for line in every if "\n" not in line and line.partition("=")[0].isidentifier()]
    _put(tree, "etc/environment", "".join(f"{line}\n" for line in lines))
    _put(tree, "etc/rc", rc_text(config))
    tree.place("etc/rc").chmod(0o755)
    if not os.path.lexists(tree.place("etc/fstab")):
        _put(tree, "etc/fstab", "")
    tree.settle()
    return tuple(f"{line.partition('=')[0]} is left out: /etc/environment has a line for each" for line in every
                 if line not in lines)  # fmt: skip


def rc_text(config: Mapping[str, Any]) -> str:
    """/etc/rc: the directory of the image, its entrypoint, and its command where no other is given."""
    entry, command = (shlex.join(map(str, config.get(key) or ())) for key in ("Entrypoint", "Cmd"))
    directory = shlex.quote(str(config.get("WorkingDir") or "/"))
    return (
        f"mkdir -p {directory} 2>/dev/null\ncd {directory} || exit 1\n"
        f'[ $# -gt 0 ] || set -- {command or "/bin/sh"}\nexec {entry + " " if entry else ""}"$@"\n'
    )


def _put(tree: UnpackedTree, name: str, text: str) -> None:
    """Replace a file of the image, or a link there."""
    tree.place(name.rpartition("/")[0]).mkdir(exist_ok=True)
    place = tree.place(name)
    place.unlink(missing_ok=True)
    place.write_text(text, encoding="utf-8")
    os.utime(place, (0, 0))
