"""The contents of a base image: its files over all layers, its C library, and its programs."""

from __future__ import annotations

import os
import posixpath
import shutil
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

from stackyard.core.errors import InputError, StackyardError
from stackyard.core.findings import some
from stackyard.host.files.elf import read_elf
from stackyard.host.files.scratch import scratch
from stackyard.images import links, needs
from stackyard.images.bases import model
from stackyard.images.bindings.elf.versions import read_versions
from stackyard.images.oci import check
from stackyard.images.oci.layout import Image, Reference, blob, image
from stackyard.images.oci.packed import plain

ARCHITECTURES = {platform: name for name, platform in model.ARCHITECTURES.items()}
"""OCI's names (those of the Go language) of conda's platforms."""
SCRATCH = "scratch"
"""The base without any files, as in a Containerfile."""
_WHITEOUT, _OPAQUE = ".wh.", ".wh..wh..opq"
_LIBRARIES = ("lib64", "usr/lib64", "lib/{}-linux-gnu", "usr/lib/{}-linux-gnu", "lib", "usr/lib")
_MACHINES = {"amd64": "x86_64", "arm64": "aarch64", "ppc64le": "powerpc64le"}


@dataclass(frozen=True)
class _Node:
    """A path in a base: the layer that has it, and a link's target."""

    layer: int
    target: str = ""
    regular: bool = False


@dataclass(frozen=True)
class Base:
    """A base image, and every path in it."""

    reference: Reference | None = None
    image: Image | None = None
    nodes: dict[str, _Node] = field(default_factory=dict)

    @property
    def settings(self) -> dict[str, object]:
        """The defaults of its containers: environment, command, user."""
        return dict(self.image.settings.get("config") or {}) if self.image else {}

    def resolve(self, path: str) -> str:
        """The real path; empty if it does not exist."""
        return links.end(path, self._target).lstrip("/")

    def _target(self, path: str) -> str | None:
        """The target of the link at a path; empty: it is not a link; None: it does not exist."""
        node = self.nodes.get(path.lstrip("/"))
        return node.target if node else None

    def has(self, path: str) -> bool:
        """Whether a file exists at a path, with links followed."""
        node = self.nodes.get(self.resolve(path))
        return node is not None and node.regular

    def extract(self, path: str, target: Path) -> None:
        """Extract a file. `path` is a result of `resolve`."""
        assert self.reference is not None and self.image is not None
        place = blob(self.reference.directory, self.image.layers[self.nodes[path].layer].digest)
        for member, stream in _members(place):
            if stream is not None and _name(member) == path:
                with target.open("wb") as out:
                    shutil.copyfileobj(stream, out)
                return
        raise StackyardError(f"cannot read /{path} in {self.reference}")


def read(reference: Reference | None, platform: str) -> Base:
    """Read a base, and compare all its blobs with their digests.

    Args:
        reference: None: the base without files.
        platform: conda's name; the base must be for the same platform.

    Raises:
        InputError: it is for another architecture.
        StackyardError: it is damaged, or a layer has an unsupported compression.
    """
    if reference is None:
        return Base()
    architecture = ARCHITECTURES[platform]
    base_image = image(reference, architecture=architecture)
    if base_image.settings.get("architecture") != architecture:
        raise InputError(
            f"{reference} is for {base_image.settings.get('architecture')}, and the stack for {architecture}"
        )
    if wrong := check.problems(reference.directory, base_image):
        raise StackyardError(f"{reference} is damaged: {some(wrong, 3)}", hint="pull it again")
    nodes: dict[str, _Node] = {}
    for number, layer in enumerate(base_image.layers):
        for member, _ in _members(blob(reference.directory, layer.digest)):
            _apply(nodes, member, number)
    return Base(reference, base_image, nodes)


def _members(place: Path) -> Iterator[tuple[tarfile.TarInfo, IO[bytes] | None]]:
    try:
        with place.open("rb") as raw, plain(raw) as stream, tarfile.open(fileobj=stream, mode="r|") as tar:
            for member in tar:
                yield member, tar.extractfile(member) if member.isreg() else None
    except (tarfile.TarError, EOFError) as error:
        raise StackyardError(f"cannot read the layer {place.name}: {error}", hint="pull it again") from error


def _name(member: tarfile.TarInfo) -> str:
    return posixpath.normpath(posixpath.join("/", member.name)).lstrip("/")


def _apply(nodes: dict[str, _Node], member: tarfile.TarInfo, layer: int) -> None:
    """Apply one entry of a layer over lower layers."""
    name = _name(member)
    directory, file = posixpath.split(name)
    if file == _OPAQUE:
        _remove(nodes, directory, layer, itself=False)
    elif file.startswith(_WHITEOUT):
        _remove(nodes, posixpath.join(directory, file.removeprefix(_WHITEOUT)), layer, itself=True)
    elif member.islnk():
        same = nodes.get(posixpath.normpath(posixpath.join("/", member.linkname)).lstrip("/"))
        nodes[name] = _Node(layer, f"/{member.linkname.lstrip('/')}") if same else _Node(layer)
    else:
        nodes[name] = _Node(layer, member.linkname if member.issym() else "", member.isreg())


def _remove(nodes: dict[str, _Node], name: str, layer: int, *, itself: bool) -> None:
    """Remove the entries of lower layers at a path."""
    for path in [path for path in nodes if (itself and path == name) or path.startswith(f"{name}/")]:
        if nodes[path].layer < layer:
            del nodes[path]


# --------------------------------------------------------------------------- does it fit


def refuse_older(base: Base, programs: list[Path], stack: str) -> None:
    """Require that the C library of the base defines every version that the prefix's files need.

    Raises:
        InputError: it is older, or the base has none.
    """
    needed = needs.of_files(programs)
    if base.image is not None and needed.glibc:
        has, where = _libc(base)
        needs.require(needed, has, stack=stack, system=f"{base.reference}{where and f' ({where})'}")


def lacking(base: Base, programs: list[Path]) -> dict[str, str]:
    """Libraries missing from both the base and the stack, each with a file that is linked to it."""
    if base.image is None:
        return {}
    there = {posixpath.basename(name) for name in base.nodes} | {path.name for path in programs}
    result: dict[str, str] = {}
    for path in programs:
        elf = read_elf(path)
        for name in elf.needed if elf else ():
            if name not in there:
                result.setdefault(name, path.name)
    return result


def _libc(base: Base) -> tuple[str, str]:
    """The newest version that the C library of a base defines, and its path; empty without one."""
    assert base.image is not None
    machine = _MACHINES.get(str(base.image.settings.get("architecture")), "")
    for directory in _LIBRARIES:
        place = base.resolve(f"{directory.format(machine)}/libc.so.6")
        if place and base.nodes[place].regular:
            with scratch("libc") as work:
                base.extract(place, work / "libc.so.6")
                return needs.newest(read_versions(work / "libc.so.6").defined), f"/{place}"
    return "", ""


def interpreter_in(base: Base, path: Path) -> bool:
    """Whether the base has the same interpreter file as this machine at this path."""
    return base.has(str(path)) and base.has(os.path.realpath(path))
