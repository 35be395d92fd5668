"""What was built: the record of one revision, and the manifest of one generation. Plain dataclasses, quick to read.

Files on disk carry ``format``; a file of a newer format is refused with a message, never half understood.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any, Literal

from stackyard.change import EnvironmentChange
from stackyard.errors import StackyardError

RECORD_FORMAT = 1
MANIFEST_FORMAT = 1
State = Literal["published", "unverified", "withdrawn", "built"]


@dataclass(frozen=True)
class PackageRecord:
    """One installed package. `source` is the channel or index; `size` in bytes as downloaded, 0 if not known."""

    name: str
    version: str
    kind: Literal["conda", "pip"]
    build: str = ""
    source: str = ""
    url: str = ""
    sha256: str = ""
    size: int = 0
    requires: tuple[str, ...] = ()


@dataclass(frozen=True)
class DiskUse:
    """What a build took: bytes and inodes that are its own (`new`) and those linked from the cache (`shared`)."""

    link_mode: str = "copy"
    bytes_new: int = 0
    bytes_shared: int = 0
    inodes_new: int = 0
    inodes_shared: int = 0


@dataclass(frozen=True)
class Activation:
    """What activating a prefix does, captured once.

    Attributes:
        change: the operations, in order.
        build_only: variables that were dropped because they only matter for building (CC, CFLAGS, ``_CONDA_*``).
        uncaptured: what could not be captured, one sentence each, with the script that does it.
    """

    change: EnvironmentChange = field(default_factory=EnvironmentChange)
    build_only: tuple[str, ...] = ()
    uncaptured: tuple[str, ...] = ()


@dataclass(frozen=True)
class BuildRecord:
    """One built revision: the marker file of its folder.

    Attributes:
        module: the name that users load: ``name/version-variant-revision`` in the site's template.
        input_hash: sha256 over everything that influenced the build; the same inputs build nothing.
        prefix: absolute path of the prefix.
        interpreter: where Python came from: ``source`` (conda, uv, host), ``path``, ``version``, ``sha256``.
        tools: host programs used while building, each with path and version.
        settings: the module settings (family, conflict, depends_on, aliases ...) as the spec gave them.
        checks: the stack's own checks, as `spec.models.Check` dumps them.
        exceptions: declared exceptions for verification, as `spec.models.CheckExceptions` dumps them.
    """

    stack: str
    version: str
    variant: str
    revision: int
    module: str
    input_hash: str
    platform: str
    path: str
    prefix: str
    created: str
    summary: str = ""
    axes: Mapping[str, str] = field(default_factory=dict)
    packages: tuple[PackageRecord, ...] = ()
    activation: Activation = field(default_factory=Activation)
    disk: DiskUse = field(default_factory=DiskUse)
    interpreter: Mapping[str, str] = field(default_factory=dict)
    tools: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    settings: Mapping[str, Any] = field(default_factory=dict)
    checks: tuple[Mapping[str, Any], ...] = ()
    exceptions: Mapping[str, Any] = field(default_factory=dict)
    licences: tuple[Mapping[str, Any], ...] = ()
    timings_s: Mapping[str, float] = field(default_factory=dict)
    notices: tuple[str, ...] = ()
    tree_hash: str = ""

    def to_json(self) -> dict[str, Any]:
        """The record as JSON values."""
        value = asdict(self)
        value["format"] = RECORD_FORMAT
        value["activation"]["change"] = self.activation.change.to_json()
        return value

    @classmethod
    def from_json(cls, value: Mapping[str, Any], origin: str = "record.json") -> BuildRecord:
        """Read what `to_json` wrote; `origin` names the file in errors."""
        if value.get("format") != RECORD_FORMAT:
            raise StackyardError(
                f"{origin} has format {value.get('format')!r}; this program reads format {RECORD_FORMAT}",
                hint="use the version of stackyard that wrote it, or a newer one",
            )
        known = {f.name for f in fields(cls)}
        plain = {k: v for k, v in value.items() if k in known}
        plain["packages"] = tuple(
            PackageRecord(**{**p, "requires": tuple(p.get("requires", ()))}) for p in value.get("packages", ())
        )
        activation = value.get("activation", {})
        plain["activation"] = Activation(
            EnvironmentChange.from_json(activation.get("change", [])),
            tuple(activation.get("build_only", ())),
            tuple(activation.get("uncaptured", ())),
        )
        plain["disk"] = DiskUse(**value.get("disk", {}))
        for name in ("checks", "licences", "notices"):
            plain[name] = tuple(value.get(name, ()))
        return cls(**plain)


@dataclass(frozen=True)
class Entry:
    """One revision as a generation sees it.

    Attributes:
        module: the full module name.
        folder: absolute path of the revision's folder.
        state: published, unverified, or withdrawn (kept loadable by full name, hidden, without alias or default).
        default: whether ``module load <stack>`` means this one.
        aliases: short versions that mean this one, e.g. ``2.13`` and ``2.13-py311``.
        rank: where its variant stood in the stack's matrix; among the variants of one version the highest is preferred.
        hidden: shown to nobody by `module avail`, loadable by its full name.
        deprecated: a date and a message, shown when it is loaded.
        notice: a message shown at every load.
        help: added to what ``module help`` prints.
    """

    stack: str
    version: str
    variant: str
    revision: int
    module: str
    folder: str
    created: str
    state: State = "published"
    default: bool = False
    aliases: tuple[str, ...] = ()
    rank: int = 0
    hidden: bool = False
    deprecated: str = ""
    notice: str = ""
    help: str = ""


@dataclass(frozen=True)
class Manifest:
    """The set of revisions that users see in one generation, and how it came about.

    `content` is the number of the generation whose content this one repeats after a rollback, else 0.
    """

    number: int
    created: str
    reason: str
    entries: tuple[Entry, ...] = ()
    content: int = 0

    def to_json(self) -> dict[str, Any]:
        """The manifest as JSON values."""
        return {"format": MANIFEST_FORMAT, **asdict(self)}

    @classmethod
    def from_json(cls, value: Mapping[str, Any], origin: str = "manifest.json") -> Manifest:
        """Read what `to_json` wrote; `origin` names the file in errors."""
        if value.get("format") != MANIFEST_FORMAT:
            raise StackyardError(
                f"{origin} has format {value.get('format')!r}; this program reads format {MANIFEST_FORMAT}",
                hint="use the version of stackyard that wrote it, or a newer one",
            )
        entries = tuple(Entry(**{**e, "aliases": tuple(e["aliases"])}) for e in value["entries"])
        return cls(value["number"], value["created"], value["reason"], entries, value.get("content", 0))


def read_record(path: Path) -> BuildRecord:
    """Read a ``record.json``. Raises StackyardError when it is not a record of this format."""
    return BuildRecord.from_json(_read(path, f"move {path.parent} away and deploy its file again"), str(path))


def read_manifest(path: Path) -> Manifest:
    """Read a generation's ``manifest.json``."""
    hint = f"restore it, or point the link `modules` at another of {path.parent.parent}/*/modules"
    return Manifest.from_json(_read(path, hint), str(path))


def _read(path: Path, hint: str) -> dict[str, Any]:
    try:
        value: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, json.JSONDecodeError) as error:
        raise StackyardError(f"cannot read {path}: {error}", hint=hint) from error
    return value
