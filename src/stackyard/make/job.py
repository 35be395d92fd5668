"""One build from the view of its steps: the inputs, the paths, and the progress display."""

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
    """The inputs of a build's steps.

    Attributes:
        module: the name under which progress is reported.
        deep: compare every byte linked from the caches, not only changed files.
        rebuild: compile wheels again even if a cache has them.
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
        """The prefix being built, at its final path."""
        return self.paths.prefix

    @property
    def payload(self) -> Prefix:
        """The prefix as a payload."""
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
        """The mirror that replaces the servers of locked files, if the site or the command names one."""
        if not self.site.mirror:
            return None
        from stackyard.make.mirror.read import opened
        from stackyard.make.wheels.indexes import pip_settings

        return opened(self.site.mirror, pip_settings(self))

    @cached_property
    def private_files(self) -> bool:
        """Whether hard links are forbidden: a post script may write into files, and no layer is available."""
        if not self.variant.post:
            return False
        self.work.mkdir(mode=0o700, parents=True, exist_ok=True)
        return not layer.works(self.work)

    @cached_property
    def policy(self) -> Policy:
        """The permissions of built files."""
        return policy(self)

    @cached_property
    def entries(self) -> Entries:
        """The verified cache entries that this build links from."""
        return Entries(self.yard, self.progress, deep=self.deep)

    def view(self, *writable: Path, names: tuple[tuple[Path, Path], ...] = ()) -> View:
        """The view of the yards for programs of packages: read-only, except for these directories.

        Args:
            names: second names of directories (`host.run.view.View`).

        If that is impossible they see the real files; the end of the build then detects only changes to files linked
        into this prefix. The link scripts of conda packages never have a view: rattler runs them in this process.
        """
        others = (Path(self.variant.adopted.prefix),) if self.variant.adopted else ()
        return view_of((*(yard.root for yard in self.yard.lineage()), *others), writable, names)[0]

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
