"""The preferences of a new solve: everything that is locked now, except the packages to update.

So adding a requirement changes no other package, unless it must. After a requirement is removed, packages that only it
needed are dropped: a preference installs nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from stackyard.core import secrets
from stackyard.core.errors import InputError
from stackyard.core.hints import did_you_mean
from stackyard.core.late import dataclass
from stackyard.core.names import canonical, conda_name
from stackyard.inputs.models import PipRequirement
from stackyard.lock.lockfile.model import CondaPackage, Lock, LockedVariant, PipPackage


@dataclass(frozen=True)
class Update:
    """The locked packages to update: `everything`, or the packages of these names in conda or on PyPI."""

    everything: bool = False
    names: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return self.everything or bool(self.names)

    @property
    def shown(self) -> str:
        """The option of the command line, for messages."""
        return " ".join(["--update", *self.names])

    def concerns(self, locked: LockedVariant) -> bool:
        """Whether a locked variant has a package to update."""
        return self.everything or any(self.names_one(p.name) for p in locked.packages)

    def names_one(self, package: str) -> bool:
        """Whether a package is among those named; case, ``-`` and ``_`` do not matter."""
        return canonical(package) in {canonical(name) for name in self.names}


NOTHING = Update()


def require_known(update: Update, locks: Iterable[Lock]) -> None:
    """Raise InputError for a name that no lock has: a misspelt one would silently update nothing."""
    known = {canonical(p.name): p.name for lock in locks for v in lock.variants for p in v.packages}
    for name in update.names:
        if canonical(name) not in known:
            hint = did_you_mean(canonical(name), known, "name a package of the lock", count=3, shown=known.__getitem__)
            raise InputError(f"cannot update {name}: not in the lock", hint=hint)


def former(previous: Lock | None, version: str, variant: str, platform: str) -> LockedVariant | None:
    """The previous lock of a variant: under its version, else under the newest other one (for a new version)."""
    if previous is None:
        return None
    same = previous.find(version, variant, platform)
    return same or next(
        (v for v in reversed(previous.variants) if (v.variant, v.platform) == (variant, platform)), None
    )


@dataclass(frozen=True)
class PreferredPackages:
    """The packages that a solve keeps if possible.

    Attributes:
        conda: the locked conda packages, including those to update.
        pip: the locked pip packages, without those to update.
        renewed: the names of the conda packages to update.
    """

    conda: tuple[CondaPackage, ...] = ()
    pip: tuple[PipPackage, ...] = ()
    renewed: frozenset[str] = frozenset()

    @classmethod
    def of(cls, locked: LockedVariant | None, update: Update) -> PreferredPackages:
        """The preferences that follow from a locked variant."""
        if locked is None or update.everything:
            return cls()
        renewed = frozenset(p.name for p in locked.conda if update.names_one(p.name))
        return cls(locked.conda, tuple(p for p in locked.pip if not update.names_one(p.name)), renewed)

    @property
    def kept(self) -> tuple[CondaPackage, ...]:
        """The conda packages to keep if possible."""
        return tuple(p for p in self.conda if p.name not in self.renewed)

    @property
    def independent(self) -> tuple[CondaPackage, ...]:
        """The kept packages on which no package to update depends."""
        needed = set(_needed(self.conda, self.renewed))
        return tuple(p for p in self.kept if p.name not in needed)


ALL_FREE = PreferredPackages()


@dataclass(frozen=True)
class Preference:
    """A locked pip package for uv; for a git requirement also the URL, the reference in it, and the commit."""

    name: str
    version: str
    git: str = ""
    reference: str = ""
    commit: str = ""

    @classmethod
    def of(cls, package: PipPackage, requirements: Iterable[PipRequirement]) -> Preference:
        """The preference for a package; an unchanged branch requirement stays at its commit."""
        matches = [r for r in requirements if r.kind == "vcs" and canonical(r.name) in ("", package.name)]
        for url, reference in (repository(secrets.address(r.url)) for r in matches):
            if package.kind == "vcs" and url == package.url.removeprefix("git+"):
                return cls(package.name, package.version, url, reference, package.commit)
        return cls(package.name, package.version)


def repository(url: str) -> tuple[str, str]:
    """The repository and the reference (branch, tag, commit; or empty) of ``git+https://host/path@reference#...``."""
    plain = url.removeprefix("git+").partition("#")[0]
    scheme, _, rest = plain.partition("://")
    host, slash, path = rest.partition("/")
    path, _, reference = path.partition("@")
    return f"{scheme}://{host}{slash}{path}", reference


def _needed(packages: Iterable[CondaPackage], names: Iterable[str]) -> Iterator[str]:
    """The packages of these names and all their direct and indirect dependencies."""
    depends = {p.name: [conda_name(d) for d in p.depends] for p in packages}
    queue, seen = list(names), set(names)
    while queue:
        name = queue.pop()
        yield name
        new = [d for d in depends.get(name, ()) if d in depends and d not in seen]
        seen.update(new)
        queue += new
