"""The record of one revision, as plain dataclasses.

It is read through `yard.formats`: an older file is upgraded, a newer one refused.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, field, replace
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

from stackyard.core import grammar
from stackyard.core.change import EnvironmentChange
from stackyard.core.late import dataclass
from stackyard.host.files import at
from stackyard.host.run import clock
from stackyard.yard import formats, members
from stackyard.yard.disk import DiskUse
from stackyard.yard.kinds import table
from stackyard.yard.kinds.adopted import AdoptedPrefix
from stackyard.yard.kinds.extension import BaseRevision, identity_of, payload_on
from stackyard.yard.kinds.origins import Built, origin_of
from stackyard.yard.kinds.payload import Form, Payload, check_container, payload_of
from stackyard.yard.revision.collision import Collision
from stackyard.yard.revision.manifest import check_module, check_place

RECORD_FORMAT = 10


def now() -> str:
    """The present time in the files' format: UTC, to the second."""
    return clock.now().isoformat(timespec="seconds")


KEY_START = 12
"""The digits of a compiled wheel's cache key that its `PackageRecord.build` has."""


@dataclass(frozen=True)
class PackageRecord:
    """One installed package. `source` is the channel or index; `size` in bytes as downloaded, 0 if not known.

    `of_base`: whether an extension's base has it, not the layer. `licence`: as SPDX if possible, else the original
    text; empty: unknown, or recorded by an earlier version (`deploy.described.packages` looks elsewhere then).
    """

    name: str
    version: str
    kind: Literal["conda", "pip"]
    build: str = ""
    source: str = ""
    url: str = ""
    sha256: str = ""
    size: int = 0
    requires: tuple[str, ...] = ()
    of_base: bool = False
    licence: str = ""


@dataclass(frozen=True)
class Activation:
    """The effect of activating a prefix, captured at build time.

    Attributes:
        change: the operations, in order.
        build_only: variables that were left out because they only matter for building (CC, CFLAGS, ``_CONDA_*``).
        uncaptured: a sentence for each effect that could not be captured, with its script.
    """

    change: EnvironmentChange = field(default_factory=EnvironmentChange)
    build_only: tuple[str, ...] = ()
    uncaptured: tuple[str, ...] = ()


