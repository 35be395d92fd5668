"""Every path of a yard; no other module joins these names, but `directories` those within one revision or generation.

<yard>/
  cache/{conda,sources,wheels,bytecode,uv,repodata,distributions,python,memo,notes}/   a table: `yard.cache.caches`
  cache/conda/urls.txt                        by which users' conda knows a package cache
  cache/accounts/<uid>/{conda,...}/   the same for each further account that writes to this yard
  locks/<spec hash>.lock  locks/files/<hash of a path>.lock
  stacks/<stack>/<version>-<variant>-<revision>/
      {prefix/,recipe/,commands/,asking/,checks/,signatures/}  condarc  [image.sqsh launch]  [drift/]
      lock/{stack.lock,[original]}
      {record,record.spare,files,module,checks,adopted,damaged,report}.json  report.xml  build.log
      building/<n>/{owner.json,beat}  .work/     while it is built
  generations/<n>/{manifest.json,names,modules/,envs/} `.draft-<host>-<pid>-<random>` while it is written
      manifest.json.gz                           in place of the manifest of an old one (`yard.generation.manifestfile`)
      owner.json  owner-<random>.json            until the link is where it belongs
  modules -> generations/<n>/modules
  envs -> modules/../envs                        what users' conda finds (`expose.environments`)
  names -> modules/../names                      what shells complete (`expose.completed`)
  shared/<group>/{modules/,later/<stack>.json}   modulefiles of what its owner shares with a group, also later
  extensions/<name>/{stack.yaml,stack.yaml.lock}   as `stackyard extend` writes them
  bases/<name>/{base.json,root.sqsh,oci/}        third-party images; `.<name>~<process>` while one is imported
  leases/<name>/<n>/{owner.json,beat}
  uses/<revision>@<host>.<pid>.<random>.json     who runs what; every user who may read the yard may write here
  children/<uid>.<random>.json                   the yards that extend revisions of this one (`yard.others.childnotes`)
  registered/<uid>-<hash of a path>.json         in a yard that extends others: the notes that it left in them
  bases-in-use.json                              which revisions yards extend that not everybody may look into
  usage/<host>.<uid>.<month>.log                 one line for each use of a revision
  usage/since                                    the day on which counting was switched on
  trash/<id>/{what.json,content}                 what was removed, until its grace time is over
  licences.json  signatures.json                 who accepted what; who must have signed what
  reserve/<n>                                    room that is given up where the disk is full (`yard.write.reserve`)
  move.json                                      while the yard is moved to this place
  former/{stacks,generations,modules,shared}/    what was here, while the yard is built again where it lies
"""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from urllib.parse import quote

from stackyard.core.below import Below
from stackyard.core.digest import sha256_hex
from stackyard.core.errors import InputError
from stackyard.core.late import dataclass
from stackyard.host.files import home
from stackyard.yard import disk
from stackyard.yard.revision.directories import BasePaths, GenerationPaths, RevisionPaths

ACCOUNTS = "accounts"
"""The directory in a cache that holds the parts of other accounts."""


