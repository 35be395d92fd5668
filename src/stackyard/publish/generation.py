"""The next generation while it is written: its modules, its manifest, the flip. Deploy and rollback share it."""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from stackyard.expose.generation import write_modules
from stackyard.expose.root import check_root, make_root
from stackyard.spec.models import Site
from stackyard.yard import disk, generations, revisions
from stackyard.yard.layout import GenerationPaths, Yard
from stackyard.yard.record import Entry, Manifest, now


@dataclass
class Draft:
    """A generation that users do not see yet, in a directory of its own."""

    yard: Yard
    site: Site
    paths: GenerationPaths
    entries: tuple[Entry, ...] = ()

    @property
    def modules(self) -> Path:
        """Its modulefiles, through which revisions are verified before the flip."""
        return self.paths.modules

    def write(self, entries: Iterable[Entry]) -> None:
        """Write the modules of these entries, and of no others: modules written before are removed."""
        self.entries = tuple(entries)
        shutil.rmtree(self.modules, ignore_errors=True)
        records = {record.module: record for record in revisions.built(self.yard)}
        write_modules(self.modules, self.entries, records, self.site, self.yard)

    def flip(self, reason: str, content: int = 0) -> Manifest:
        """Make it the current generation, in one step.

        Args:
            content: the number of the generation whose content it repeats, else 0.
        """
        manifest = generations.flip(self.yard, self.paths, now(), reason, self.entries, content)
        make_root(self.yard, self.site)
        return manifest

    def discard(self) -> None:
        """Remove it, unless it is current."""
        if generations.current_number(self.yard) != self.paths.number:
            shutil.rmtree(self.paths.root, ignore_errors=True)


@contextmanager
def draft(yard: Yard, site: Site) -> Iterator[Draft]:
    """The next generation, to be written and flipped; it is removed at the end where it was not flipped.

    The caller holds the lease (`writing.writing`).

    Raises:
        StackyardError: the file system failed, with what to do about it; the current generation is untouched.
    """
    check_root(yard, site)
    try:
        made = Draft(yard, site, generations.begin(yard))
        try:
            yield made
        finally:
            made.discard()
    except OSError as error:
        raise disk.failure(error, "writing the modules") from error
