"""What an earlier run left in a catalogue's directory: which files it made, and what it read, so that a run is quick.

`made.json` has the yard, the format and every file of the catalogue: only these are ever replaced or removed. What was
read (`read.json`) saves time, and is ignored where it is damaged.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, field, fields
from pathlib import Path
from typing import Any

from stackyard.catalogue.model import STATUSES, Catalogue, Facts, Package
from stackyard.core.errors import InputError, StackyardError
from stackyard.core.late import dataclass
from stackyard.host.files import at
from stackyard.yard import disk, formats, members
from stackyard.yard.write import atomic

OWN = ".stackyard-catalogue"
"""The directory with these files, in that of the catalogue."""
_READ_FORMAT = 1


@dataclass(frozen=True)
class Made:
    """The files of a catalogue, by their paths, and of which yard it is in which format."""

    yard: str
    form: str
    files: tuple[str, ...] = ()


def _made(value: dict[str, Any]) -> Made:
    made = members.make(Made, value)
    for name in made.files:
        at.parts(name)
    return made


MADE = formats.Kind(
    1, _made, checked_since=1, hint=lambda path: f"write it into an empty directory instead of {path.parents[1]}"
)


@dataclass(frozen=True)
class Read:
    """What was read of each revision, and of each page the key of all that it was made from, and its bytes."""

    facts: Mapping[str, Facts] = field(default_factory=dict)
    keys: Mapping[str, tuple[str, int]] = field(default_factory=dict)


def look(directory: Path, yard: str, form: str) -> Made:
    """The files that the catalogue in a directory has; none in a new or an empty directory.

    Raises:
        InputError: it holds something else, or the catalogue of another yard or of another format.
        StackyardError: it cannot be read, or its list of files is damaged.
    """
    place = directory / OWN / "made.json"
    with disk.during(f"reading {directory}", hint="choose a directory of yours with -o"):
        there = [name for name in disk.names(directory) if name != OWN] if disk.is_there(directory) else []
    if not disk.is_there(place):
        if there:
            raise InputError(
                f"{directory} holds something else: {', '.join(sorted(there)[:3])}",
                hint="name a new or an empty directory with -o",
            )
        return Made(yard, form)
    made = formats.load(place, MADE, directory)
    if (made.yard, made.form) != (yard, form):
        raise InputError(
            f"{directory} has the catalogue of {made.yard} as {made.form}, not of {yard} as {form}",
            hint="name another directory with -o, or empty this one",
        )
    return made


def begin(directory: Path, made: Made) -> None:
    """Create the directory and mark it as that of a catalogue, unless it is."""
    with disk.during(f"creating {directory}", hint="choose a directory that you can write to with -o"):
        directory.mkdir(parents=True, exist_ok=True)
        if not disk.is_there(directory / OWN / "made.json"):
            write_made(directory, made)
            ignored = "read.json\nwriter/\nnew-*\n"  # of a repository that keeps the catalogue
            atomic.write_text(directory / OWN / ".gitignore", ignored, top=directory)


def write_made(directory: Path, made: Made) -> None:
    """Note the files of the catalogue."""
    value = {"format": MADE.version, **asdict(made), "files": sorted(made.files)}
    atomic.write_json(directory / OWN / "made.json", value, checked=True, top=directory)


def read(directory: Path) -> Read:
    """What the last run read; nothing if that is missing or damaged."""
    with suppress(OSError, StackyardError, ValueError, LookupError, TypeError, AttributeError):
        with at.parent(directory, directory / OWN / "read.json") as place:
            raw = at.read_bounded(*place, at.MOST)[0]
        value = formats.content(raw)
        if value["format"] == _READ_FORMAT:
            pool = [Package(*map(str, each)) for each in value["packages"]]
            facts = {module: _facts(each, pool) for module, each in value["facts"].items()}
            return Read(facts, {str(path): (str(key), int(size)) for path, (key, size) in value["keys"].items()})
    return Read()


def _facts(value: dict[str, Any], pool: list[Package]) -> Facts:
    plain = {**value, "packages": (), "checks": {}}
    facts = members.make(Facts, plain)
    checks = {str(kind): tuple(map(int, counts)) for kind, counts in value["checks"].items()}
    if any(len(counts) != len(STATUSES) for counts in checks.values()):
        raise ValueError("not the numbers of all kinds of results")
    return Facts(**{**_values(facts), "checks": checks, "packages": tuple(pool[n] for n in value["packages"])})


def _values(facts: Facts) -> dict[str, Any]:
    return {each.name: getattr(facts, each.name) for each in fields(facts)}


def write_read(directory: Path, catalogue: Catalogue, keys: Mapping[str, str]) -> None:
    """Keep what was read for the next run."""
    numbers: dict[Package, int] = {}
    facts = {}
    for revision in (r for stack in catalogue.all_stacks for r in stack.revisions if r.facts):
        assert revision.facts is not None
        packages = [numbers.setdefault(package, len(numbers)) for package in revision.facts.packages]
        facts[revision.module] = {**_values(revision.facts), "packages": packages}
    sized = {path: (key, (directory / path).lstat().st_size) for path, key in keys.items()}
    value = {"format": _READ_FORMAT, "keys": sized, "packages": list(numbers), "facts": facts}
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    atomic.write_text(directory / OWN / "read.json", text, top=directory, synced=False)
