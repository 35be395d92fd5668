"""The manifest of one generation and its entries, as plain dataclasses, quick to read.

It is read through `yard.formats`: an older file is upgraded, a newer one refused.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, field
from datetime import date
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

from stackyard.core import grammar
from stackyard.core.late import dataclass
from stackyard.host.files import at
from stackyard.yard import formats, members
from stackyard.yard.generation import manifestfile
from stackyard.yard.generation.origin import Origin, UsedFile

MANIFEST_FORMAT = 5
State = Literal["published", "unverified", "failed", "withdrawn", "removed", "missing", "built", "held"]


def check_module(name: str) -> None:
    """Check a module's name, each part of which is also a file name.

    Raises:
        GrammarError: a part violates its grammar.
    """
    for part in name.split("/"):
        grammar.LABEL(part)


def check_place(path: str) -> None:
    """Check the path of a directory. Raises ValueError: it is relative, or contains ``..``."""
    if not path.startswith("/"):
        raise ValueError(f"not an absolute path: {path!r:.200}")
    at.parts(path[1:])


@dataclass(frozen=True)
class Entry:
    """One revision in a generation.

    Attributes:
        module: the full module name.
        directory: absolute path of the revision's directory.
        state: published; unverified; failed (its last verification failed); withdrawn (kept loadable by full name,
            hidden, without alias or default); removed (its files are in the trash: its modulefile only supports
            unloading); or missing (its files no longer exist, so it has no modulefile). A revision that was never
            published is built (not verified yet), failed, or held (a check was skipped).
        default: whether ``module load <stack>`` loads this one.
        aliases: short versions that load this one, e.g. ``2.13`` and ``2.13-py311``.
        rank: position of its variant in the stack's matrix; among the variants of one version the highest is preferred.
        hidden: not shown by `module avail`, loadable by its full name.
        deprecated: a date and a message, shown when it is loaded.
        notice: a message shown at every load.
        help: an addition to ``module help``.
        category, url: shown by ``module whatis``.
        input_hash: the input hash of its build: its name is reused only for the same inputs. Empty: not recorded.
        file: the file that it was deployed from: relative to its git work tree, else absolute.
        dated: whether its version is only the day of its solve, because its file has none.
        superseded: its file describes another revision now, or none. It stays published, with lower precedence than
            described ones.
        pinned: whether `stackyard default` made it the default of its stack, regardless of versions.
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
    category: str = ""
    url: str = ""

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
        check_module(entry.module)
        check_place(entry.folder)
        for alias in entry.aliases:
            grammar.LABEL(alias)
        if entry.successor:
            grammar.MODULE(entry.successor)
        if entry.retired:
            date.fromisoformat(entry.retired)
    manifest = members.make(Manifest, {**value, "entries": entries, "origin": _origin(value.get("origin", {}))})
    for name in manifest.files:
        at.parts(name)
    return manifest


def _origin(value: Mapping[str, Any]) -> Origin:
    files = [members.make(UsedFile, file) for file in value.get("files", ())]
    return members.make(Origin, {**value, "files": files})


def _with_origin(value: dict[str, Any]) -> dict[str, Any]:
    """Convert format 1 to 2, which records the previous generation, always number - 1 before, and superseded revisions.

    In format 1 the highest revision of a variant was the described one.
    """
    newest: dict[tuple[str, str, str], int] = {}
    for entry in value["entries"]:
        if entry["state"] != "withdrawn":
            newest[_line(entry)] = max(entry["revision"], newest.get(_line(entry), 0))
    entries = [{**entry, "superseded": entry["revision"] < newest.get(_line(entry), 0)} for entry in value["entries"]]
    return {**value, "entries": entries, "previous": value["number"] - 1}


def _line(entry: Mapping[str, Any]) -> tuple[str, str, str]:
    return entry["stack"], entry["version"], entry["variant"]


MANIFEST = formats.Kind(
    MANIFEST_FORMAT,
    _manifest,
    {1: _with_origin},  # the others only added keys
    checked_since=3,
    hint=lambda path: f"restore it, or point the link `modules` at another of {path.parent.parent}/*/modules",
)


def read_manifest(path: Path) -> Manifest:
    """Read a generation's ``manifest.json``, or its compressed file. Raises as `read_record` does."""
    try:
        raw = manifestfile.text(path)
    except (OSError, ValueError) as error:
        raise formats.unreadable(str(manifestfile.place(path)), MANIFEST, error) from error
    return _manifest_in(raw, str(manifestfile.place(path)))


@lru_cache(maxsize=4)
def _manifest_in(raw: bytes, path: str) -> Manifest:
    """The parsed manifest, cached: a deploy reads the current one a dozen times."""
    return formats.parsed(raw, path, MANIFEST)
