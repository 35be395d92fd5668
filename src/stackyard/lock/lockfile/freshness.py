"""Whether a lock is fresh: the locked packages are compared with the present policy, not the old policy with the new.

A new pin on a package that is not locked, or that the locked version satisfies, does not make a lock stale; nor does a
removed pin. The file's own requests are compared line by line: an edited requirement requests a new solve.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from urllib.parse import unquote

from stackyard.core.errors import InputError
from stackyard.core.late import dataclass
from stackyard.core.names import conda_name
from stackyard.inputs.models import Environment, Site, Variant
from stackyard.inputs.reading.paths import with_home
from stackyard.inputs.stacks.newest import end_of
from stackyard.lock import interpreter as python
from stackyard.lock.accelerator import for_variant
from stackyard.lock.conda.channels import Resolver
from stackyard.lock.conda.virtual import for_platform
from stackyard.lock.lockfile.fingerprint import (
    Fingerprint,
    changes,
    conda_requirements,
    pip_requirements,
    where_of,
)
from stackyard.lock.lockfile.model import CondaPackage, LockedVariant, PipPackage
from stackyard.lock.pip import pins
from stackyard.lock.pip.tags import best_wheel, wheel_tags
from stackyard.lock.satisfied import conda_satisfies, virtual_satisfies


@dataclass(frozen=True)
class Verdict:
    """The changes that make a lock stale, and the changes of policy that it satisfies; lines as ``+ pin numpy <2``."""

    reasons: tuple[str, ...] = ()
    harmless: tuple[str, ...] = ()


@dataclass(frozen=True)
class _Change:
    """The change of one policy setting: removed values, new values, and all present ones."""

    locked: LockedVariant
    variant: Variant
    site: Site
    word: str
    old: tuple[str, ...]
    new: tuple[str, ...]
    now: tuple[str, ...]

    @property
    def lines(self) -> tuple[str, ...]:
        return (*(f"- {self.word} {v}" for v in self.old), *(f"+ {self.word} {v}" for v in self.new))


def judge(locked: LockedVariant, now: Fingerprint, variant: Variant, site: Site) -> Verdict:
    """Compare a locked variant with the present file and policy, whose `fingerprint` is `now`."""
    if locked.spec_hash == now.digest:
        return Verdict()
    reasons = changes(locked.requested, now.requested)
    harmless: list[str] = []
    for change in _changes(locked, now, variant, site):
        broken = list(_CHECKS.get(change.word, _any)(change))
        reasons += broken
        harmless += [] if broken else change.lines
    if not reasons and not harmless:
        reasons = ["the lock was edited or written by another version of the program"]
    return Verdict(tuple(reasons), tuple(harmless))


def _changes(locked: LockedVariant, now: Fingerprint, variant: Variant, site: Site) -> Iterator[_Change]:
    old = [line for line in locked.policy if line not in now.policy]
    new = [line for line in now.policy if line not in locked.policy]
    for word in dict.fromkeys(line.split(" ", 1)[0] for line in (*old, *new)):
        values = (_values(lines, word) for lines in (old, new, now.policy))
        yield _Change(locked, variant, site, word, *values)


def _values(lines: Iterable[str], word: str) -> tuple[str, ...]:
    return tuple(line.removeprefix(f"{word} ") for line in lines if line.split(" ", 1)[0] == word)


def _any(change: _Change) -> Iterator[str]:
    """For settings of the file itself: every change makes the lock stale."""
    yield from change.lines


# --------------------------------------------------------------------------- conda


def _pins(change: _Change) -> Iterator[str]:
    for pin in change.new:
        for package in change.locked.conda:
            if package.name == conda_name(pin) and not conda_satisfies(package, pin):
                yield f"+ pin {pin} (locked: {package.name} {package.version})"


def _pip_pins(change: _Change) -> Iterator[str]:
    for package in change.locked.pip:
        if pin := pins.violated(change.new, package):
            yield f"+ pip-pin {pin} (locked: {package.name} {package.version})"


def _channels(change: _Change) -> Iterator[str]:
    """Stale if the channel of a locked package was removed or changed rank, or if the file names a new channel."""
    old, new = (" ".join(values).split() for values in (change.old, change.new))
    used = {channel: package for channel in old if (package := _from(channel, change.locked.conda))}
    for channel, package in used.items():
        if channel not in new:
            yield f"- channel {channel} (locked: {package})"
    if [c for c in old if c in used and c in new] != [c for c in new if c in used]:
        yield f"+ channels {' '.join(new)}"
    sites = Resolver(change.site.channels, where_of(change.variant)).search_list(Environment())
    yield from (f"+ channel {c}" for c in new if c not in old and c not in {s.shown for s in sites})


def _from(channel: str, packages: Iterable[CondaPackage]) -> str:
    """A package that comes from a channel, or from one whose URL has a variable; else empty."""
    names = (p.name for p in packages if "$" in channel or p.url.startswith(f"{channel}/"))
    return next(names, "")


def _priority(change: _Change) -> Iterator[str]:
    if len(change.locked.channels) > 1:
        yield from change.lines


def _newest_conda(change: _Change) -> Iterator[str]:
    for day in change.new:
        young = [p.name for p in change.locked.conda if p.timestamp_ms > end_of(day).timestamp() * 1000]
        if young:
            yield f"+ exclude-newer {day} (locked: {young[0]})"


def _newest_pip(change: _Change) -> Iterator[str]:
    """Stale if the date limit became earlier: a lock does not have the dates of wheels."""
    for day in change.new:
        if not any(_is_before(former, day) for former in change.old):
            yield f"+ pip-exclude-newer {day}"


def _is_before(old: str, new: str) -> bool:
    """Whether one date or time is earlier than another or equal; an empty one counts as the latest."""
    try:
        return end_of(old) <= end_of(new)
    except InputError:
        return False


# --------------------------------------------------------------------------- nodes and interpreter


def _virtual(change: _Change) -> Iterator[str]:
    """Stale if the nodes cannot run a locked package: by conda's virtual packages, or by a wheel's tags."""
    text = " ".join(change.new)
    if "=" not in text:  # of this machine: what is locked was made for others, or for it
        return
    have = {item.split("=")[0]: item for item in text.split()}
    for package in change.locked.conda:
        for spec in (s for s in (*package.depends, *package.constrains) if s.startswith("__")):
            virtual = have.get(conda_name(spec))
            if not (virtual_satisfies(virtual, spec) if virtual else spec not in package.depends):
                yield f"+ virtual {text} (locked: {package.name} {package.version} needs {spec})"
                return
    for name in _unfit_wheels(change.locked, have["__glibc"].split("=")[1] if "__glibc" in have else ""):
        yield f"+ virtual {text} (locked: {name})"
        return
    yield from _torch(change)


def _unfit_wheels(locked: LockedVariant, glibc: str) -> Iterator[str]:
    names = [unquote(p.url.rsplit("/", 1)[-1]) for p in locked.pip if p.kind == "wheel"]
    if names and glibc and locked.interpreter.version:
        tags = wheel_tags(locked.platform, glibc, locked.interpreter.version)
        yield from (name for name in names if best_wheel([name], tags) is None)


def _torch(change: _Change) -> Iterator[str]:
    """Stale if the locked build of torch does not match the accelerator that the axes or nodes request now."""
    torch = next((p for p in change.locked.pip if p.name == "torch" and p.kind in ("wheel", "sdist")), None)
    if torch is None:
        return
    variant, site, platform = change.variant, change.site, change.locked.platform
    virtual = for_platform(site, platform, variant.axes)
    accelerator = for_variant(variant, pip_requirements(variant, platform), site, platform, virtual)
    if accelerator is not None and not accelerator.accepts(torch.version, torch.requires):
        yield f"{change.lines[-1]} (locked: torch {torch.version}, not for {accelerator.name})"


def _torch_backend(change: _Change) -> Iterator[str]:
    """Stale if a stack with torch names another build of it."""
    if any(package.name == "torch" for package in change.locked.pip):
        yield from change.lines


def _interpreter(change: _Change) -> Iterator[str]:
    locked, interpreter = change.locked.interpreter, change.variant.interpreter.completed(change.site.interpreter)
    if locked.source == "none" or change.variant.on:
        return
    conda = bool(conda_requirements(change.variant, change.locked.platform))
    fits = python.source_of(interpreter, conda=conda) == locked.source and python.accepts(interpreter, locked.version)
    if not fits or (interpreter.path and with_home(interpreter.path).resolve() != Path(locked.path)):
        yield from change.lines


# --------------------------------------------------------------------------- pip


def _site_pip(change: _Change) -> Iterator[str]:
    """Stale if the source of a locked package was removed, or another main index replaces the former one."""
    indexed = [p for p in change.locked.pip if p.kind in ("wheel", "sdist")]
    if not indexed or any(v.startswith("read-pip-conf") for v in (*change.old, *change.new)):
        yield from change.lines if indexed else ()
        return
    if any(v.startswith("torch-backend") for v in (*change.old, *change.new)) and any(
        p.name == "torch" for p in indexed
    ):
        yield from change.lines
    for original in _mirrored(change.new):
        redirected = [p.name for p in indexed if _is_below(original, p)]
        if redirected:
            yield f"+ site-pip mirror of {original} (locked: {redirected[0]})"
    left = _places(change.now)
    for place in _places(change.old):
        gone = [p.name for p in indexed if _is_below(place, p) and not any(_is_below(other, p) for other in left)]
        if gone:
            yield f"- site-pip {place} (locked: {gone[0]})"
    main = [v.split(" ")[-1] for v in change.new if v.startswith("index-url ")]
    if main and any(p.index and not p.index.startswith("file:") and p.index not in left for p in indexed):
        yield f"+ site-pip index-url {main[0]}"


def _is_below(place: str, package: PipPackage) -> bool:
    """Whether a package comes from an index or a find-links location, or from a path below it."""
    return any(text == place or text.startswith(f"{place}/") for text in (package.index, package.url))


def _places(values: Sequence[str]) -> list[str]:
    """The URLs and directories of policy lines, without logins."""
    words = [word.rpartition("=")[2] for value in values for word in value.split(" ")[1:]]
    return [re.sub(r"(?<=://)[^/@]*@", "", word).rstrip("/") for word in words]


def _mirrored(values: Sequence[str]) -> list[str]:
    """The URLs that mirror rules replace."""
    return [word.partition("=")[0] for v in values if v.startswith("mirrors ") for word in v.split(" ")[1:]]


_CHECKS: dict[str, Callable[[_Change], Iterator[str]]] = {
    "pin": _pins,
    "pip-pin": _pip_pins,
    "channels": _channels,
    "channel-priority": _priority,
    "exclude-newer": _newest_conda,
    "pip-exclude-newer": _newest_pip,
    "virtual": _virtual,
    "torch-axis": _torch,
    "torch-backend": _torch_backend,
    "interpreter": _interpreter,
    "site-pip": _site_pip,
}
