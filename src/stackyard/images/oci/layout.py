"""An OCI image layout: a directory of blobs by their sha256 and an index of named images.

Source: the OCI image specification 1.1 (image-layout.md, manifest.md, config.md, descriptor.md). Docker's media
types of the same files are read too, since registries still hold them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from stackyard.core.errors import InputError, StackyardError, cause
from stackyard.core.findings import some
from stackyard.host.files import at
from stackyard.host.machine.platforms import this_platform

INDEX = "application/vnd.oci.image.index.v1+json"
MANIFEST = "application/vnd.oci.image.manifest.v1+json"
CONFIG = "application/vnd.oci.image.config.v1+json"
LAYER = "application/vnd.oci.image.layer.v1.tar+gzip"
LAYER_ZSTD = "application/vnd.oci.image.layer.v1.tar+zstd"
NAME = "org.opencontainers.image.ref.name"
TITLE, PACKAGES = "org.opencontainers.image.title", "io.stackyard.packages"
"""Notes on a layer: what it holds, and the packages in it."""
_INDEXES = (INDEX, "application/vnd.docker.distribution.manifest.list.v2+json")
_MANIFESTS = (MANIFEST, "application/vnd.docker.distribution.manifest.v2+json")
_DIGEST = re.compile("sha256:([0-9a-f]{64})")
_TAG = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}")
MOST_JSON = 4 << 20
"""Bytes of a manifest or a configuration, as registries limit them; real ones have some thousand."""
SCHEME = "oci:"


@dataclass(frozen=True)
class Reference:
    """An image in a layout: ``oci:DIR:NAME``; without a name, the only image in it."""

    directory: Path
    name: str = ""

    def __str__(self) -> str:
        return f"{SCHEME}{self.directory}" + (f":{self.name}" if self.name else "")


def is_reference(text: str) -> bool:
    """Whether a word of the command line names a layout rather than a revision."""
    return text.startswith(SCHEME)


def reference(text: str) -> Reference:
    """Parse ``oci:DIR`` or ``oci:DIR:NAME``.

    Raises:
        InputError: it is something else, or the name is not a valid tag.
    """
    path = text.removeprefix(SCHEME)
    directory, colon, name = path.rpartition(":")
    if not colon or "/" in name:
        directory, name = path, ""
    if not is_reference(text) or not directory:
        raise InputError(f"not an image in a layout: {text}", hint="write oci:DIR, or oci:DIR:NAME")
    return Reference(Path(directory), tag(name) if name else "")


def tag(name: str) -> str:
    """The name, if it is a valid tag. Raises InputError."""
    if not _TAG.fullmatch(name):
        raise InputError(f"invalid name of an image: {name!r}", hint="letters, digits, _ . - and at most 128 of them")
    return name


@dataclass(frozen=True)
class Descriptor:
    """A blob's descriptor: media type, digest (``sha256:...``), size, and annotations."""

    kind: str
    digest: str
    size: int
    annotations: Mapping[str, str] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """The descriptor as JSON values."""
        value: dict[str, Any] = {"mediaType": self.kind, "digest": self.digest, "size": self.size}
        return {**value, "annotations": dict(self.annotations)} if self.annotations else value


@dataclass(frozen=True)
class Image:
    """One image of a layout: name, manifest, configuration, and the layers from the bottom up."""

    name: str
    manifest: Descriptor
    config: Descriptor
    layers: tuple[Descriptor, ...]
    settings: Mapping[str, Any]
    annotations: Mapping[str, str]

    @property
    def diff_ids(self) -> tuple[str, ...]:
        """The digests of the layers before compression."""
        return tuple(self.settings.get("rootfs", {}).get("diff_ids", ()))

    @property
    def bytes(self) -> int:
        """The total size of its blobs."""
        return self.manifest.size + self.config.size + sum(layer.size for layer in self.layers)

    @property
    def labels(self) -> Mapping[str, str]:
        """The labels of the image."""
        return self.settings.get("config", {}).get("Labels") or {}

    @property
    def blobs(self) -> tuple[Descriptor, ...]:
        """The layers, the configuration and the manifest, so that each is copied before the blob that refers to it."""
        return (*self.layers, self.config, self.manifest)


def image(target: Reference, *, architecture: str = "") -> Image:
    """Read an image's manifest and configuration, and verify them.

    Args:
        architecture: OCI's name; selects from a multi-architecture index. Empty: this machine's.

    Raises:
        InputError: the directory is not a layout, or has no image of this name.
        StackyardError: its content is damaged.
    """
    descriptor = _named(target, index(target.directory))
    while descriptor.kind in _INDEXES:
        try:
            descriptor = _for(architecture or _own_architecture(), descriptor, target)
        except (KeyError, TypeError, AttributeError, ValueError) as error:
            raise StackyardError(f"cannot read {target}: its list of platforms is damaged: {error!r}") from error
    if descriptor.kind not in _MANIFESTS:
        raise StackyardError(f"cannot read {target}: {descriptor.kind or 'its entry'} is not an image's manifest")
    manifest = content(target.directory, descriptor)
    try:
        config, layers = _descriptor(manifest["config"]), tuple(map(_descriptor, manifest["layers"]))
        settings = content(target.directory, config)
        result = Image(descriptor.annotations.get(NAME, target.name), descriptor, config, layers, settings,
                     manifest.get("annotations") or {})  # fmt: skip
        matches = len(result.diff_ids) == len(layers)
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise StackyardError(f"cannot read {target}: its manifest or configuration is damaged: {error!r}") from error
    if not matches:
        raise StackyardError(f"cannot read {target}: {len(layers)} layers and {len(result.diff_ids)} digests of them")
    return result


