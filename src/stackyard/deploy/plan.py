"""Plans the work of a deploy for each variant: nothing, publish an existing build, or build. Writes nothing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from itertools import chain, count
from typing import Literal

from stackyard.core.errors import StackyardError
from stackyard.core.late import dataclass
from stackyard.core.progress import Progress
from stackyard.deploy.published.labels import without_labels
from stackyard.inputs.models import Site, Stack, Variant
from stackyard.inputs.stacks import naming
from stackyard.lock.lockfile.model import Lock, LockedVariant
from stackyard.make import builder
from stackyard.verify.expectations import Expectations, asked, in_force
from stackyard.yard import disk
from stackyard.yard.generation import generations
from stackyard.yard.layout import Yard
from stackyard.yard.others import moved
from stackyard.yard.revision import revisions
from stackyard.yard.revision.directories import RevisionPaths
from stackyard.yard.revision.manifest import Entry
from stackyard.yard.revision.record import BuildRecord
from stackyard.yard.write import lease, trash

Action = Literal["unchanged", "inherited", "publish", "build"]


@dataclass(frozen=True)
class Task:
    """One variant and the action for it.

    `action`: ``unchanged`` (already published), ``inherited`` (a parent yard publishes the same inputs), ``publish``
    (already built; not visible now, or to be verified again: it failed, or its checks changed) or ``build``. `rank` is
    the position of the variant in the matrix. `thrown`: the removed revision whose files are in the trash.
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
    thrown: trash.Item | None = None

    @property
    def is_kept(self) -> bool:
        """Whether the revision is published as its file describes it, so that nothing is built or verified."""
        return self.action in ("unchanged", "inherited")


