"""The next generation while it is being written: modules, manifest, number. Used by deploy and rollback."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import field
from pathlib import Path
from types import MappingProxyType

from stackyard.core.late import dataclass
from stackyard.deploy.published import share
from stackyard.expose import spider
from stackyard.expose.completed import show_names, write_names
from stackyard.expose.environments import show_environments, write_environments
from stackyard.expose.generation import Texts, module_texts, write_modules
from stackyard.expose.root import check_root, make_root
from stackyard.inputs.workspace import Workspace
from stackyard.yard import disk
from stackyard.yard.generation import generations
from stackyard.yard.generation.generations import Base
from stackyard.yard.generation.origin import Origin, origin
from stackyard.yard.layout import Yard, place_of
from stackyard.yard.revision import revisions
from stackyard.yard.revision.directories import GenerationPaths, RevisionPaths
from stackyard.yard.revision.manifest import Entry, Manifest
from stackyard.yard.revision.record import BuildRecord, now
from stackyard.yard.write import atomic, trash


@dataclass(frozen=True)
class Step:
    """A generation to publish: its entries, the reason, and the number of an older generation if it repeats one.

    `missing` has the revisions that should be visible but whose files no longer exist.
    """

    entries: tuple[Entry, ...]
    reason: str
    content: int = 0
    missing: tuple[Entry, ...] = ()


@dataclass
class Draft:
    """A generation that users do not see yet, in a directory of its own."""

    workspace: Workspace
    paths: GenerationPaths
    origin: Origin
    entries: tuple[Entry, ...] | None = None
    records: Mapping[str, BuildRecord] = field(default_factory=dict)
    texts: Texts = field(default_factory=dict)

    @property
    def modules(self) -> Path:
        """Its modulefiles, through which revisions are verified before it is published."""
        return self.paths.modules

    def write(self, entries: Iterable[Entry]) -> None:
        """Write exactly the modules of these entries; modules written before are removed."""
        self.entries = tuple(entries)
        yard = self.workspace.yard
        for part in (self.modules, self.paths.envs):
            with suppress(OSError):
                disk.delete_tree(part, yard.root)
        shown, self.records = _with_records(self.entries, yard, self.records)
        with atomic.together():
            write_modules(self.modules, shown, self.records, self.workspace, self.texts)
        write_environments(self.paths.envs, shown, self.records, yard)
        write_names(self.paths.names, shown, yard)

    def publish(self, step: Callable[[Base], Step], may: Callable[[], object] = lambda: None) -> Manifest:
        """Make it the current generation, in one step.

        Args:
            step: what to publish, made from the current generation. If another process published meanwhile, it is
                called again and the modules are written again, so that no publication is lost.
            may: raises if this process may no longer publish (`writing.DeployLeases.check`).
        """
        while True:
            base = generations.base(self.workspace.yard)
            proposal = step(base)
            if proposal.entries != self.entries:
                self.write(proposal.entries)
            what = (base.number, now(), proposal.reason, proposal.entries, proposal.content, base.previous, self.origin)
            may()
            manifest = generations.commit(self.workspace.yard, self.paths, Manifest(*what))
            if manifest is not None:
                make_root(self.workspace)
                published = self.workspace.yard.generation(manifest.number)
                show_environments(self.workspace.yard, published)
                show_names(self.workspace.yard, published)
                share.refresh(self.workspace)
                return manifest

    def discard(self) -> None:
        """Remove the draft; a published one has been renamed and is not affected."""
        with suppress(OSError):
            disk.delete_tree(self.paths.root, self.workspace.yard.root)


def is_as_the_site_wants(workspace: Workspace, manifest: Manifest, done: Texts | None = None) -> bool:
    """Whether writing the modules of a generation again would produce the same files.

    They differ after a change of the site's policy for all modules, such as aliases and formats, and if the operations
    of a revision are to be frozen again. A generation without hashes (of former versions), or with unreadable records,
    counts as equal.

    Args:
        done: gets the modulefiles, so that a draft does not render them again.
    """
    written = {path: digest for path, digest in manifest.files.items() if not path.startswith(f"{spider.DIRECTORY}/")}
    entries, records = _with_records(manifest.entries, workspace.yard)
    if not written or any(entry.module not in records for entry in entries):
        return True
    if not all(disk.is_there(RevisionPaths.of(e.folder).module) for e in entries if e.state != "removed"):
        return False
    texts = module_texts(entries, records, workspace, done)
    return written == {path: hashlib.sha256(text.encode()).hexdigest() for path, text in texts.items()}


def _with_records(
    entries: Iterable[Entry], yard: Yard, known: Mapping[str, BuildRecord] = MappingProxyType({})
) -> tuple[list[Entry], dict[str, BuildRecord]]:
    """The entries that get modules, and their records by module; a missing revision has neither.

    The record of a removed revision is in the trash, or still in its place.

    Args:
        known: records that need not be read again.
    """
    shown = [entry for entry in entries if entry.state != "missing"]
    places = trash.removed(yard) if any(entry.state == "removed" for entry in shown) else {}
    found_in = (places.get(place_of(paths.root), paths) for paths in (RevisionPaths.of(e.folder) for e in shown))
    read = (known.get(e.module) or revisions.readable(paths) for e, paths in zip(shown, found_in, strict=True))
    by_module = {record.module: record for record in read if record is not None}
    return shown, by_module


@contextmanager
def draft(workspace: Workspace, made_by: Origin | None = None) -> Iterator[Draft]:
    """The next generation, to be written and published within the ``with`` block; an unpublished one is removed.

    The caller writes with the site's permissions (`writing.writing`).

    Args:
        made_by: the origin in its manifest: who published it and from what; None: this account and host.

    Raises:
        StackyardError: the file system failed, with what to do about it; the current generation is untouched.
    """
    check_root(workspace)
    with disk.during("writing the modules"):
        result = Draft(workspace, generations.begin(workspace.yard), made_by or origin())
        try:
            yield result
        finally:
            result.discard()
