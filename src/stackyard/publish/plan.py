"""What a deploy has to do for each variant: nothing, publish an existing build, or build. Reads, never writes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from stackyard.build import builder
from stackyard.errors import StackyardError
from stackyard.lock.model import Lock, LockedVariant
from stackyard.publish.labels import without_labels
from stackyard.spec import naming
from stackyard.spec.models import Site, Stack, Variant
from stackyard.yard import generations, revisions
from stackyard.yard.layout import RevisionPaths, Yard
from stackyard.yard.record import BuildRecord

Action = Literal["unchanged", "inherited", "publish", "build"]


@dataclass(frozen=True)
class Task:
    """One variant and what to do for it.

    `action`: ``unchanged`` (already published), ``inherited`` (a parent yard publishes the same inputs), ``publish``
    (already built, not visible now) or ``build``. `rank` is the position of the variant in the matrix.
    """

    action: Action
    stack: Stack
    variant: Variant
    locked: LockedVariant
    input_hash: str
    revision: int
    module: str
    paths: RevisionPaths
    rank: int
    record: BuildRecord | None = None


@dataclass(frozen=True)
class Planner:
    """Plans one stack from its lock and the revisions that the yard has."""

    stack: Stack
    lock: Lock
    site: Site
    yard: Yard
    platform: str

    def tasks(self) -> tuple[Task, ...]:
        """The tasks in the order of the matrix.

        Raises:
            StackyardError: no variant of the stack is locked for this platform.
        """
        known = {each: revisions.built(each, self.stack.name) for each in self.yard.lineage()}
        tasks: list[Task] = []
        for rank, variant in enumerate(self.stack.variants):
            locked = self.lock.find(variant.version, variant.name, self.platform)
            if locked is not None:
                digest = builder.input_hash(without_labels(variant), locked, self.site)
                found = self._existing(variant, digest, known)
                tasks.append(
                    self._reuse(variant, locked, rank, *found)
                    if found
                    else self._build(variant, locked, rank, digest, known[self.yard])
                )
        if not tasks:
            platforms = ", ".join(sorted({v.platform for v in self.lock.variants})) or "none"
            raise StackyardError(
                f"{self.stack.name} is locked for {platforms}; this machine is {self.platform}",
                hint=f"deploy on such a machine, or add {self.platform} to `platforms:` of the site or the stack",
            )
        return tuple(tasks)

    def _existing(
        self, variant: Variant, digest: str, known: dict[Yard, list[BuildRecord]]
    ) -> tuple[Action, BuildRecord] | None:
        """A built revision with the same inputs: published here, published by a parent, or only built here."""
        for each in self.yard.lineage():
            visible = _visible(each)
            same = [r for r in known[each] if r.input_hash == digest and self._is_of(r, variant)]
            shown = [r for r in same if r.module in visible]
            if shown:
                return ("unchanged" if each is self.yard else "inherited"), max(shown, key=lambda r: r.created)
            if same and each is self.yard:
                return "publish", max(same, key=lambda r: r.created)
        return None

    def _is_of(self, record: BuildRecord, variant: Variant) -> bool:
        """Whether a record is of this variant; where the version is only a date it is not compared."""
        return record.variant == variant.name and (self.stack.dated or record.version == variant.version)

    def _reuse(self, variant: Variant, locked: LockedVariant, rank: int, action: Action, record: BuildRecord) -> Task:
        paths = RevisionPaths.of(record.path)
        return Task(
            action, self.stack, variant, locked, record.input_hash, record.revision, record.module, paths, rank, record
        )

    def _build(self, variant: Variant, locked: LockedVariant, rank: int, digest: str, known: list[BuildRecord]) -> Task:
        numbers = [r.revision for r in known if (r.version, r.variant) == (variant.version, variant.name)]
        revision = max(numbers) + 1 if numbers else self.site.modules.first_revision
        folder = naming.module_version(self.site, variant.version, variant.name, revision)
        paths = self.yard.revision(self.stack.name, folder)
        return Task("build", self.stack, variant, locked, digest, revision, f"{self.stack.name}/{folder}", paths, rank)


def _visible(yard: Yard) -> set[str]:
    manifest = generations.current(yard)
    return {e.module for e in manifest.entries if e.state != "withdrawn"} if manifest else set()
