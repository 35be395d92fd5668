"""Every path of a yard, in two classes; nobody else joins these strings.

<yard>/
  cache/{conda,wheels,bytecode,uv,repodata,memo}/
  stacks/<stack>/<version>-<variant>-<revision>/{lock,prefix,recipe}/ record.json report.json
  generations/<n>/{manifest.json,modules/}
  modules -> generations/<n>/modules
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class RevisionPaths:
    """The folder of one revision. It counts as built once `record` exists, which is written last."""

    root: Path

    @classmethod
    def of(cls, folder: str | Path) -> RevisionPaths:
        """The paths of a revision whose folder a record or a manifest names."""
        return cls(Path(folder))

    @property
    def prefix(self) -> Path:
        """Where the software is; never changed after the record is written."""
        return self.root / "prefix"

    @property
    def lock(self) -> Path:
        """The lock that it was built from."""
        return self.root / "lock" / "stack.lock"

    @property
    def recipe(self) -> Path:
        """Copies of the files that people wrote."""
        return self.root / "recipe"

    @property
    def record(self) -> Path:
        """The marker: what was built, from what, how."""
        return self.root / "record.json"

    @property
    def report(self) -> Path:
        """The last verification."""
        return self.root / "report.json"

    @property
    def junit(self) -> Path:
        """The same verification as JUnit XML."""
        return self.root / "report.xml"

    @property
    def building(self) -> Path:
        """Who is building here, with which inputs; removed when the record is there."""
        return self.root / "building.json"

    @property
    def log(self) -> Path:
        """The output of every program that the build ran."""
        return self.root / "build.log"


@dataclass(frozen=True)
class Yard:
    """A directory tree that holds everything that was built. A user's yard has the site's as its `parent`."""

    root: Path
    parent: Yard | None = None

    @property
    def cache(self) -> Path:
        """Downloaded and extracted packages, built wheels, compiled bytecode."""
        return self.root / "cache"

    @property
    def stacks(self) -> Path:
        """Every revision of every stack."""
        return self.root / "stacks"

    @property
    def generations(self) -> Path:
        """What users saw, one folder per generation."""
        return self.root / "generations"

    @property
    def modules(self) -> Path:
        """The one path that users put on MODULEPATH: a symbolic link into the current generation."""
        return self.root / "modules"

    @property
    def lease(self) -> Path:
        """The file that says who is writing to this yard."""
        return self.root / "deploy.lease"

    def generation(self, number: int) -> Path:
        """The folder of one generation."""
        return self.generations / str(number)

    def revision(self, stack: str, folder: str) -> RevisionPaths:
        """The folder of one revision; `folder` is what the site's naming template made of it."""
        return RevisionPaths(self.stacks / stack / folder)

    def lineage(self) -> tuple[Yard, ...]:
        """This yard, its parent, and so on: the order in which things are looked up."""
        return (self, *(self.parent.lineage() if self.parent else ()))


def default_yard_root() -> Path:
    """``$STACKYARD_HOME``, else ``$XDG_DATA_HOME/stackyard``, else ``~/.local/share/stackyard``."""
    named = os.environ.get("STACKYARD_HOME")
    if named:
        return Path(named).expanduser()
    data = os.environ.get("XDG_DATA_HOME") or "~/.local/share"
    return Path(data).expanduser() / "stackyard"
