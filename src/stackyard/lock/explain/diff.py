"""The difference between two sets of packages: two locked variants, two build records, or one of each.

Standard library only.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from typing import Any

from stackyard.core.names import canonical
from stackyard.lock.lockfile.model import CondaPackage, LockedVariant, PipPackage
from stackyard.yard.revision.record import BuildRecord, PackageRecord


@dataclass(frozen=True)
class Item:
    """The compared properties of a package."""

    kind: str
    name: str
    version: str
    build: str
    source: str
    sha256: str

    @property
    def label(self) -> str:
        """``name version build (kind)``."""
        return f"{self.name} {self.shown} ({self.kind})"

    @property
    def shown(self) -> str:
        """``version build``."""
        return f"{self.version} {self.build}".rstrip()


@dataclass(frozen=True)
class Change:
    """One package that differs between the two sides; `what` lists the differing fields."""

    old: Item
    new: Item
    what: tuple[str, ...]

    @property
    def line(self) -> str:
        """``~ name old -> new (kind)``."""
        old, new = self.old, self.new
        if "version" in self.what or "build" in self.what:
            return f"~ {new.name} {old.shown} -> {new.shown} ({new.kind})"
        if "source" in self.what:
            return f"~ {new.name} {new.shown} from {old.source} -> {new.source} ({new.kind})"
        return f"~ {new.name} {new.shown}: other bytes of the same version, {old.sha256[:12]} -> {new.sha256[:12]}"


@dataclass(frozen=True)
class Diff:
    """The packages that were added, removed and changed, each in order of name, conda before pip."""

    added: tuple[Item, ...] = ()
    removed: tuple[Item, ...] = ()
    changed: tuple[Change, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.added or self.removed or self.changed)

    def to_json(self) -> dict[str, Any]:
        """The difference as JSON values."""
        return asdict(self)

    def lines(self) -> list[str]:
        """The difference as text: ``+ name version``, ``- name version``, ``~ name old -> new``."""
        rows = [(i.name, f"+ {i.label}") for i in self.added]
        rows += [(i.name, f"- {i.label}") for i in self.removed]
        rows += [(c.new.name, c.line) for c in self.changed]
        return [text for _, text in sorted(rows)]


Package = CondaPackage | PipPackage | PackageRecord
Side = LockedVariant | BuildRecord | Iterable[Package]


def compare(a: Side, b: Side) -> Diff:
    """The difference between `a` and `b`; each is a locked variant, a record or a list of packages.

    A package that moved from conda to pip counts as removed and added. Hashes are compared only if both sides have
    them.
    """
    old, new = ({(i.kind, canonical(i.name)): i for i in _items(side)} for side in (a, b))
    both = sorted(old.keys() & new.keys())
    changes = (Change(old[key], new[key], _differences(old[key], new[key])) for key in both)
    return Diff(
        added=tuple(new[key] for key in sorted(new.keys() - old.keys())),
        removed=tuple(old[key] for key in sorted(old.keys() - new.keys())),
        changed=tuple(change for change in changes if change.what),
    )


def _items(side: Side) -> Iterator[Item]:
    packages: Iterable[Package] = side.packages if isinstance(side, LockedVariant | BuildRecord) else side
    return (_item(package) for package in packages)


def _item(package: Package) -> Item:
    match package:
        case PackageRecord():
            return Item(package.kind, package.name, package.version, package.build, package.source, package.sha256)
        case CondaPackage():
            return Item("conda", package.name, package.version, package.build, package.channel, package.sha256)
        case PipPackage():
            return Item("pip", package.name, package.version, "", package.index, package.sha256)


def _differences(old: Item, new: Item) -> tuple[str, ...]:
    names = [name for name in ("version", "build", "source") if getattr(old, name) != getattr(new, name)]
    if not names and old.sha256 and new.sha256 and old.sha256 != new.sha256:
        names = ["sha256"]
    return tuple(names)
