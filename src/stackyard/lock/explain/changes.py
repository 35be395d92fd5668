"""Why packages changed between two locks: the requirement that no longer accepts the locked version."""

from __future__ import annotations

from collections.abc import Iterator

from stackyard.core.names import canonical, conda_name, pip_name
from stackyard.lock.explain.diff import Change, Item, compare
from stackyard.lock.lockfile.model import CondaPackage, LockedVariant, PipPackage
from stackyard.lock.pip.pins import violated
from stackyard.lock.satisfied import conda_satisfies, pip_satisfies

Package = CondaPackage | PipPackage


def moves(before: LockedVariant, after: LockedVariant) -> list[str]:
    """The changes from one locked variant to the next, one line each in order of name, with the reason if known.

    ``~ numpy 2.1 0 -> 1.26 0 (conda): requested numpy <2``
    """
    diff = compare(before, after)
    locked = {(_kind(p), canonical(p.name)): p for p in before.packages}
    lines = [(i.name, f"+ {i.label}", _need(i, after)) for i in diff.added]
    lines += [(i.name, f"- {i.label}", "no longer needed") for i in diff.removed]
    for change in diff.changed:
        old = locked[change.new.kind, canonical(change.new.name)]
        lines.append((change.new.name, change.line, _reason(change, old, after)))
    return [f"{line}: {why}" if why else line for _, line, why in sorted(lines)]


def _kind(package: Package) -> str:
    return "conda" if isinstance(package, CondaPackage) else "pip"


def _need(item: Item, after: LockedVariant) -> str:
    """Why a package was added: the requirement, or the first package that depends on it."""
    line = next((text for text in _requested(after, item.kind) if _is(text, item)), "")
    if line:
        return f"requested {line}"
    return next((f"needed by {who}" for who, text in _needs(after, item.kind) if _is(text, item)), "")


def _reason(change: Change, old: Package, after: LockedVariant) -> str:
    """Why a package changed; empty if the old version is still acceptable: it is newer, or from another source."""
    item = change.new
    for text in _requested(after, item.kind):
        if _is(text, item) and not _satisfies(old, text):
            return f"requested {text}"
    for line in after.policy:
        word, _, pin = line.partition(" ")
        if word == "pin" and item.kind == "conda" and _is(pin, item) and not _satisfies(old, pin):
            return f"the site's pin {pin}"
        if word == "pip-pin" and isinstance(old, PipPackage) and violated([pin], old):
            return f"the site's pin {pin}"
    needs = ((who, text) for who, text in _needs(after, item.kind) if _is(text, item))
    return next((f"{who} needs {text}" for who, text in needs if not _satisfies(old, text)), "")


def _satisfies(package: Package, text: str) -> bool:
    if isinstance(package, CondaPackage):
        return conda_satisfies(package, text)
    return pip_satisfies(package, text)


def _requested(locked: LockedVariant, kind: str) -> Iterator[str]:
    """The requirements of one kind, as written in the file."""
    for line in locked.requested:
        if line.startswith("pip: ") == (kind == "pip"):
            yield line.removeprefix("pip: ")


def _needs(locked: LockedVariant, kind: str) -> Iterator[tuple[str, str]]:
    """Every package of one kind, with each of its requirements."""
    for conda in locked.conda if kind == "conda" else ():
        yield from ((f"{conda.name} {conda.version}", text) for text in conda.depends)
    for pip in locked.pip if kind == "pip" else ():
        yield from ((f"{pip.name} {pip.version}", text) for text in pip.requires)


def _is(text: str, item: Item) -> bool:
    """Whether a requirement names a package."""
    name = canonical(conda_name(text)) if item.kind == "conda" else pip_name(text)
    return name == canonical(item.name)
