"""What was built: the record of one revision, and the manifest of one generation. Plain dataclasses, quick to read.

Both are read through `yard.formats`: an older file is upgraded, a newer one refused.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, field, replace
from datetime import date
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
from stackyard.yard.generation import manifestfile
from stackyard.yard.generation.origin import Origin, UsedFile
from stackyard.yard.kinds import table
from stackyard.yard.kinds.adopted import AdoptedPrefix
from stackyard.yard.kinds.extension import BaseRevision, payload_on
from stackyard.yard.kinds.origins import Built, origin_of
from stackyard.yard.kinds.payload import Form, Payload, check_container, payload_of
from stackyard.yard.revision.collision import Collision

RECORD_FORMAT = 9
MANIFEST_FORMAT = 4
State = Literal["published", "unverified", "failed", "withdrawn", "removed", "missing", "built", "held"]


def now() -> str:
    """The present time as files hold it: UTC, to the second."""
    return clock.now().isoformat(timespec="seconds")


@dataclass(frozen=True)
class PackageRecord:
    """One installed package. `source` is the channel or index; `size` in bytes as downloaded, 0 if not known.

    `of_base`: the base of an extension has it, not the layer.
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
        checks: the stack's own checks, as `inputs.models.Check` dumps them.
        exceptions: declared exceptions for verification, as `inputs.models.CheckExceptions` dumps them.
        form: how its files are kept.
        container: of a wrapped image: its `source` and `digest`, `labels`, `mode`, `commands` by name, its `shell`.
        files_sha256: sha256 of the revision's ``files.json``; empty in a revision of an earlier version.
        hash_format: how `input_hash` was computed (`make.inputs.BUILD_FORMAT`).
        base: of an extension, the revision that it is a layer on; None: it is complete in itself.
        adopted: where the files are that others made, and that are not the yard's; None: it was built.
        collisions: the paths that several of its packages install, and whose files are there.
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
        """What the revision holds, which knows where its programs are and how they are run."""
        if self.base:
            return payload_on(self.base, self.prefix)
        return payload_of(self.form, self.prefix, Path(self.path) if self.origin.outside else None)

    @property
    def origin(self) -> Built:
        """Who made its files, which knows whether they are the yard's and how they are made again."""
        return origin_of(self)

    @property
    def base_id(self) -> str:
        """The module of its base; empty: it is complete in itself."""
        return self.base.id if self.base else ""

    def bases(self, find: Callable[[BaseRevision], BuildRecord] = BaseRevision.read) -> Iterator[BaseRevision]:
        """Its base, the base of that, and so on. Raises as `find` does, which reads the record of each."""
        yield from self.base.lineage(find) if self.base else ()

    def lineage(self, find: Callable[[BaseRevision], BuildRecord | None] = BaseRevision.read) -> Iterator[BuildRecord]:
        """The revision and those that it extends, as far as `find` has the record of each. Raises as that does."""
        here: BuildRecord | None = self
        while here is not None:
            yield here
            here = find(here.base) if here.base else None

    @property
    def own_packages(self) -> tuple[PackageRecord, ...]:
        """The packages of this revision itself: of an extension, those of its layer."""
        return tuple(package for package in self.packages if not package.of_base)

    def with_launcher(self, sha256: str) -> BuildRecord:
        """The same with the hash of a launcher that was made again."""
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
    made = members.make(
        BuildRecord,
        {
            **value,
            "packages": [members.make(PackageRecord, package) for package in value.get("packages", ())],
            "activation": members.make(Activation, {**activation, "change": change}),
            "disk": members.make(DiskUse, value.get("disk", {})),
            "form": members.make(Form, value.get("form", {})),
            "base": members.make(BaseRevision, value["base"]) if value.get("base") else None,
            "adopted": members.make(AdoptedPrefix, value["adopted"]) if value.get("adopted") else None,
            "collisions": [_collision(each) for each in value.get("collisions", ())],
        },
    )
    for path in (made.path, made.prefix, *((made.base.yard, made.base.prefix) if made.base else ())):
        _check_place(path)
    for name in (*(made.settings.get("commands") or ()), *(made.container.get("commands") or ())):
        at.component(name)
    payload_of(made.form, made.prefix)
    check_container(made.form, made.container)
    table.require(made.form.kind, made.origin.kind, on_base=bool(made.base_id))
    _check_module(made.module)
    _check_settings(made)
    return made


