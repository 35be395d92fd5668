"""Every path of a yard, in three classes; no other module joins these names.

<yard>/
  cache/{conda,sources,wheels,bytecode,uv,repodata,python,memo}/   `stackyard.yard.caches` has a table of them
  locks/<spec hash>.lock
  stacks/<stack>/<version>-<variant>-<revision>/{lock,prefix,recipe}/ record.json report.json module.json condarc
  generations/<n>/{manifest.json,modules/}
  modules -> generations/<n>/modules
  licences.json  deploy.lease
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class RevisionPaths:
    """The directory of one revision. It counts as built once `record` exists, which is written last."""

    root: Path

    @classmethod
    def of(cls, folder: str | Path) -> RevisionPaths:
        """The paths of a revision whose directory a record or a manifest names."""
        return cls(Path(folder))

    @property
    def prefix(self) -> Path:
        """The installed software; never changed after the record is written."""
        return self.root / "prefix"

    @property
    def lock(self) -> Path:
        """The lock that it was built from."""
        return self.root / "lock" / "stack.lock"

    @property
    def recipe(self) -> Path:
        """Copies of the input files."""
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
    def module(self) -> Path:
        """The operations of its module, frozen when the modulefile was first written."""
        return self.root / "module.json"

    @property
    def condarc(self) -> Path:
        """The site's policy for environments that users create on top of it; CONDARC names this file."""
        return self.root / "condarc"

    @property
    def building(self) -> Path:
        """Who is building here, with which inputs; removed once the record is written."""
        return self.root / "building.json"

    @property
    def log(self) -> Path:
        """The output of every program that the build ran."""
        return self.root / "build.log"

    @property
    def work(self) -> Path:
        """Scratch space of the build, removed at its end."""
        return self.root / ".work"


@dataclass(frozen=True)
class GenerationPaths:
    """The directory of one generation."""

    root: Path

    @property
    def number(self) -> int:
        """Its number."""
        return int(self.root.name)

    @property
    def modules(self) -> Path:
        """Its modulefiles, run-command files and spider cache."""
        return self.root / "modules"

    @property
    def manifest(self) -> Path:
        """The revisions that it publishes."""
        return self.root / "manifest.json"


@dataclass(frozen=True)
class Yard:
    """A directory tree that holds everything that was built. A user's yard has the site's as its `parent`."""

    root: Path
    parent: Yard | None = None

    @property
    def cache(self) -> Path:
        """Everything that can be downloaded or computed again."""
        return self.root / "cache"

    @property
    def conda(self) -> Path:
        """Unpacked conda packages, in rattler's layout."""
        return self.cache / "conda"

    @property
    def sources(self) -> Path:
        """Downloaded source archives."""
        return self.cache / "sources"

    @property
    def wheels(self) -> Path:
        """Wheels that were compiled from source."""
        return self.cache / "wheels"

    @property
    def bytecode(self) -> Path:
        """Compiled bytecode."""
        return self.cache / "bytecode"

    @property
    def uv(self) -> Path:
        """uv's cache: downloaded and unpacked wheels."""
        return self.cache / "uv"

    @property
    def repodata(self) -> Path:
        """Indexes of conda channels, in rattler's layout."""
        return self.cache / "repodata"

    @property
    def pythons(self) -> Path:
        """Python interpreters that uv installed."""
        return self.cache / "python"

    @property
    def memos(self) -> Path:
        """Notes of deploys that changed nothing."""
        return self.cache / "memo"

    @property
    def locks(self) -> Path:
        """What was solved, by the hash of its spec."""
        return self.root / "locks"

    @property
    def stacks(self) -> Path:
        """Every revision of every stack."""
        return self.root / "stacks"

    @property
    def generations(self) -> Path:
        """What users saw, one directory per generation."""
        return self.root / "generations"

    @property
    def modules(self) -> Path:
        """The one path that users put on MODULEPATH: a symlink into the current generation."""
        return self.root / "modules"

    @property
    def lease(self) -> Path:
        """The file that names the process that is writing to this yard."""
        return self.root / "deploy.lease"

    @property
    def licences(self) -> Path:
        """Which licences were accepted, by whom and when."""
        return self.root / "licences.json"

    def package(self, stem: str) -> Path:
        """An unpacked conda package; `stem` is ``name-version-build``."""
        return self.conda / stem

    def package_note(self, stem: str) -> Path:
        """rattler's note beside an unpacked package; it holds the hash of the archive."""
        return self.conda / f"{stem}.lock"

    def source(self, sha256: str, name: str) -> Path:
        """A source archive by the hash of its content and its file name."""
        return self.sources / sha256 / name

    def wheel(self, key: str, bound: str = "") -> Path:
        """The directory of a compiled wheel.

        Args:
            key: the hash of everything that influences it.
            bound: the hash of the only prefix that it is good for; empty for a wheel that is good for all.
        """
        return self.wheels / key[:2] / (f"{key}-{bound}" if bound else key)

    def wheel_work(self, key: str) -> Path:
        """Scratch space in which the wheel of this key is compiled."""
        return self.wheels / f".build-{key[:16]}"

    def bytecode_of(self, version: str, sha256: str) -> Path:
        """The directory of one package's bytecode; `version` is ``<cache tag>-<magic number>`` of the interpreter."""
        return self.bytecode / version / sha256[:2] / sha256

    def memo(self, digest: str) -> Path:
        """The memo of one deploy command; `digest` is the hash of the command."""
        return self.memos / f"{digest}.json"

    def kept_lock(self, spec_hash: str) -> Path:
        """What was solved for a spec hash."""
        return self.locks / f"{spec_hash}.lock"

    def generation(self, number: int) -> GenerationPaths:
        """The paths of one generation."""
        return GenerationPaths(self.generations / str(number))

    def stack(self, name: str) -> Path:
        """The directory of one stack's revisions."""
        return self.stacks / name

    def revision(self, stack: str, folder: str) -> RevisionPaths:
        """The paths of one revision; `folder` is the name that the site's naming template gives."""
        return RevisionPaths(self.stack(stack) / folder)

    def lineage(self) -> tuple[Yard, ...]:
        """This yard, its parent, and so on: the order in which things are looked up."""
        return (self, *(self.parent.lineage() if self.parent else ()))


def is_yard(folder: Path) -> bool:
    """Whether a directory is a yard, also one that holds only caches so far."""
    yard = Yard(folder)
    if any(sign.exists() for sign in (yard.lease, yard.uv, yard.repodata)):
        return True
    return yard.stacks.is_dir() and yard.generations.is_dir()


def default_yard_root() -> Path:
    """``$STACKYARD_HOME``, else ``$XDG_DATA_HOME/stackyard``, else ``~/.local/share/stackyard``."""
    named = os.environ.get("STACKYARD_HOME")
    if named:
        return Path(named).expanduser()
    data = os.environ.get("XDG_DATA_HOME") or "~/.local/share"
    return Path(data).expanduser() / "stackyard"
