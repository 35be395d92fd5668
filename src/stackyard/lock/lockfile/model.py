"""The lock: every package of every variant for every platform, with its hash. `lock.lockfile.text` is its file format.

Plain dataclasses: `build` and the read commands must not load a validation library.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import Literal

from stackyard.core.late import dataclass

LOCK_FORMAT = 1
LOCK_MARK = "# Written by `stackyard lock`."
"""The first words of every lock file."""


@dataclass(frozen=True)
class CondaPackage:
    """One conda package. `url` names the file; `size` in bytes; `depends` and `constrains` are MatchSpecs."""

    name: str
    version: str
    build: str
    build_number: int
    subdir: str
    channel: str
    url: str
    sha256: str
    md5: str = ""
    size: int = 0
    noarch: str = ""
    timestamp_ms: int = 0
    license: str = ""
    depends: tuple[str, ...] = ()
    constrains: tuple[str, ...] = ()
    purls: tuple[str, ...] = ()
    python_site_packages_path: str = ""

    @property
    def stem(self) -> str:
        """The file name stem in package caches and in ``conda-meta``: ``name-version-build``."""
        return f"{self.name}-{self.version}-{self.build}"


@dataclass(frozen=True)
class PipPackage:
    """One pip package, as a wheel or as the source that it is compiled from.

    `kind`: ``wheel`` (installed as it is), ``sdist`` (compiled), ``vcs`` (git, `commit` full), ``path`` (a local
    project, `sha256` is that of its snapshot). `build_inputs` names everything that influences compilation, sorted.
    """

    name: str
    version: str
    kind: Literal["wheel", "sdist", "vcs", "path"]
    url: str
    sha256: str
    index: str = ""
    size: int = 0
    commit: str = ""
    subdirectory: str = ""
    requires: tuple[str, ...] = ()
    extras: tuple[str, ...] = ()
    build_inputs: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class LockedInterpreter:
    """The source of Python: ``conda`` (in the package list), ``uv``, ``host`` or ``base``.

    `path` and `version` belong to the last three, `sha256` to ``uv`` and ``host``.
    """

    source: Literal["conda", "uv", "host", "base", "none"]
    version: str = ""
    path: str = ""
    sha256: str = ""


@dataclass(frozen=True)
class LockedVariant:
    """All packages of one variant on one platform, in install order by name.

    `spec_hash` is the hash of the part of the spec and of the site that influences this solve; `--locked` compares it.
    `channels` are the final URLs in priority order; `virtual` are the virtual packages that were assumed. `requested`
    are the requirements as written in the spec: a MatchSpec, or ``pip: `` and a pip requirement. `policy` is everything
    else that the solve depended on (pins, options, build inputs, files), a word and a value per line; the `spec_hash`
    is made of these two lists, so that the cause of a stale lock can always be reported.
    """

    stack: str
    version: str
    variant: str
    platform: str
    spec_hash: str
    interpreter: LockedInterpreter
    channels: tuple[str, ...] = ()
    virtual: tuple[str, ...] = ()
    requested: tuple[str, ...] = ()
    policy: tuple[str, ...] = ()
    conda: tuple[CondaPackage, ...] = ()
    pip: tuple[PipPackage, ...] = ()
    notices: tuple[str, ...] = ()

    @property
    def packages(self) -> tuple[CondaPackage | PipPackage, ...]:
        """The conda packages, then the pip packages."""
        return (*self.conda, *self.pip)

    @property
    def key(self) -> tuple[str, str, str]:
        """The key of the variant within a lock."""
        return (self.version, self.variant, self.platform)


@dataclass(frozen=True)
class Lock:
    """One lock file: all variants of one stack's file.

    `folder` is the directory of that file, absolute or empty; local projects inside it are written relative to it, so
    that the lock holds for every clone of the repository.
    """

    stack: str
    variants: tuple[LockedVariant, ...] = ()
    folder: str = field(default="", compare=False)

    def find(self, version: str, variant: str, platform: str) -> LockedVariant | None:
        """The locked variant for a platform, or None."""
        return next((v for v in self.variants if v.key == (version, variant, platform)), None)