def _collision(value: Mapping[str, Any]) -> Collision:
    made = members.make(Collision, value)
    for path in made.files:
        at.parts(path)
    return made


def _check_module(name: str) -> None:
    """Each part of a module's name is a file's name too.

    Raises:
        NotAllowed: one does not have its grammar.
    """
    for part in name.split("/"):
        grammar.LABEL(part)


def _check_place(path: str) -> None:
    """The path of a directory, to which names are joined. Raises ValueError: it is relative, or leads back."""
    if not path.startswith("/"):
        raise ValueError(f"not an absolute path: {path!r:.200}")
    at.parts(path[1:])


def _check_settings(record: BuildRecord) -> None:
    """The names in a record that enter its modulefile; its operations check their own.

    Raises:
        NotAllowed: one does not have its grammar.
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
    """Format 2 names the form of the payload. It also renamed two operations, whose former names are always read."""
    return {**value, "form": "prefix"}


def _without_files(value: dict[str, Any]) -> dict[str, Any]:
    """Format 3 has a checksum, and the hash of ``files.json``."""
    return value


def _with_former_hash(value: dict[str, Any]) -> dict[str, Any]:
    """Format 4 names how its hash was computed; before, the hash covered checks and the policy for users too."""
    return {**value, "hash_format": 1}


def _with_image(value: dict[str, Any]) -> dict[str, Any]:
    """Format 5 describes the form, which may be an image."""
    return {**value, "form": {"kind": value["form"]}}


def _without_base(value: dict[str, Any]) -> dict[str, Any]:
    """Format 6 names the base of an extension; before, every revision was complete in itself."""
    return value


def _all_built(value: dict[str, Any]) -> dict[str, Any]:
    """Format 7 names the prefix of an adopted revision; before, the yard had built every revision."""
    return value


def _further(value: dict[str, Any]) -> dict[str, Any]:
    """Format 8 has the hash of an image's launcher, which earlier versions did not record (`upkeep.health.launchers`),
    and the paths that several packages install, for which they did not look."""
    return value


def _fewer_operations(value: dict[str, Any]) -> dict[str, Any]:
    """Format 9 has two more operations: what activation scripts append."""
    return value


RECORD = formats.Kind(
    RECORD_FORMAT,
    _record,
    {
        1: _with_form,
        2: _without_files,
        3: _with_former_hash,
        4: _with_image,
        5: _without_base,
        6: _all_built,
        7: _further,
        8: _fewer_operations,
    },
    lambda path: f"restore it: `stackyard verify --repair`; or move {path.parent} away and deploy its file again",
    checked_since=3,
)


@dataclass(frozen=True)
class Entry:
    """One revision in a generation.

    Attributes:
        module: the full module name.
        directory: absolute path of the revision's directory.
        state: published; unverified; failed (its last verification failed); withdrawn (kept loadable by full name,
            hidden, without alias or default); removed (its files are put aside: its modulefile unloads it, and
            refuses to load it); or missing (its files no longer exist, so it has no modulefile). A revision that was
            never published is built (not verified yet), failed, or held (a check was skipped).
        default: whether ``module load <stack>`` loads this one.
        aliases: short versions that load this one, e.g. ``2.13`` and ``2.13-py311``.
        rank: position of its variant in the stack's matrix; among the variants of one version the highest is preferred.
        hidden: not shown by `module avail`, loadable by its full name.
        deprecated: a date and a message, shown when it is loaded.
        notice: a message shown at every load.
        help: added to what ``module help`` prints.
        input_hash: that of its build: its name is used again only for the same inputs. Empty: not recorded.
        file: the file that it was deployed from: relative to its git work tree, absolute where it is in none.
        dated: its version is only the day of its solve, because its file gives none.
        superseded: its file no longer describes it, but another revision or none. It stays, behind those that are
            described, whatever their numbers are.
        pinned: `stackyard default` made it what the stack's bare name loads, whichever version is the highest.
        retired: the date from which loading it shows a warning (``2027-03-01``); empty: it is not retired.
        successor: the module to use instead of a retired or removed one.
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
    input_hash: str = ""
    file: str = ""
    dated: bool = False
    superseded: bool = False
    pinned: bool = False
    retired: str = ""
    successor: str = ""

    @property
    def is_visible(self) -> bool:
        """Whether users can load it by a short name, if its labels and its rank permit."""
        return self.state not in ("withdrawn", "removed", "missing")