def index(directory: Path) -> tuple[Descriptor, ...]:
    """The entries of a layout's index.

    Raises:
        InputError: the directory is not a layout.
        StackyardError: its index is damaged.
    """
    try:
        with at.open_regular(directory / "index.json") as stream:
            value = json.loads(stream.read(MOST_JSON))
        return tuple(map(_descriptor, value["manifests"]))
    except OSError as error:
        hint = "make one: `stackyard image build REV --format oci -o DIR`, or `stackyard image pull SOURCE -o DIR`"
        raise InputError(f"{directory} is not an OCI image layout: cannot read index.json: {cause(error)}",
                         hint=hint) from error  # fmt: skip
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise StackyardError(f"cannot read {directory}/index.json: {error}", hint="pull or build it again") from error


def _descriptor(value: Mapping[str, Any]) -> Descriptor:
    if not _DIGEST.fullmatch(value["digest"]):
        raise ValueError(f"not a sha256 digest: {value['digest']!r}")
    notes = {str(key): str(text) for key, text in (value.get("annotations") or {}).items()}
    return Descriptor(str(value.get("mediaType", MANIFEST)), value["digest"], int(value["size"]), notes)


def _named(target: Reference, entries: Sequence[Descriptor]) -> Descriptor:
    fits = [entry for entry in entries if not target.name or entry.annotations.get(NAME) == target.name]
    if len(fits) == 1:
        return fits[0]
    names = [entry.annotations.get(NAME, "(no name)") for entry in entries]
    if fits:
        raise InputError(f"{target.directory} has {len(fits)} images: {some(names, 5)}", hint="name one: oci:DIR:NAME")
    what = f"an image named {target.name}" if target.name else "an image"
    raise InputError(f"{target.directory} does not have {what}", hint=f"it has: {some(names, 5)}" if names else None)


def _own_architecture() -> str:
    from stackyard.images.bases.model import ARCHITECTURES  # late: reading a layout needs no records

    return next((name for name, platform in ARCHITECTURES.items() if platform == this_platform()), "")


def _for(architecture: str, descriptor: Descriptor, target: Reference) -> Descriptor:
    """The image for an architecture, from a multi-architecture index."""
    rows = content(target.directory, descriptor).get("manifests", ())
    for row in rows:
        platform = row.get("platform") or {}
        if platform.get("os", "linux") == "linux" and platform.get("architecture", "") == architecture:
            chosen = _descriptor(row)
            return Descriptor(chosen.kind, chosen.digest, chosen.size, {**chosen.annotations, **descriptor.annotations})
    has = sorted({str((row.get("platform") or {}).get("architecture")) for row in rows})
    raise InputError(f"{target} is not for {architecture}: it is for {', '.join(has)}")


def blob(directory: Path, digest: str) -> Path:
    """The path of a blob. `digest` was validated when it was read."""
    return directory / "blobs" / "sha256" / digest.removeprefix("sha256:")


def content(directory: Path, descriptor: Descriptor) -> Any:
    """The JSON value of a blob, verified against its digest.

    Raises:
        StackyardError: it is missing, damaged, or too large.
    """
    try:
        return json.loads(read(directory, descriptor.digest))
    except (ValueError, RecursionError) as error:
        raise StackyardError(f"cannot read {blob(directory, descriptor.digest)}: {error}") from error


def read(directory: Path, digest: str) -> bytes:
    """The bytes of a manifest or a configuration, verified against the digest.

    Raises:
        StackyardError: it is missing, damaged, or too large.
    """
    import hashlib

    path = blob(directory, digest)
    try:
        with at.open_regular(path) as stream:
            data = stream.read(MOST_JSON + 1)
    except OSError as error:
        raise StackyardError(f"cannot read {path}: {cause(error)}", hint="pull or build the image again") from error
    if len(data) > MOST_JSON:
        raise StackyardError(f"{path} is too large for a manifest or a configuration: more than {MOST_JSON >> 20} MiB")
    if f"sha256:{hashlib.sha256(data).hexdigest()}" != digest:
        raise StackyardError(f"{path} is damaged: its bytes do not have its digest",
                             hint="pull or build the image again")  # fmt: skip
    return data


def size_of(path: Path) -> int:
    """The size of a blob; -1 if it is missing."""
    try:
        return path.stat().st_size
    except OSError:
        return -1
