"""Installs single packages of a prefix separately, as a source for files that other packages overwrote.

Each is installed by its own installer into a directory in the scratch space of the build, as for the prefix: its
scripts name the interpreter of the prefix. That takes some hundredths of a second, and links instead of copying.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from stackyard.core.errors import StackyardError
from stackyard.core.names import canonical
from stackyard.make.collisions.claims import Claim, Listings, Owner
from stackyard.make.job import Job

if TYPE_CHECKING:
    from stackyard.make.wheels.install import Wheel


class PackageStaging:
    """The separately installed packages of one prefix, each installed on first use.

    Attributes:
        directory: their directory.
    """

    def __init__(self, job: Job) -> None:
        self._job = job
        self.directory = job.work / "alone"
        self._wheels: dict[str, Wheel] = {}
        self._tops: dict[tuple[str, str], Path] = {}

    def know(self, wheels: Sequence[Wheel]) -> None:
        """Set the installed wheels: locked ones, and compiled ones."""
        self._wheels = {canonical(wheel.name): wheel for wheel in wheels}

    def file(self, claim: Claim) -> Path:
        """The file for an entry of a package's list.

        Raises:
            StackyardError: the package cannot be installed separately, or does not install the file.
        """
        place = Path(os.path.normpath(self._top(claim.owner) / claim.row))
        inside = place.is_relative_to(self.directory)
        if not inside or not os.path.lexists(place) or (place.is_dir() and not place.is_symlink()):
            raise StackyardError(
                f"{claim.owner.name} lists {claim.row!r}, and does not install it",
                hint="leave the package out, or report it to its authors",
            )
        return place

    def claims(self, conda: Iterable[Owner]) -> Iterator[tuple[str, Claim]]:
        """The files that each package installs separately, even if it could not be installed into the prefix."""
        for owner in conda:
            top = self._top(owner)
            yield from Listings(top).all([replace(owner, listing=top / "conda-meta" / owner.listing.name)])
        for n, wheel in enumerate(self._wheels.values()):
            top = self._top(Owner("pip", wheel.name, n, Path(os.devnull)))
            listing = next(top.glob("*.dist-info/RECORD"))
            yield from Listings(top.parents[2]).all([Owner("pip", wheel.name, n, listing)])

    def _top(self, owner: Owner) -> Path:
        """The directory to which the entries of a package's list are relative."""
        key = (owner.kind, owner.name)
        if key not in self._tops:
            root = self.directory / f"{owner.kind}-{len(self._tops)}"
            root.mkdir(parents=True)
            self._tops[key] = self._conda(owner, root) if owner.kind == "conda" else self._wheel(owner, root)
        return self._tops[key]

    def _conda(self, owner: Owner, root: Path) -> Path:
        from stackyard.make.conda import install as conda

        package = next(candidate for candidate in self._job.locked.conda if candidate.name == owner.name)
        conda.install_alone(self._job, package, root)
        return root

    def _wheel(self, owner: Owner, root: Path) -> Path:
        from stackyard.make.wheels import install as pip

        pip.install_alone(self._job, self._wheels[canonical(owner.name)], root)
        path = next(root.glob("*/*/*/*.dist-info/RECORD"), None)
        if path is None:
            raise StackyardError(f"{owner.name} has no RECORD in {root}", hint="deploy again")
        return path.parent.parent
