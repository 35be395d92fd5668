"""Resolves file collisions deterministically: the kept file does not depend on the timing of parallel installation.

uv installs wheels in parallel, and rattler writes console scripts of conda packages in parallel, so the fastest wins.
rattler moves other colliding files of conda packages to ``__clobbers__/<package>/<path>``. So after installation, the
winner's file (`collisions`) is put at each such path. It comes from the files that rattler moved, else from the package
installed alone beside the prefix (`staging`). The packages' lists are edited only after bytecode, which is kept by
package, is compiled: they lose the paths won by others (`finish`).
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from stackyard.core.errors import StackyardError
from stackyard.core.names import canonical
from stackyard.host.files.hashing import sha256_file, sha256_text
from stackyard.make.basefiles import BaseFile, Bases
from stackyard.make.bytecode.pyfiles import InstalledFiles, is_python, source_of
from stackyard.make.collisions import rule as collisions
from stackyard.make.collisions.claims import Claim, Listings, Owner, require_plain, shared
from stackyard.make.collisions.listings import conda_from, conda_without, record_without, write_conda
from stackyard.make.collisions.rule import Decision
from stackyard.make.collisions.staging import PackageStaging
from stackyard.make.job import Job
from stackyard.yard import disk
from stackyard.yard.revision.collision import Collision, sentences
from stackyard.yard.write import atomic
from stackyard.yard.write.atomic import fault_point, write_text

if TYPE_CHECKING:
    from stackyard.make.wheels.install import Wheel

CLOBBERS = "__clobbers__"
_IN_THE_WAY = re.compile(r"\(os error (17|20|21)\)")
"""What rattler and uv print where a file is in the place of a directory: EEXIST, ENOTDIR, EISDIR."""


class BuildCollisions:
    """The collisions of one build.

    Attributes:
        sources: Python files whose bytecode does not belong to a single package, relative to the prefix.
    """

    def __init__(self, job: Job) -> None:
        self._job = job
        self._staging = PackageStaging(job)
        self._listings = Listings(job.prefix)
        self._bases = Bases(job, job.variant.base) if job.variant.base else None
        self._decided: dict[str, Decision] = {}
        self._below: dict[str, Decision] = {}
        self._gone: dict[Owner, set[str]] = {}
        self.sources: set[str] = set()

    def conda(self) -> None:
        """After conda packages are linked: move clobbered files out of the prefix, and undo their renaming."""
        left = self._job.prefix / CLOBBERS
        if not left.is_dir() or left.is_symlink():
            return
        self._job.work.mkdir(parents=True, exist_ok=True)
        left.rename(self._job.work / CLOBBERS)
        fault_point("collision")
        for owner in self._conda_owners:
            start, value = f"{CLOBBERS}/{owner.name}/", self._listings.value(owner)
            if any(name.startswith(start) for name in value["files"]):
                write_conda(owner.listing, conda_from(value, start))

    def explain(self, error: StackyardError, wheels: Sequence[Wheel] = ()) -> None:
        """Raise the cause of a failure of rattler or uv, if it is a file where another package has a directory.

        Args:
            wheels: the wheels already installed and those being installed.
        """
        if _IN_THE_WAY.search(f"{error.message}\n{error.detail}"):
            self._staging.know(wheels)
            require_plain(list(self._staging.claims(self._conda_owners)))

    def settle(self, wheels: Sequence[Wheel]) -> None:
        """After packages are installed: put the winner's file at each path that several of them install.

        Args:
            wheels: all installed wheels.

        Raises:
            InputError: a choice in the stack's file does not match a collision, or the site refuses a collision.
            StackyardError: a list of files cannot be read, a package cannot be installed alone, or a file of one has
                the place of a directory of another.
        """
        self._staging.know(wheels)
        claims = list(self._listings.all([*self._conda_owners, *self._wheel_owners(wheels)]))
        require_plain(claims)
        by_path = shared(claims)
        below = self._bases.of((path for path, _ in claims), self._site) if self._bases else {}
        everything = [*claims, *((path, file.claim) for path, file in below.items())]
        collisions.require_used(self._own_choices, ((path, self._inner(path), claim) for path, claim in everything))
        self._decided = dict(self._decisions(by_path))
        for path, decision in self._decided.items():
            if self._is_open(decision):
                self._put(self._file(decision.winner), self._job.prefix / path)
        fault_point("collision")
        own = {path: claim for path, claim in claims if path in below}
        self._below = {path: self._decide_on_base(path, file, own[path]) for path, file in below.items()}
        self._note_what_is_gone(claims)
        self._tell()

    def finish(self) -> tuple[Collision, ...]:
        """After bytecode is compiled: remove lost paths from the lists; returns the collisions for the record.

        The separately installed packages are removed, so that files of the prefix have hard links only in the caches.
        """
        for directory in (self._staging.directory, self._job.work / CLOBBERS):
            disk.remove_tree(directory)
        for owner in self._listings.unordered:
            self._gone.setdefault(owner, set())
        for owner, names in self._gone.items():
            if owner.kind == "conda":
                value = self._listings.value(owner)
                write_conda(owner.listing, conda_without(value, names))
            else:
                text = owner.listing.read_bytes().decode("utf-8")
                write_text(owner.listing, record_without(text, names))
        return self._collisions(hashed=True)

    # ----------------------------------------------------------------------- who installs what

    @cached_property
    def _conda_owners(self) -> list[Owner]:
        packages = collisions.in_order(self._job.locked.conda)
        meta = self._job.prefix / "conda-meta"
        return [Owner("conda", package.name, n, meta / f"{package.stem}.json") for n, package in enumerate(packages)]

    def _wheel_owners(self, wheels: Sequence[Wheel]) -> Iterator[Owner]:
        if wheels:
            installed, first = InstalledFiles(self._job.prefix, self._job.site_packages), len(self._conda_owners)
            for n, wheel in enumerate(sorted(wheels, key=lambda entry: canonical(entry.name)), first):
                yield Owner("pip", wheel.name, n, installed.listing(wheel.name))

    @cached_property
    def _site(self) -> str:
        """The real path of site-packages relative to the prefix; empty for a stack without Python."""
        if not self._job.python_version:
            return ""
        return os.path.relpath(os.path.realpath(self._job.site_packages), os.path.realpath(self._job.prefix))

    def _inner(self, path: str) -> str:
        return path[len(self._site) + 1 :] if self._site and path.startswith(f"{self._site}/") else ""

    @cached_property
    def _choices(self) -> tuple[collisions.Choice, ...]:
        job = self._job
        from stackyard.lock.base import extension as onbase

        names = [*(p.name for p in job.locked.conda), *(p.name for p in job.locked.pip)]
        names += [p.name for p in onbase.packages(job.variant.base)]
        return collisions.choices_for(job.variant, names)

    @property
    def _own_choices(self) -> list[collisions.Choice]:
        """The choices in the stack's own file; the site's choices need not apply to each stack."""
        own = self._job.site.file
        return [choice for choice in self._choices if not own or choice.place is None or choice.place.file != own]

    # ----------------------------------------------------------------------- whose file is taken

    def _decisions(self, by_path: dict[str, list[Claim]]) -> Iterator[tuple[str, Decision]]:
        """The decision for each path; bytecode is compiled again if the sources differ."""
        for path, claims in by_path.items():
            if source_of(path) not in by_path:
                yield path, collisions.decide(path, self._inner(path), claims, self._choices, self._file)

    def _is_open(self, decision: Decision) -> bool:
        """Whether the present file may not be the winner's."""
        winner, kinds = decision.winner, [claim.owner.kind for claim in decision.claims]
        if winner.owner.kind == "pip":
            return kinds.count("pip") > 1  # one alone came after the conda packages
        moved = os.path.lexists(self._moved(winner))
        return moved or "pip" in kinds or any(claim.made for claim in decision.claims)

    def _moved(self, claim: Claim) -> Path:
        return self._job.work / CLOBBERS / claim.owner.name / claim.row

    def _file(self, claim: Claim) -> Path:
        """The file that a package installs at a path when installed alone."""
        moved = self._moved(claim)
        return moved if claim.owner.kind == "conda" and os.path.lexists(moved) else self._staging.file(claim)

    def _put(self, source: Path, place: Path) -> None:
        if source.is_symlink():
            atomic.replace_symlink(place, os.fspath(source.readlink()))
            return
        temporary = atomic.temporary(place.with_name(place.name[:100]))
        temporary.unlink(missing_ok=True)
        try:
            disk.link_or_copy(source, temporary, link=not self._job.private_files)
            os.replace(temporary, place)  # noqa: TID251  in a half-build
        finally:
            temporary.unlink(missing_ok=True)  # a rename to another name of the same file leaves both

    def _decide_on_base(self, path: str, of_base: BaseFile, own: Claim) -> Decision:
        """The decision about a path that the base has too. If the base's file is kept, the layer's are removed."""
        place = self._job.prefix / path
        mine = place.read_bytes() if of_base.source is not None and place.is_file() else None
        claims = self._decided[path].claims if path in self._decided else (own,)
        winner = self._decided[path].winner if path in self._decided else own
        sources = (of_base.source, mine)
        decision = collisions.decide_on_base(path, self._inner(path), of_base.claim, winner, self._choices, sources)
        if decision.winner is of_base.claim:
            place.unlink(missing_ok=True)
            return replace(decision, lost=claims)
        return decision

    # ----------------------------------------------------------------------- what becomes of it

    def _note_what_is_gone(self, claims: Sequence[tuple[str, Claim]]) -> None:
        """Note lines to remove from lists, and bytecode to compile again; the packages' own is removed."""
        self._gone, self.sources = {}, set()
        for path, decision in (*self._decided.items(), *self._below.items()):
            for claim in decision.lost:
                self._gone.setdefault(claim.owner, set()).add(claim.row)
            if decision.lost and is_python(path):
                self.sources.add(path)
        for path, claim in claims if self.sources else ():
            if path.endswith(".pyc") and source_of(path) in self.sources:
                (self._job.prefix / path).unlink(missing_ok=True)
                self._gone.setdefault(claim.owner, set()).add(claim.row)

    def _collisions(self, *, hashed: bool = False) -> tuple[Collision, ...]:
        """The collisions to report. `hashed`: with the hash of the present file at each path."""
        both = (*self._decided.items(), *self._below.items())
        rows = ((path, decision, self._hash(path) if hashed else "") for path, decision in both)
        return collisions.grouped(rows)

    def _hash(self, path: str) -> str:
        place = self._job.prefix / path
        if place.is_symlink():
            return sha256_text(os.fspath(place.readlink()))
        return sha256_file(place) if place.is_file() else ""

    def _tell(self) -> None:
        result = self._collisions()
        error = collisions.refused(result, self._job.site.file) if self._job.site.collisions == "refuse" else None
        if error is not None:
            raise error
        for text in sentences(result):
            self._job.progress.notice(text)
