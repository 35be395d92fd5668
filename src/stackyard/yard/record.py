"""What was built: the record of one revision, and the manifest of one generation. Plain dataclasses, quick to read.

Both are read through `yard.formats`: an older file is upgraded, a newer one refused.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, Literal

from stackyard.change import EnvironmentChange
from stackyard.yard import formats
from stackyard.yard.payload import Payload, payload_of

RECORD_FORMAT = 2
MANIFEST_FORMAT = 1
State = Literal["published", "unverified", "withdrawn", "built"]


def now() -> str:
    """The present time as files hold it: UTC, to the second."""
    return datetime.now(timezone.utc).isoformat(timespec="seconds")


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
    """What a build uses: bytes and inodes of its own (`new`) and those linked from the cache (`shared`)."""

    link_mode: str = "copy"
    bytes_new: int = 0
    bytes_shared: int = 0
    inodes_new: int = 0
    inodes_shared: int = 0


@dataclass(frozen=True)
class Activation:
    """What activating a prefix does, captured at build time.

    Attributes:
        change: the operations, in order.
        build_only: variables that were left out because they only matter for building (CC, CFLAGS, ``_CONDA_*``).
        uncaptured: what could not be captured, one sentence each, with the script that does it.
    """

    change: EnvironmentChange = field(default_factory=EnvironmentChange)
    build_only: tuple[str, ...] = ()
    uncaptured: tuple[str, ...] = ()


@dataclass(frozen=True)
class BuildRecord:
    """One built revision; its file marks the directory as complete.

    Attributes:
        module: the name that users load: ``name/version-variant-revision`` in the site's template.
        input_hash: sha256 over everything that influenced the build; the same inputs build nothing.
        prefix: absolute path of the prefix.
        interpreter: where Python came from: ``source`` (conda, uv, host), ``path``, ``version``, ``sha256``.
        tools: host programs used while building, each with path and version.
        settings: the module settings (family, conflict, depends_on, aliases ...) as the spec gave them.
        checks: the stack's own checks, as `spec.models.Check` dumps them.
        exceptions: declared exceptions for verification, as `spec.models.CheckExceptions` dumps them.
        form: what is at `prefix`, one of `payload.FORMS`.
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
    form: str = "prefix"

    @property
    def payload(self) -> Payload:
        """What the revision holds, which knows where its programs are and how they are run."""
        return payload_of(self.form, self.prefix)

    def to_json(self) -> dict[str, Any]:
        """The record as JSON values."""
        value = asdict(self)
        value["format"] = RECORD_FORMAT
        value["activation"]["change"] = self.activation.change.to_json()
        return value

    @classmethod
    def from_json(cls, value: Mapping[str, Any], origin: str = "record.json") -> BuildRecord:
        """Read what `to_json` wrote, in this version or an earlier one; `origin` names the file in errors."""
        return formats.read(value, origin, RECORD)


def _record(value: dict[str, Any]) -> BuildRecord:
    activation = value.get("activation", {})
    change = EnvironmentChange.from_json(activation.get("change", []))
    made = formats.make(
        BuildRecord,
        {
            **value,
            "packages": [formats.make(PackageRecord, package) for package in value.get("packages", ())],
            "activation": formats.make(Activation, {**activation, "change": change}),
            "disk": formats.make(DiskUse, value.get("disk", {})),
        },
    )
    payload_of(made.form, made.prefix)
    return made


def _with_form(value: dict[str, Any]) -> dict[str, Any]:
    """Format 2 names the form of the payload. It also renamed two operations, whose former names are always read."""
    return {**value, "form": "prefix"}


RECORD = formats.Kind(
    RECORD_FORMAT, _record, {1: _with_form}, lambda path: f"move {path.parent} away and deploy its file again"
)


@dataclass(frozen=True)
class Entry:
    """One revision in a generation.

    Attributes:
        module: the full module name.
        folder: absolute path of the revision's directory.
        state: published, unverified, or withdrawn (kept loadable by full name, hidden, without alias or default).
        default: whether ``module load <stack>`` loads this one.
        aliases: short versions that load this one, e.g. ``2.13`` and ``2.13-py311``.
        rank: position of its variant in the stack's matrix; among the variants of one version the highest is preferred.
        hidden: not shown by `module avail`, loadable by its full name.
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
    """The revisions that users see in one generation, and the reason for it.

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
        """Read what `to_json` wrote, in this version or an earlier one; `origin` names the file in errors."""
        return formats.read(value, origin, MANIFEST)


def _manifest(value: dict[str, Any]) -> Manifest:
    entries = [formats.make(Entry, entry) for entry in value["entries"]]
    return formats.make(Manifest, {**value, "entries": entries})


MANIFEST = formats.Kind(
    MANIFEST_FORMAT,
    _manifest,
    hint=lambda path: f"restore it, or point the link `modules` at another of {path.parent.parent}/*/modules",
)


def read_record(path: Path) -> BuildRecord:
    """Read a ``record.json``.

    Raises:
        StackyardError: it is missing, damaged or of a newer format.
    """
    return formats.load(path, RECORD)


def read_manifest(path: Path) -> Manifest:
    """Read a generation's ``manifest.json``. Raises as `read_record` does."""
    return formats.load(path, MANIFEST)
