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

assert set(ARCHITECTURES.values()) == {each.conda for each in LINUX}


@dataclass(frozen=True)
class Layer:
    """One layer, as it came. `diff_id`: the digest of its tar, uncompressed; both begin with ``sha256:``."""

    digest: str
    size: int
    media_type: str
    diff_id: str


@dataclass(frozen=True)
class Defaults:
    """What an image says about running it. `env`: ``NAME=value`` each, as in the image's configuration."""

    env: tuple[str, ...] = ()
    entrypoint: tuple[str, ...] = ()
    command: tuple[str, ...] = ()
    directory: str = ""
    user: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class PythonEnvironment:
    """A Python in a base: of a conda or virtual environment; of its system, which no record names."""

    kind: Literal["conda", "venv", "system"]
    path: str
    python: str = ""


@dataclass(frozen=True)
class Software:
    """What was found in a base.

    Attributes:
        libc: ``glibc 2.36`` or ``musl``; empty where it has none.
        toolkits: the GPU toolkits: vendor, version and the file that says so.
        environments: Pythons of its own, that of `activate` first.
        activate: the command by which the image's makers say to use it (``$WITH_CONDA``).
        shell: whether it has /bin/sh.
    """

    libc: str = ""
    toolkits: tuple[Mapping[str, str], ...] = ()
    environments: tuple[PythonEnvironment, ...] = ()
    activate: str = ""
    shell: bool = True


@dataclass(frozen=True)
class Root:
    """The image's files in one SquashFS: sha256 of the file, its bytes, its entries, and what packed it."""

    sha256: str
    bytes: int
    entries: int
    packed_with: str


@dataclass(frozen=True)
class Base:
    """One base image of a yard.

    Attributes:
        source: where it came from, as it was given, without secrets.
        manifest: the digest of the manifest in its OCI layout (``sha256:...``).
        digests: everything that it may be pinned by: its manifest there and at its source, its configuration (Docker's
            image ID), the archive that it was read from.
        platform: conda's name of its architecture.
        licences: who accepted which text, when (`deploy.licences.Acceptance`), and the lines that were added for it.
        without_rights: programs that lost set-user-ID or set-group-ID, which no image of ours keeps.
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
        """Its architecture as OCI images name it."""
        return next(name for name, platform in ARCHITECTURES.items() if platform == self.platform)

    def to_json(self) -> dict[str, Any]:
        """The record as JSON values."""
        return {"format": BASE_FORMAT, **asdict(self)}


def _base(value: dict[str, Any]) -> Base:
    software = value.get("software", {})
    environments = [members.make(PythonEnvironment, each) for each in software.get("environments", ())]
    made = members.make(
        Base,
        {
            **value,
            "root": members.make(Root, value["root"]),
            "layers": [members.make(Layer, each) for each in value["layers"]],
            "defaults": members.make(Defaults, value.get("defaults", {})),
            "software": members.make(Software, {**software, "environments": environments}),
        },
    )
    LABEL(made.name)
    if made.platform not in ARCHITECTURES.values():
        raise ValueError(f"unknown platform {made.platform!r:.60}")
    return made


BASE = formats.Kind(
    BASE_FORMAT, _base, hint=lambda path: f"move {path.parent} away and import the base again", checked_since=1
)