@dataclass(frozen=True)
class Planner:
    """Plans the tasks of one stack from its lock and the yard's revisions.

    `rebuild`: each variant is built as a new revision, even if one with the same inputs exists.
    """

    stack: Stack
    lock: Lock
    site: Site
    yard: Yard
    platform: str
    rebuild: bool = False

    def tasks(self) -> tuple[Task, ...]:
        """The tasks in the order of the matrix.

        Raises:
            StackyardError: no variant of the stack is locked for this platform.
        """
        known = {yard: self._known(yard) for yard in self.yard.lineage()}
        tasks: list[Task] = []
        indices = self.stack.chosen or range(len(self.stack.variants))
        for rank, variant in ((n, self.stack.variants[n]) for n in indices):
            locked = self.lock.find(variant.version, variant.name, self.platform)
            if locked is not None:
                digest = builder.input_hash(without_labels(variant), locked, self.site)
                same = {yard: self._same(known[yard], variant, locked, digest) for yard in known}
                existing = None if self.rebuild else self._existing(asked(variant), same)
                thrown = None if self.rebuild or existing else self._thrown(variant, locked, rank, digest)
                tasks.append(
                    self._reuse(variant, locked, rank, digest, *existing)
                    if existing
                    else thrown or self._build(variant, locked, rank, digest, known[self.yard])
                )
        if not tasks:
            platforms = ", ".join(sorted({v.platform for v in self.lock.variants})) or "none"
            raise StackyardError(
                f"{self.stack.name} is locked for {platforms}; this machine is {self.platform}",
                hint=f"deploy on such a machine, or add {self.platform} to `platforms:` of the site or the stack",
            )
        return tuple(tasks)

    def _same(
        self, known: Sequence[BuildRecord], variant: Variant, locked: LockedVariant, digest: str
    ) -> list[BuildRecord]:
        """The revisions of the variant that were built from these inputs."""
        plain = without_labels(variant)
        own = (
            record
            for record in known
            if self._is_of(record, variant) and revisions.can_stay(RevisionPaths.of(record.path))
        )
        return [record for record in own if builder.is_build_of(record, plain, locked, self.site, digest)]

    def _existing(self, checks: Expectations, same: dict[Yard, list[BuildRecord]]) -> tuple[Action, BuildRecord] | None:
        """A built revision with the same inputs: published here, published by a parent, or built here only."""
        for yard in self.yard.lineage():
            visible = self._visible[yard]
            shown = [r for r in same[yard] if r.module in visible]
            if shown:
                record = revisions.latest(shown)
                if yard is not self.yard:
                    return "inherited", record
                return _action(visible[record.module], record, checks), record
            if same[yard] and yard is self.yard:
                return "publish", revisions.latest(same[yard])
        return None

    def _is_of(self, record: BuildRecord, variant: Variant) -> bool:
        """Whether a record is of this variant; a version that is only a date is not compared."""
        return record.variant == variant.name and (self.stack.dated or record.version == variant.version)

    def _reuse(
        self, variant: Variant, locked: LockedVariant, rank: int, digest: str, action: Action, record: BuildRecord
    ) -> Task:
        paths = RevisionPaths.of(record.path)
        return Task(action, self.stack, variant, locked, digest, record.revision, record.module, paths, rank, record)

    def _thrown(self, variant: Variant, locked: LockedVariant, rank: int, digest: str) -> Task | None:
        """A task that restores the last removed revision of these inputs, if that is possible."""
        for item in reversed(trash.items(self.yard)):
            record = self._record_of(item)
            if record and self._same([record], variant, locked, digest) and not disk.is_there(item.origin):
                return replace(self._reuse(variant, locked, rank, digest, "publish", record), thrown=item)
        return None

    def _known(self, yard: Yard) -> list[BuildRecord]:
        """The revisions of the stack that are at their recorded path; others were moved away, and are not used."""
        records = revisions.built(yard, self.stack.name, lambda *_: None)
        return [record for record in records if disk.is_there(RevisionPaths.of(record.path).record)]

    def _record_of(self, item: trash.Item) -> BuildRecord | None:
        """The record of a removed revision of this stack; None for other items, and if the yard was moved since."""
        paths = RevisionPaths(item.content)
        if item.what.sort != "revision" or item.what.module.partition("/")[0] != self.stack.name:
            return None
        record = revisions.readable(paths) if disk.is_there(paths.record) and revisions.can_stay(paths) else None
        return None if record is None or moved.is_elsewhere(self.yard, record.path) else record

    def _build(self, variant: Variant, locked: LockedVariant, rank: int, digest: str, known: list[BuildRecord]) -> Task:
        """A build under a new name, or under the free name of the same inputs.

        A directory in which another process may still be building is not used, nor one with a record, even if it cannot
        be read.
        """
        ever: list[Entry | BuildRecord] = [*self._published, *known]
        used = [u for u in ever if (u.version, u.variant) == (variant.version, variant.name)]
        free = count(max((u.revision + 1 for u in used), default=self.site.modules.first_revision))
        again = [] if self.rebuild else [u for u in used if u.input_hash == digest]
        lost = [(u.revision, self._directory(u.module.partition("/")[2])) for u in again]
        places = chain(lost, ((n, self._paths(variant, n)) for n in free))
        empty = (place for place in places if not disk.is_there(place[1].record))
        revision, paths = next(place for place in empty if not lease.is_occupied(place[1].building))
        module = f"{self.stack.name}/{paths.root.name}"
        return Task("build", self.stack, variant, locked, digest, revision, module, paths, rank)

    def _paths(self, variant: Variant, revision: int) -> RevisionPaths:
        return self._directory(naming.module_version(self.site, variant.version, variant.name, revision))

    def _directory(self, name: str) -> RevisionPaths:
        return self.yard.revision(self.stack.name, name)

    @cached_property
    def _visible(self) -> dict[Yard, dict[str, Entry]]:
        """The entries that users can load, by module, in this yard and in its parents."""
        return {yard: {e.module: e for e in generations.entries(yard) if e.is_visible} for yard in self.yard.lineage()}

    @cached_property
    def _published(self) -> Sequence[Entry]:
        """Every revision of the stack ever published here or in a parent, once for each input hash.

        Generations with a damaged manifest are left out: since format 2, the current one lists all revisions.
        """
        past = (m for yard in self.yard.lineage() for m in generations.complete(yard))
        entries = (entry for manifest in past for entry in manifest.entries if entry.stack == self.stack.name)
        return list({(entry.module, entry.input_hash): entry for entry in entries}.values())


def take_back(task: Task, progress: Progress) -> None:
    """Move a removed revision from the trash to its place, so that the same inputs need no second build.

    Raises:
        StackyardError: it is being deleted.
    """
    if task.thrown is not None:
        trash.bring_back(task.thrown, again=True)
        trash.forget(task.thrown)
        progress.notice(
            f"{task.module} was in the trash, and is verified and published again; `deploy --rebuild` builds it anew"
        )


def _action(entry: Entry, record: BuildRecord, checks: Expectations) -> Action:
    """The action for a published revision: it is verified again if it failed or its checks have changed."""
    if entry.state == "failed":
        return "publish"
    return "unchanged" if in_force(record).cover(checks) else "publish"