@dataclass(frozen=True)
class BuildRecord:
    """One built revision; its file marks the directory as complete.

    Attributes:
        module: the name that users load: ``name/version-variant-revision`` in the site's template.
        input_hash: sha256 over everything that influenced the build; the same inputs need no new build.
        prefix: absolute path of the prefix.
        interpreter: the source of Python: ``source`` (conda, uv, host), ``path``, ``version``, ``sha256``.
        tools: host programs used while building, each with path and version.
        settings: the module settings (family, conflict, depends_on, aliases ...) as the spec gave them.
        checks: the stack's own checks, as `inputs.models.Check` dumps them.
        exceptions: declared exceptions for verification, as `inputs.models.CheckExceptions` dumps them.
        form: the form of its files.
        container: for a wrapped image: its `source` and `digest`, `labels`, `mode`, `commands` by name, its `shell`.
        files_sha256: sha256 of the revision's ``files.json``; empty in a revision of an earlier version.
        hash_format: how `input_hash` was computed (`make.hashes.inputs.BUILD_FORMAT`).
        base: the base of an extension; None: a complete revision.
        adopted: the adopted third-party prefix, which does not belong to the yard; None: it was built.
        collisions: the paths that several of its packages install, and the packages whose files are kept.
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
    form: Form = field(default_factory=Form)
    container: Mapping[str, Any] = field(default_factory=dict)
    files_sha256: str = ""
    hash_format: int = 2
    base: BaseRevision | None = None
    adopted: AdoptedPrefix | None = None
    collisions: tuple[Collision, ...] = ()

    @property
    def payload(self) -> Payload:
        """The payload of the revision: the places of its programs, and how to run them."""
        if self.base:
            return payload_on(self.base, self.prefix)
        return payload_of(self.form, self.prefix, Path(self.path) if self.origin.outside else None)

    @property
    def origin(self) -> Built:
        """The origin of its files: whether the yard owns them, and how to make them again."""
        return origin_of(self)

    @property
    def base_id(self) -> str:
        """The module of its base; empty for a complete revision."""
        return identity_of(self.base)[0]

    @property
    def base_hash(self) -> str:
        """The input hash of its base; empty for a complete revision."""
        return identity_of(self.base)[1]

    def bases(self, find: Callable[[BaseRevision], BuildRecord] = BaseRevision.read) -> Iterator[BaseRevision]:
        """Its base, the base of that, and so on. Raises as `find` does, which reads the record of each."""
        yield from self.base.lineage(find) if self.base else ()

    def lineage(self, find: Callable[[BaseRevision], BuildRecord | None] = BaseRevision.read) -> Iterator[BuildRecord]:
        """The revision and its bases, as far as `find` has the records. Raises as `find` does."""
        here: BuildRecord | None = self
        while here is not None:
            yield here
            here = find(here.base) if here.base else None

    @property
    def own_packages(self) -> tuple[PackageRecord, ...]:
        """The packages of this revision itself: for an extension, those of its layer."""
        return tuple(package for package in self.packages if not package.of_base)

    def with_launcher(self, sha256: str) -> BuildRecord:
        """The record with the hash of a new launcher."""
        return replace(self, form=replace(self.form, launcher=sha256))

    def to_json(self) -> dict[str, Any]:
        """The record as JSON values."""
        value = asdict(self)
        value["format"] = RECORD_FORMAT
        value["form"] = self.form.to_json()
        for name in ("container", "collisions"):
            if not value[name]:
                del value[name]
        value["activation"]["change"] = self.activation.change.to_json()
        return value

    @classmethod
    def from_json(cls, value: Mapping[str, Any], origin: str = "record.json") -> BuildRecord:
        """Read what `to_json` wrote, in this version or an earlier one; `origin` names the file in errors."""
        return formats.read(value, origin, RECORD)


def _record(value: dict[str, Any]) -> BuildRecord:
    activation = value.get("activation", {})
    change = EnvironmentChange.from_json(activation.get("change", []))
    loaded = members.make(
        BuildRecord,
        {
            **value,
            "packages": [members.make(PackageRecord, package) for package in value.get("packages", ())],
            "activation": members.make(Activation, {**activation, "change": change}),
            "disk": members.make(DiskUse, value.get("disk", {})),
            "form": members.make(Form, value.get("form", {})),
            "base": members.make(BaseRevision, value["base"]) if value.get("base") else None,
            "adopted": members.make(AdoptedPrefix, value["adopted"]) if value.get("adopted") else None,
            "collisions": [_collision(row) for row in value.get("collisions", ())],
        },
    )
    for path in (loaded.path, loaded.prefix, *((loaded.base.yard, loaded.base.prefix) if loaded.base else ())):
        check_place(path)
    for name in (*(loaded.settings.get("commands") or ()), *(loaded.container.get("commands") or ())):
        at.component(name)
    payload_of(loaded.form, loaded.prefix)
    check_container(loaded.form, loaded.container)
    table.require(loaded.form.kind, loaded.origin.kind, on_base=bool(loaded.base_id))
    check_module(loaded.module)
    _check_settings(loaded)
    return loaded


def _collision(value: Mapping[str, Any]) -> Collision:
    collision = members.make(Collision, value)
    for path in collision.files:
        at.parts(path)
    return collision


def _check_settings(record: BuildRecord) -> None:
    """Check the names in a record that its modulefile uses; operations check their own.

    Raises:
        GrammarError: a name violates its grammar.
    """
    settings = record.settings
    for rule, names in (
        (grammar.VARIABLE, settings.get("variables") or {}),
        (grammar.VARIABLE, [entry["variable"] for entry in record.licences if entry.get("variable")]),
        (grammar.FAMILY, filter(None, [settings.get("family")])),
        (grammar.MODULE, (*(settings.get("conflict") or ()), *(settings.get("depends_on") or ()))),
        (grammar.VALUE, (settings.get("variables") or {}).values()),
    ):
        for name in names:
            rule(name)


def _with_form(value: dict[str, Any]) -> dict[str, Any]:
    """Convert to format 2, which has the form of the payload. It also renamed two operations; old ones are read."""
    return {**value, "form": "prefix"}


def _with_former_hash(value: dict[str, Any]) -> dict[str, Any]:
    """Convert to format 4, which records the hash format; before, the hash covered checks and users' policy."""
    return {**value, "hash_format": 1}


def _with_image(value: dict[str, Any]) -> dict[str, Any]:
    """Convert to format 5, which describes the form, possibly an image."""
    return {**value, "form": {"kind": value["form"]}}


RECORD = formats.Kind(
    RECORD_FORMAT,
    _record,
    {1: _with_form, 3: _with_former_hash, 4: _with_image},  # the others only added keys
    lambda path: f"restore it: `stackyard verify --repair`; or move {path.parent} away and deploy its file again",
    checked_since=3,
)


def read_record(path: Path, top: Path | None = None) -> BuildRecord:
    """Read a ``record.json``; `top` is as for `formats.load`.

    Raises:
        StackyardError: it is missing, damaged or of a newer format.
    """
    return _record_in(formats.bytes_of(path, RECORD, top), str(path))


@lru_cache(maxsize=64)
def _record_in(raw: bytes, path: str) -> BuildRecord:
    """The parsed record, cached by its bytes, since builds on a base and deploys read it repeatedly."""
    return formats.parsed(raw, path, RECORD)