@dataclass(frozen=True)
class Manifest:
    """The revisions of one generation, the reason for it, and who published it.

    Every revision that was ever published stays in the list, so that its name is not given to another one.

    Attributes:
        content: the number of the generation whose content this one repeats after a rollback or a verification, else 0.
        previous: the number of the generation that was current before, 0 for the first one.
        files: sha256 of every file below ``modules/``, by its path there; empty in one of an earlier version.
    """

    number: int
    created: str
    reason: str
    entries: tuple[Entry, ...] = ()
    content: int = 0
    previous: int = 0
    origin: Origin = field(default_factory=Origin)
    files: Mapping[str, str] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """The manifest as JSON values."""
        return {"format": MANIFEST_FORMAT, **asdict(self)}

    @classmethod
    def from_json(cls, value: Mapping[str, Any], origin: str = "manifest.json") -> Manifest:
        """Read what `to_json` wrote, in this version or an earlier one; `origin` names the file in errors."""
        return formats.read(value, origin, MANIFEST)


def _manifest(value: dict[str, Any]) -> Manifest:
    entries = [members.make(Entry, entry) for entry in value["entries"]]
    for entry in entries:
        _check_module(entry.module)
        _check_place(entry.folder)
        for alias in entry.aliases:
            grammar.LABEL(alias)
        if entry.successor:
            grammar.MODULE(entry.successor)
        if entry.retired:
            date.fromisoformat(entry.retired)
    made = members.make(Manifest, {**value, "entries": entries, "origin": _origin(value.get("origin", {}))})
    for name in made.files:
        at.parts(name)
    return made


def _origin(value: Mapping[str, Any]) -> Origin:
    files = [members.make(UsedFile, file) for file in value.get("files", ())]
    return members.make(Origin, {**value, "files": files})


def _with_origin(value: dict[str, Any]) -> dict[str, Any]:
    """Format 2 names the previous generation, which was always the number before, and the superseded revisions.

    In format 1 the highest revision of a variant was the present one.
    """
    newest: dict[tuple[str, str, str], int] = {}
    for entry in value["entries"]:
        if entry["state"] != "withdrawn":
            newest[_line(entry)] = max(entry["revision"], newest.get(_line(entry), 0))
    entries = [{**entry, "superseded": entry["revision"] < newest.get(_line(entry), 0)} for entry in value["entries"]]
    return {**value, "entries": entries, "previous": value["number"] - 1}


def _with_defaults(value: dict[str, Any]) -> dict[str, Any]:
    """Format 3 added a checksum and the hashes of the modulefiles, format 4 what `retire` and `remove` say."""
    return value


def _line(entry: Mapping[str, Any]) -> tuple[str, str, str]:
    return entry["stack"], entry["version"], entry["variant"]


MANIFEST = formats.Kind(
    MANIFEST_FORMAT,
    _manifest,
    {1: _with_origin, 2: _with_defaults, 3: _with_defaults},
    checked_since=3,
    hint=lambda path: f"restore it, or point the link `modules` at another of {path.parent.parent}/*/modules",
)


def read_record(path: Path, top: Path | None = None) -> BuildRecord:
    """Read a ``record.json``; `top` is as for `formats.load`.

    Raises:
        StackyardError: it is missing, damaged or of a newer format.
    """
    return _record_in(formats.bytes_of(path, RECORD, top), str(path))


@lru_cache(maxsize=64)
def _record_in(raw: bytes, path: str) -> BuildRecord:
    """The same bytes are the same record, which a build on a base and each step of a deploy ask for again."""
    return formats.parsed(raw, path, RECORD)


def read_manifest(path: Path) -> Manifest:
    """Read a generation's ``manifest.json``, or what is packed beside it. Raises as `read_record` does."""
    try:
        raw = manifestfile.text(path)
    except (OSError, ValueError) as error:
        raise formats.unreadable(str(manifestfile.place(path)), MANIFEST, error) from error
    return _manifest_in(raw, str(manifestfile.place(path)))


@lru_cache(maxsize=4)
def _manifest_in(raw: bytes, path: str) -> Manifest:
    """The same for a manifest: the steps of a deploy ask a dozen times for what is published."""
    return formats.parsed(raw, path, MANIFEST)