@dataclass(frozen=True)
class Yard:
    """A directory tree with everything that was built. A user's yard has the site's as its `parent`.

    A `scratch` yard replaces its parent where that one is not writable. `account` is the account whose part of the
    cache this process writes; empty for the owner of the cache itself. Files of another account are never linked, so
    each needs its own part (`own_part`). None: there was no cache yet, and one of several concurrent processes will
    create it, so its owner is looked up for each path in it.
    """

    root: Path
    parent: Yard | None = None
    scratch: bool = False
    account: str | None = ""

    @property
    def cache(self) -> Path:
        """The cache, whose contents can be downloaded or computed again."""
        shared = self.root / "cache"
        account = account_beside(shared) if self.account is None else self.account
        return shared / ACCOUNTS / account if account else shared

    conda = Below("conda", of="cache")
    """Unpacked conda packages, in the layout of rattler and of conda."""
    conda_marker = Below("urls.txt", of="conda")
    """The file by which conda knows a package cache, and whether it may write there."""
    sources = Below("sources", of="cache")
    """Downloaded source archives."""
    wheels = Below("wheels", of="cache")
    """Wheels that were compiled from source."""
    bytecode = Below("bytecode", of="cache")
    """Compiled bytecode."""
    uv = Below("uv", of="cache")
    """uv's cache: downloaded and unpacked wheels."""
    repodata = Below("repodata", of="cache")
    """Indexes of conda channels, in rattler's layout."""
    pythons = Below("python", of="cache")
    """Python interpreters that uv installed."""

    def interpreter(self, name: str) -> Path:
        """One of the interpreters, by the name of its directory."""
        return self.pythons / name

    memos = Below("memo", of="cache")
    """Notes of deploys that changed nothing."""
    distributions = Below("distributions", of="cache")
    """What was read of conda packages about the Python distributions in them."""
    notes = Below("notes", of="cache")
    """What the entries of the other caches held when they were made."""
    locks = Below("locks")
    """What was solved, by the hash of its spec."""
    stacks = Below("stacks")
    """Every revision of every stack."""
    generations = Below("generations")
    """What users saw, one directory per generation."""
    modules = Below("modules")
    """The one path that users put on MODULEPATH: a symlink into the current generation."""
    envs = Below("envs")
    """The prefixes that users' conda finds: a symlink through `modules`, so it follows the current generation."""
    completed = Below("names")
    """The names that shells complete: a symlink through `modules`, so it follows the current generation."""
    bases = Below("bases")
    """Third-party images, the bases of SIF and OCI images."""

    def base(self, name: str) -> BasePaths:
        """The paths of one base."""
        return BasePaths(self.bases / name)

    def base_draft(self, name: str, token: str) -> BasePaths:
        """The paths of a base that is being imported; with the token ``*`` the pattern of all drafts of this name."""
        return BasePaths(self.bases / f".{name}~{token}")

    leases = Below("leases")
    """Who is writing what in this yard (`yard.write.lease`)."""
    uses = Below("uses")
    """Who is running which revision (`yard.others.uses`)."""
    children = Below("children")
    """Yards whose revisions extend those of this one (`yard.others.children`)."""
    trash = Below("trash")
    """What was removed and can still be brought back (`yard.write.trash`)."""
    reserve = Below("reserve")
    """Room that a removal has where the file system is full (`yard.write.reserve`)."""

    def reserved(self, number: int) -> Path:
        """One file of the reserve."""
        return self.reserve / str(number)

    def child(self, root: Path) -> Path:
        """The note of a former version for the yard at `root`, which extends revisions of this one."""
        return self.children / f"{_digest(root)}.json"

    registrations = Below("registered")
    """Which notes this yard has left in those that it extends."""

    def registration(self, uid: int, parent: Path) -> Path:
        """The registration file of an account in the yard at `parent`."""
        return self.registrations / f"{uid}-{_digest(parent)}.json"

    bases_in_use = Below("bases-in-use.json")
    """Which revisions are extended, as who may look everywhere found them last (`yard.others.basesinuse`)."""
    usage = Below("usage")
    """How often revisions are used (`yard.others.usage`)."""
    usage_since = Below("since", of="usage")
    """The day since which uses are counted."""

    def usage_log(self, host: str, uid: int, month: str) -> Path:
        """The usage log of one account on one host for a month (``2026-11``)."""
        return self.usage / f"{host}.{uid}.{month}.log"

    def inner(self, path: str) -> Path:
        """The path for a path relative to this yard, as used in `trash`."""
        return self.root / path

    def thrown(self, name: str) -> Path:
        """One item in the trash."""
        return self.trash / name

    def lease(self, name: str) -> Path:
        """The directory of one lease."""
        return self.leases / quote(name, safe="")

    def shared(self, group: str) -> Path:
        """The directory with the modulefiles that a group has access to."""
        return self.shares / quote(group, safe="") / "modules"

    def shared_later(self, group: str, stack: str) -> Path:
        """The note that a group also gets future revisions of a stack."""
        return self.shares / quote(group, safe="") / "later" / f"{stack}.json"

    extensions = Below("extensions")
    """The files of extensions."""

    def extension(self, name: str) -> Path:
        """The directory of an extension's file and its lock, as `stackyard extend` writes them."""
        return self.extensions / name

    licences = Below("licences.json")
    """Which licences were accepted, by whom and when."""
    signatures = Below("signatures.json")
    """Which signatures revisions must have."""
    move_note = Below("move.json")
    """From where a yard is moved to this place; removed once that is published."""

    def former(self) -> Yard:
        """The parts put aside of a yard that is rebuilt in place."""
        return replace(self, root=self.root / "former", account="")

    shares = Below("shared")
    """Modulefiles for groups, a directory for each."""

    def package(self, stem: str) -> Path:
        """An unpacked conda package; `stem` is ``name-version-build``."""
        return self.conda / stem

    def package_note(self, stem: str) -> Path:
        """rattler's note beside an unpacked package, with the hash of the archive; for ``.cache``, its global lock."""
        return self.conda / f"{stem}.lock"

    def source(self, sha256: str, name: str) -> Path:
        """A source archive by the hash of its content and its file name."""
        return self.sources / sha256 / name

    def licence_note(self, sha256: str) -> Path:
        """The cached licence of a pip package, by the hash of its file."""
        return self.cache / "licences" / sha256[:2] / sha256

    def distributions_note(self, sha256: str) -> Path:
        """The cached Python distributions of a conda package, by the hash of its archive."""
        return self.distributions / sha256[:2] / sha256

    def wheel(self, key: str, bound: str = "") -> Path:
        """The directory of a compiled wheel.

        Args:
            key: the hash of everything that influences it.
            bound: the hash of the only prefix for which it is valid; empty if it is valid for all.
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
        """The kept solution for a spec hash."""
        return self.locks / f"{spec_hash}.lock"

    file_locks = Below("files", of="locks")
    """The locks of spec files in directories that are read-only."""

    def lock_of(self, file: Path) -> Path:
        """The lock of a file in a read-only directory, by the path that it would have beside the file."""
        return self.file_locks / f"{_digest(file.absolute())}.lock"

    def generation(self, number: int) -> GenerationPaths:
        """The paths of one generation."""
        return GenerationPaths(self.generations / str(number))

    def draft(self, token: str) -> GenerationPaths:
        """The paths of a generation without a number; with the token ``*`` the pattern of all of them."""
        return GenerationPaths(self.generations / f".draft-{token}")

    def stack(self, name: str) -> Path:
        """The directory of one stack's revisions."""
        return self.stacks / name

    def revision(self, stack: str, directory: str) -> RevisionPaths:
        """The paths of one revision; `directory` is the name that the site's naming template gives."""
        return RevisionPaths(self.stack(stack) / directory)

    def named(self, directory: str | Path) -> RevisionPaths:
        """The paths of a revision of this yard, named in a record or a manifest, below this yard's own path."""
        return self.revision(*place_of(directory).split("/"))

    def lineage(self) -> tuple[Yard, ...]:
        """This yard, its parent, and so on: the order of look-ups."""
        return (self, *(self.parent.lineage() if self.parent else ()))

    def above(self) -> tuple[Yard, ...]:
        """The yards from which this one reuses packages and revisions: its parent, and so on."""
        parents = self.lineage()[1:]
        return parents[1:] if self.scratch else parents

    def own(self) -> Yard:
        """This yard, or the one that it replaces."""
        return self.parent if self.scratch and self.parent else self


