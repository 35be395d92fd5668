"""Every path of a yard, in three classes; no other module joins these names.

<yard>/
  cache/{conda,sources,wheels,bytecode,uv,repodata,python,memo,notes}/   `stackyard.yard.caches` has a table of them
  cache/accounts/<uid>/{conda,...}/   the same for each further account that writes to this yard
  locks/<spec hash>.lock  locks/files/<hash of a path>.lock
  stacks/<stack>/<version>-<variant>-<revision>/
      {lock/stack.lock,prefix/,recipe/,commands/,checks/}  condarc  [image.sqsh launch]
      {record,record.spare,files,module,checks,damaged,report}.json  report.xml  build.log
      building/<n>/{owner.json,beat}  .work/     while it is built
  generations/<n>/{manifest.json,modules/}       `.draft-<host>-<pid>-<random>` while it is written
      owner.json  owner-<random>.json            until the link is where it belongs
  modules -> generations/<n>/modules
  bases/<name>/{base.json,root.sqsh,oci/}        images that others made; `.<name>~<process>` while one is imported
  leases/<name>/<n>/{owner.json,beat}
  licences.json
"""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from urllib.parse import quote

from stackyard.late import dataclass
from stackyard.yard import disk

ACCOUNTS = "accounts"
"""The directory in a cache that holds the parts of other accounts."""


@dataclass(frozen=True)
class RevisionPaths:
    """The directory of one revision. It counts as built once `record` exists, which is written last."""

    root: Path

    @classmethod
    def of(cls, folder: str | Path) -> RevisionPaths:
        """The paths of a revision whose directory a record or a manifest names."""
        return cls(Path(folder))

    @property
    def yard(self) -> Path:
        """The root of the yard that it is in."""
        return self.root.parents[2]

    @property
    def prefix(self) -> Path:
        """The installed software; never changed after the record is written."""
        return self.root / "prefix"

    @property
    def image(self) -> Path:
        """All files of the prefix in one, where the revision is an image; `prefix` then holds stubs."""
        return self.root / "image.sqsh"

    @property
    def launcher(self) -> Path:
        """The program behind each stub: it mounts the image where that is not mounted, and runs the command in it."""
        return self.root / "launch"

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
    def spare(self) -> Path:
        """The same text as `record`: it is read in place of a damaged one, and that is restored from it."""
        return self.root / "record.spare.json"

    @property
    def files(self) -> Path:
        """What every file of `prefix`, `lock` and `recipe` holds; the record has its hash."""
        return self.root / "files.json"

    @property
    def damaged(self) -> Path:
        """The files that cannot be made again as they were: the revision is not reused by a deploy."""
        return self.root / "damaged.json"

    @property
    def report(self) -> Path:
        """The last verification."""
        return self.root / "report.json"

    @property
    def checks(self) -> Path:
        """What the revision is verified against, where that changed after its build."""
        return self.root / "checks.json"

    @property
    def check_scripts(self) -> Path:
        """Copies of the scripts in `checks`."""
        return self.root / "checks"

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
    def commands(self) -> Path:
        """Scripts for the commands that its module offers, where it does not offer the whole stack."""
        return self.root / "commands"

    @property
    def building(self) -> Path:
        """The lease of whoever builds here, with the inputs; removed once the record is written."""
        return self.root / "building"

    @property
    def log(self) -> Path:
        """The output of every program that the build ran."""
        return self.root / "build.log"

    @property
    def work(self) -> Path:
        """Scratch space of the build, removed at its end."""
        return self.root / ".work"


@dataclass(frozen=True)
class BasePaths:
    """The directory of one base image. It gets its name once everything is in it."""

    root: Path

    @property
    def record(self) -> Path:
        """What was imported, from where, by whom."""
        return self.root / "base.json"

    @property
    def image(self) -> Path:
        """All its files, as one SquashFS."""
        return self.root / "root.sqsh"

    @property
    def layout(self) -> Path:
        """The same as an OCI layout: its layers, unchanged."""
        return self.root / "oci"


@dataclass(frozen=True)
class GenerationPaths:
    """The directory of one generation."""

    root: Path

    @property
    def modules(self) -> Path:
        """Its modulefiles, run-command files and spider cache."""
        return self.root / "modules"

    @property
    def manifest(self) -> Path:
        """The revisions that it publishes."""
        return self.root / "manifest.json"

    @property
    def owner(self) -> Path:
        """The process that writes it; removed once users see it."""
        return self.mark("")

    def mark(self, token: str) -> Path:
        """A process that moves the link to it; a token of ``*`` is the pattern of all, that of the `owner` too."""
        return self.root / f"owner{token}.json"


