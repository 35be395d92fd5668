"""One build as its steps see it: what is built, where, and where progress is reported."""

from __future__ import annotations

import os
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from stackyard.core.errors import StackyardError
from stackyard.core.late import dataclass
from stackyard.core.progress import Progress
from stackyard.host.run import layer
from stackyard.host.run.view import View, view_of
from stackyard.inputs.sites.siteyard import policy
from stackyard.inputs.workspace import Workspace
from stackyard.lock.lockfile.model import LockedVariant
from stackyard.make.entries import Entries
from stackyard.yard.kinds.payload import Prefix
from stackyard.yard.revision.directories import RevisionPaths
from stackyard.yard.write.permissions import Policy

if TYPE_CHECKING:
    from stackyard.inputs.models import Variant
    from stackyard.make.mirror.read import Mirror


@dataclass(frozen=True)
class Job(Workspace):
    """What every step of a build needs.

    Attributes:
        module: the name under which progress is reported.
        deep: every byte of what is linked from the caches is compared, not only what changed.
        rebuild: wheels that a cache has are compiled again.
    """

    variant: Variant
    locked: LockedVariant
    paths: RevisionPaths
    module: str
    progress: Progress
    deep: bool = False
    rebuild: bool = False

    @property
    def prefix(self) -> Path:
        """The prefix that is being built, at its final path."""
        return self.paths.prefix

    @property
    def payload(self) -> Prefix:
        """The same prefix, as it is used."""
        return Prefix(self.prefix)

    @property
    def python(self) -> Path:
        """The prefix's interpreter."""
        return self.payload.python

    @property
    def uv_cache(self) -> Path:
        """uv's cache: downloaded and unpacked wheels."""
        return self.yard.uv

    @property
    def work(self) -> Path:
        """Scratch space of this build, removed at its end."""
        return self.paths.work

    @cached_property
    def mirror(self) -> Mirror | None:
        """Where the locked files come from instead of their servers, if the site or the command says so."""
        if not self.site.mirror:
            return None
        from stackyard.make.mirror.read import opened
        from stackyard.make.wheels.indexes import pip_settings

        return opened(self.site.mirror, pip_settings(self))

    @cached_property
    def private_files(self) -> bool:
        """Whether no file may be shared by a hard link: a post script may write into it, and has no layer for that."""
        if not self.variant.post:
            return False
        self.work.mkdir(mode=0o700, parents=True, exist_ok=True)
        return not layer.works(self.work)

    @cached_property
    def policy(self) -> Policy:
        """Who may read and write what is built."""
        return policy(self)

    @cached_property
    def entries(self) -> Entries:
        """What this build links from the caches, checked."""
        return Entries(self.yard, self.progress, deep=self.deep)

    def view(self, *writable: Path) -> View:
        """How programs of packages see the yards: read-only, except for these directories.

        Where that cannot be had they see the files as they are, and of what they wrote the end of the build finds only
        what this prefix links. The link scripts of conda packages never have a view: rattler runs them in this process.
        """
        others = (Path(self.variant.adopted.prefix),) if self.variant.adopted else ()
        return view_of((*(yard.root for yard in self.yard.lineage()), *others), writable)[0]

    @cached_property
    def python_version(self) -> str:
        """The interpreter's version, or empty for a stack without Python."""
        if self.locked.interpreter.source in ("host", "uv", "base"):
            return self.locked.interpreter.version
        return next((p.version for p in self.locked.conda if p.name == "python"), "")

    @cached_property
    def site_packages(self) -> Path:
        """The prefix's site-packages directory. Raises StackyardError for a stack without Python."""
        if not self.python_version:
            raise StackyardError(f"{self.module} has pip packages but no Python", hint="add python to its packages")
        locked = next((p.python_site_packages_path for p in self.locked.conda if p.name == "python"), "")
        return self.prefix / locked if locked else self.payload.site_packages(self.python_version)


def cores() -> int:
    """The number of cores that this process may use."""
    return len(os.sched_getaffinity(0))