def _digest(path: Path) -> str:
    """A short hash of a path."""
    return sha256_hex(os.fsencode(path))[:32]


def own_part(yard: Yard) -> Yard:
    """The yard with this account's part of its cache, which is the whole cache for the account that owns it.

    Other accounts that may write to the yard cannot hard-link files that root or a colleague downloaded. So each has
    its own part and copies needed entries into it once; root too, because staff cannot link root's files. Before the
    cache exists this is undecided (`yard.cache.caches.make`).
    """
    return replace(yard, account=account_beside(replace(yard, account="").cache))


def account_beside(shared: Path) -> str | None:
    """The account with whose part of a cache this process works; empty for the cache's owner, None without a cache."""
    try:
        owner = shared.stat().st_uid
    except OSError:
        return None
    me = os.geteuid()
    return "" if me == owner else str(me)


def place_of(directory: str | Path) -> str:
    """Stack and name of a revision's directory, independent of links to its yard."""
    return "/".join(Path(directory).parts[-2:])


def is_yard(directory: Path) -> bool:
    """Whether a directory is a yard, even if it has only caches so far. Raises as `disk.is_there` does."""
    yard = Yard(directory)
    if any(disk.is_there(sign) for sign in (yard.leases, yard.uv, yard.repodata)):
        return True
    return disk.is_directory(yard.stacks) and disk.is_directory(yard.generations)


def default_yard_root() -> Path:
    """``$STACKYARD_HOME``, else ``$XDG_DATA_HOME/stackyard``, else ``~/.local/share/stackyard``.

    Raises:
        MissingError: no variable names it, and the account has no home.
    """
    named = os.environ.get("STACKYARD_HOME")
    if named:
        try:
            return home.expanded(named)
        except KeyError as error:
            hint = "write the path of the directory"
            raise InputError(f"cannot resolve $STACKYARD_HOME, {named}: no such account", hint=hint) from error
    data = home.xdg("XDG_DATA_HOME", ".local/share")
    if data is None:
        raise home.no_home("cannot choose a yard", "name one: --yard DIRECTORY, or export STACKYARD_HOME=DIRECTORY")
    return data / "stackyard"