@dataclass(frozen=True)
class Yard:
    """A directory tree that holds everything that was built. A user's yard has the site's as its `parent`.

    A `scratch` yard takes the place of its parent where nothing may be written to that one. `account` is the account to
    whose part of the cache this process writes; empty for who owns the cache itself. Nothing of another account is
    linked, so each needs its own (`yard.caches.own_part`).
    """

    root: Path
    parent: Yard | None = None
    scratch: bool = False
    account: str = ""

    @property
    def cache(self) -> Path:
        """Everything that can be downloaded or computed again."""
        shared = self.root / "cache"
        return shared / ACCOUNTS / self.account if self.account else shared

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
    def notes(self) -> Path:
        """What the entries of the other caches held when they were made."""
        return self.cache / "notes"

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
    def bases(self) -> Path:
        """Images of others that SIF and OCI images are built on."""
        return self.root / "bases"

    def base(self, name: str) -> BasePaths:
        """The paths of one base."""
        return BasePaths(self.bases / name)

    def base_draft(self, name: str, token: str) -> BasePaths:
        """The paths of a base that is being imported; a token of ``*`` is the pattern of all of this name."""
        return BasePaths(self.bases / f".{name}~{token}")

    @property
    def leases(self) -> Path:
        """Who is writing what in this yard (`yard.lease`)."""
        return self.root / "leases"

    def lease(self, name: str) -> Path:
        """The directory of one lease."""
        return self.leases / quote(name, safe="")

    @property
    def licences(self) -> Path:
        """Which licences were accepted, by whom and when."""
        return self.root / "licences.json"

    def package(self, stem: str) -> Path:
        """An unpacked conda package; `stem` is ``name-version-build``."""
        return self.conda / stem

    def package_note(self, stem: str) -> Path:
        """rattler's note beside an unpacked package, with the hash of the archive; of ``.cache``, its lock on all."""
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

    def note(self, kind: str, entry: str) -> Path:
        """The note on an entry of a cache; `entry` is its path in that cache."""
        return self.notes / kind / f"{entry}.json"

    def kept_lock(self, spec_hash: str) -> Path:
        """What was solved for a spec hash."""
        return self.locks / f"{spec_hash}.lock"

    def lock_of(self, file: Path) -> Path:
        """The lock of a spec file in a directory that is read-only: the whole file, by the path that it would have."""
        digest = hashlib.sha256(os.fsencode(file.absolute())).hexdigest()
        return self.locks / "files" / f"{digest[:32]}.lock"

    def generation(self, number: int) -> GenerationPaths:
        """The paths of one generation."""
        return GenerationPaths(self.generations / str(number))

    def draft(self, token: str) -> GenerationPaths:
        """The paths of a generation that has no number yet; a token of ``*`` is the pattern of all of them."""
        return GenerationPaths(self.generations / f".draft-{token}")

    def stack(self, name: str) -> Path:
        """The directory of one stack's revisions."""
        return self.stacks / name

    def revision(self, stack: str, folder: str) -> RevisionPaths:
        """The paths of one revision; `folder` is the name that the site's naming template gives."""
        return RevisionPaths(self.stack(stack) / folder)

    def lineage(self) -> tuple[Yard, ...]:
        """This yard, its parent, and so on: the order in which things are looked up."""
        return (self, *(self.parent.lineage() if self.parent else ()))

    def above(self) -> tuple[Yard, ...]:
        """The yards from which this one takes what it has not: its parent, and so on."""
        parents = self.lineage()[1:]
        return parents[1:] if self.scratch else parents

    def own(self) -> Yard:
        """This yard, or the one whose place it takes."""
        return self.parent if self.scratch and self.parent else self


def is_yard(folder: Path) -> bool:
    """Whether a directory is a yard, also one that holds only caches so far. Raises as `disk.is_there` does."""
    yard = Yard(folder)
    if any(disk.is_there(sign) for sign in (yard.leases, yard.uv, yard.repodata)):
        return True
    return disk.is_folder(yard.stacks) and disk.is_folder(yard.generations)


def default_yard_root() -> Path:
    """``$STACKYARD_HOME``, else ``$XDG_DATA_HOME/stackyard``, else ``~/.local/share/stackyard``."""
    named = os.environ.get("STACKYARD_HOME")
    if named:
        return Path(named).expanduser()
    data = os.environ.get("XDG_DATA_HOME") or "~/.local/share"
    return Path(data).expanduser() / "stackyard"
