"""The record of a base: a third party's image, as this yard keeps it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from stackyard.core.grammar import LABEL
from stackyard.host.machine.platforms import LINUX
from stackyard.yard import formats, members

BASE_FORMAT = 1
ARCHITECTURES: Mapping[str, str] = {
    "amd64": "linux-64", "arm64": "linux-aarch64", "ppc64le": "linux-ppc64le", "s390x": "linux-s390x",
    "riscv64": "linux-riscv64",
}  # fmt: skip
"""The architectures of OCI images (Go's names) and conda's platforms."""

assert set(ARCHITECTURES.values()) == {platform.conda for platform in LINUX}


@dataclass(frozen=True)
class Layer:
    """One layer of the original image. `diff_id`: the digest of its uncompressed tar. Both begin with ``sha256:``."""

    digest: str
    size: int
    media_type: str
    diff_id: str


@dataclass(frozen=True)
class Defaults:
    """An image's defaults for running it. `env`: ``NAME=value`` entries, as in the image's configuration."""

    env: tuple[str, ...] = ()
    entrypoint: tuple[str, ...] = ()
    command: tuple[str, ...] = ()
    directory: str = ""
    user: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class PythonEnvironment:
    """A Python in a base: of a conda or virtual environment, or the system's."""

    kind: Literal["conda", "venv", "system"]
    path: str
    python: str = ""


@dataclass(frozen=True)
class Software:
    """The software found in a base.

    Attributes:
        libc: ``glibc 2.36`` or ``musl``; empty if it has neither.
        toolkits: the GPU toolkits: vendor, version and the file that says so.
        environments: its Pythons, the one of `activate` first.
        activate: the activation command that the image provides (``$WITH_CONDA``).
        shell: whether it has /bin/sh.
    """

    libc: str = ""
    toolkits: tuple[Mapping[str, str], ...] = ()
    environments: tuple[PythonEnvironment, ...] = ()
    activate: str = ""
    shell: bool = True


@dataclass(frozen=True)
class Root:
    """The image's files as one SquashFS: sha256, size, number of entries, and the packing program."""

    sha256: str
    bytes: int
    entries: int
    packed_with: str


@dataclass(frozen=True)
class Base:
    """One base image of a yard.

    Attributes:
        source: its source as given, without secrets.
        manifest: the digest of the manifest in its OCI layout (``sha256:...``).
        digests: all digests by which it may be pinned: its manifest there and at its source, its configuration
            (Docker's image ID), the archive that it was read from.
        platform: conda's name of its architecture.
        licences: the acceptances (`deploy.licences.Acceptance`), and the lines added to files for them.
        without_rights: programs whose set-user-ID or set-group-ID bits were removed.
        who, uid, when: who imported it.
    """

    name: str
    source: str
    manifest: str
    digests: tuple[str, ...]
    platform: str
    root: Root
    layers: tuple[Layer, ...]
    who: str
    uid: int
    when: str
    defaults: Defaults = field(default_factory=Defaults)
    software: Software = field(default_factory=Software)
    licences: tuple[Mapping[str, Any], ...] = ()
    without_rights: tuple[str, ...] = ()

    @property
    def architecture(self) -> str:
        """Its architecture, by OCI's name."""
        return next(name for name, platform in ARCHITECTURES.items() if platform == self.platform)

    def to_json(self) -> dict[str, Any]:
        """The record as JSON values."""
        return {"format": BASE_FORMAT, **asdict(self)}


def _base(value: dict[str, Any]) -> Base:
    software = value.get("software", {})
    environments = [members.make(PythonEnvironment, row) for row in software.get("environments", ())]
    base = members.make(
        Base,
        {
            **value,
            "root": members.make(Root, value["root"]),
            "layers": [members.make(Layer, row) for row in value["layers"]],
            "defaults": members.make(Defaults, value.get("defaults", {})),
            "software": members.make(Software, {**software, "environments": environments}),
        },
    )
    LABEL(base.name)
    if base.platform not in ARCHITECTURES.values():
        raise ValueError(f"unknown platform {base.platform!r:.60}")
    return base


BASE = formats.Kind(
    BASE_FORMAT, _base, hint=lambda path: f"move {path.parent} away and import the base again", checked_since=1
)
