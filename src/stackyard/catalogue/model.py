"""What a catalogue shows: the revisions of a yard with their packages and checks. Plain values, no paths on disk."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import field
from functools import cached_property
from typing import Any, NamedTuple

from stackyard.core.late import dataclass
from stackyard.core.names import canonical
from stackyard.lock.explain.diff import Diff, compare
from stackyard.yard.revision.manifest import Entry
from stackyard.yard.revision.record import PackageRecord

STATUSES = ("passed", "failed", "skipped", "warned")
"""The order of the numbers in `Facts.checks`."""
MAIN = 12
"""Packages that stand for a revision whose lock does not tell which ones were asked for."""


class Package(NamedTuple):
    """One installed package; revisions share equal ones. `licence` is SPDX if possible, empty if unknown."""

    name: str
    version: str
    build: str
    kind: str
    licence: str


@dataclass(frozen=True)
class Facts:
    """What is known of one revision from its own files.

    Attributes:
        stamp: changes with those files: the facts are read again only then.
        asked: the names of the packages that its file asks for, as written there.
        bytes, files: on disk; `entries`: inside, of an image.
        checks: for each kind of check how many passed, failed, were skipped and warned.
        checked: when it was verified last; empty: never. `verdict`: the result.
        command: a command of the stack, for examples.
        base: the revision that it extends.
        identities: the hashes by which it is cited.
    """

    stamp: str
    summary: str = ""
    platform: str = ""
    python: str = ""
    axes: Mapping[str, str] = field(default_factory=dict)
    asked: tuple[str, ...] = ()
    bytes: int = 0
    files: int = 0
    entries: int = 0
    checks: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    checked: str = ""
    verdict: str = ""
    command: str = "python"
    base: str = ""
    identities: Mapping[str, str] = field(default_factory=dict)
    packages: tuple[Package, ...] = ()

    @cached_property
    def versions(self) -> dict[str, str]:
        """The version of each package, by its canonical name; of two with one name that of pip, which is imported."""
        return {canonical(package.name): package.version for package in self.packages}

    @cached_property
    def main(self) -> dict[str, str]:
        """The versions of the packages that were asked for, by name, else of the first ones."""
        known = self.versions
        asked = {name: known[canonical(name)] for name in self.asked if canonical(name) in known}
        return asked or {package.name: package.version for package in self.packages[:MAIN]}


@dataclass(frozen=True)
class Revision:
    """One published revision. `facts` is None where its files no longer exist or cannot be read."""

    entry: Entry
    facts: Facts | None

    @property
    def module(self) -> str:
        """The name that users load."""
        return self.entry.module

    @property
    def label(self) -> str:
        """The module's name without that of its stack."""
        return self.entry.module.partition("/")[2]

    @property
    def is_listed(self) -> bool:
        """Whether it is in tables, in the search and in the feed; others keep their page only."""
        return self.entry.is_visible and self.facts is not None

    @property
    def day(self) -> str:
        """The day on which it was built."""
        return self.entry.created[:10]

    @property
    def state(self) -> str:
        """Its state in a word or two, for people."""
        states = {"published": "verified", "failed": "a check failed", "unverified": "not verified"}
        return states.get(self.entry.state, self.entry.state)


@dataclass(frozen=True)
class Stack:
    """One stack with the revisions that have a page, the newest version first."""

    name: str
    revisions: tuple[Revision, ...]

    @cached_property
    def listed(self) -> tuple[Revision, ...]:
        """The revisions that are shown."""
        return tuple(revision for revision in self.revisions if revision.is_listed)

    @cached_property
    def newest(self) -> Revision:
        """The default, else the newest one that is shown."""
        return next((r for r in self.listed if r.entry.default), self.listed[0])

    def before(self, revision: Revision) -> Revision | None:
        """The previous revision of the same variant, to which one is compared."""
        return self._before.get(revision.module)

    @cached_property
    def _before(self) -> dict[str, Revision]:
        last: dict[str, Revision] = {}
        before: dict[str, Revision] = {}
        for revision in reversed(self.revisions):
            if revision.entry.variant in last:
                before[revision.module] = last[revision.entry.variant]
            if revision.facts:
                last[revision.entry.variant] = revision
        return before

    @property
    def summary(self) -> str:
        """What its default says of itself."""
        facts = self.newest.facts
        return facts.summary if facts else ""


@dataclass(frozen=True)
class Catalogue:
    """Everything that a catalogue shows.

    Attributes:
        name, summary: the site's.
        modules: the directory for MODULEPATH.
        url: where it is published; empty: not known, and nothing needs it.
        number: the generation that is shown; `updated` is when it was published.
        yard: identifies the yard.
    """

    name: str
    summary: str
    modules: str
    url: str
    number: int
    updated: str
    yard: str
    all_stacks: tuple[Stack, ...]

    @property
    def stacks(self) -> Iterator[Stack]:
        """The stacks of which anything is shown, by name."""
        return (stack for stack in self.all_stacks if stack.listed)

    @cached_property
    def listed(self) -> tuple[Revision, ...]:
        """All revisions that are shown: by stack, the oldest version first, so that neighbours have much in common."""
        return tuple(revision for stack in self.stacks for revision in reversed(stack.listed))

    @property
    def news(self) -> list[Revision]:
        """The revisions that are shown, the newest build first."""
        return sorted(self.listed, key=lambda r: (r.entry.created, r.module), reverse=True)

    @property
    def retiring(self) -> list[Revision]:
        """The revisions with an end date, the earliest first."""
        return sorted((r for r in self.listed if r.entry.retired), key=lambda r: (r.entry.retired, r.module))


def changes(old: Facts, new: Facts) -> Diff:
    """What changed between two revisions; only packages that differ are compared."""
    same = set(old.packages) & set(new.packages)
    return compare(*([_record(p) for p in side.packages if p not in same] for side in (old, new)))


def _record(package: Package) -> PackageRecord:
    kind: Any = package.kind
    return PackageRecord(package.name, package.version, kind, package.build)
