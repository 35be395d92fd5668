"""The base of an extension: its revision, and the packages that its interpreter finds.

The interpreter of the base is queried (in the mounted image, if there is one): a layer has everything that it can
import, whichever tool installed it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from packaging.version import InvalidVersion, Version

from stackyard.core.errors import InputError, StackyardError, Where
from stackyard.core.names import canonical, of_purls
from stackyard.lock.base import interpreter as asking
from stackyard.lock.base.distributions import UnreadPackage
from stackyard.lock.lockfile.model import CondaPackage, LockedInterpreter, LockedVariant
from stackyard.lock.lockfile.text import read
from stackyard.lock.pip.provided import ProvidedDistribution
from stackyard.yard import catalogue, disk
from stackyard.yard.kinds.extension import BaseRevision
from stackyard.yard.layout import Yard
from stackyard.yard.revision import signatures
from stackyard.yard.revision.record import BuildRecord, PackageRecord

if TYPE_CHECKING:
    from stackyard.inputs.models import Stack, Variant


def looked_up(stack: Stack, yard: Yard) -> Stack:
    """The stack with the base of each variant resolved, including the version and the platform of the base.

    Raises:
        InputError: no such revision, or it cannot be extended.
        StackyardError: its record cannot be read.
    """
    if not any(variant.on for variant in stack.variants):
        return stack
    variants = tuple(_on_base(variant, stack, yard) if variant.on else variant for variant in stack.variants)
    dated = stack.dated and not all(variant.on for variant in stack.variants)
    return stack.model_copy(update={"variants": variants, "dated": dated})


def _on_base(variant: Variant, stack: Stack, yard: Yard) -> Variant:
    where = Where(variant.place.file, variant.place.line, variant.place.column)
    try:
        record = catalogue.record_of(yard, variant.on)
    except InputError as error:
        raise InputError(f"base: {error.message}", where=where, hint=error.hint) from error
    signatures.require(record, "extend", yard)
    _require_extensible(record, where)
    update = {
        "base": of_record(record),
        "platforms": (record.platform,),
        "name": variant.name or record.variant,
        "version": record.version if stack.dated else variant.version,
    }
    return variant.model_copy(update=update)


def of_record(record: BuildRecord) -> BaseRevision:
    """The `BaseRevision` of a record."""
    root = Path(record.path).parents[2]
    return BaseRevision(str(root), record.module, record.input_hash, record.prefix, record.payload.kind)


def _require_extensible(record: BuildRecord, where: Where) -> None:
    if not record.interpreter:
        hint = "choose a base with Python; or list all packages in a file of your own: stackyard deploy FILE"
        raise InputError(f"cannot extend {record.module}: it has no Python", where=where, hint=hint)
    if str(record.interpreter.get("version", "")).startswith("2."):
        hint = "build a full revision with --full"
        raise InputError(f"cannot extend {record.module}: its Python is 2", where=where, hint=hint)


def record_of(base: BaseRevision) -> BuildRecord:
    """The record of a base, which must not have changed since the base was looked up.

    Raises:
        StackyardError: it was removed, or another revision replaced it.
    """
    hint = "choose another base: `stackyard list` shows them"
    if not disk.is_there(base.paths.record):
        raise StackyardError(f"the base {base.id} was removed: {base.paths.record} not found", hint=hint)
    record = base.read()
    if record.input_hash != base.hash:
        raise StackyardError(f"the base {base.id} in {base.paths.root} is another revision now", hint=hint)
    return record


def interpreter(base: BaseRevision) -> LockedInterpreter:
    """The Python of a layer: the base's executable, with all links resolved."""
    fields = record_of(base).interpreter
    path = fields["path"] if fields["source"] in ("host", "uv", "base") else str(base.payload.python)
    return LockedInterpreter("base", fields["version"], path)


def locks(base: BaseRevision) -> tuple[LockedVariant, ...]:
    """The locks that a base was built from; for a base that is an extension, also those of its own base."""
    return tuple(variant for revision in base.lineage(record_of) for variant in _variants(revision))


def packages(base: BaseRevision | None) -> tuple[PackageRecord, ...]:
    """The packages of the base that a layer finds installed; none for a complete revision."""
    return record_of(base).packages if base else ()


@lru_cache(maxsize=4)
def _variants(base: BaseRevision) -> tuple[LockedVariant, ...]:
    return read(base.paths.lock).variants


def added(solved: Iterable[CondaPackage], below: Iterable[CondaPackage]) -> tuple[CondaPackage, ...]:
    """The packages that a conda solve adds to a base."""
    present = {package.name for package in below}
    return tuple(package for package in solved if package.name not in present)


def require_new(
    new: Iterable[CondaPackage], unread: Sequence[UnreadPackage], base: BaseRevision, where: Where | None
) -> None:
    """Reject conda packages that a layer cannot contain.

    Args:
        new: the added packages, with their distributions (`dists.described`).
        unread: the added packages whose distributions are unknown.

    Raises:
        InputError: a package is another Python, or the base already has it from pip.
    """
    by_pip = {canonical(p.name): p for p in record_of(base).packages if p.kind == "pip"}
    names = {package.name: [name for name, _ in of_purls(package.purls)] for package in new}
    names |= {package.package.name: [name for name in by_pip if package.may_install(name)] for package in unread}
    for package in new:
        if package.name == "python":
            hint = "use its pip package with --pip, or build a full revision with --full"
            message = f"conda would install another Python {package.version} over that of the base {base.id}"
            raise InputError(message, where=where, hint=hint)
        twice = [by_pip[n] for n in names[package.name] if n in by_pip]
        if twice:
            has = f"the base {base.id} has {twice[0].name} {twice[0].version} by pip"
            hint = "leave it out: the extension has it from its base; or build a full revision with --full"
            message = f"conda would install {package.name} {package.version} again: {has}"
            raise InputError(message, where=where, hint=hint)


def contradicted(error: InputError, base: BaseRevision, below: Iterable[CondaPackage]) -> InputError:
    """A failed conda solve on a base as an error that lists the base's versions of the conflicting packages."""
    reason = error.detail or ""
    named = [p for p in below if re.search(rf"(?<![\w.-]){re.escape(p.name)}(?![\w-])", reason)]
    has = ", ".join(f"{p.name} {p.version} {p.build}" for p in named) or "other packages"
    hint = (
        f"{error.hint}; or build a full revision, in which packages of the base may change: `stackyard extend --full`"
    )
    return InputError(error.message, where=error.where, hint=hint, detail=f"{reason}\nthe base {base.id} has {has}")


def whole(layer: LockedVariant, base: BaseRevision | None) -> LockedVariant:
    """A layer and its base as one locked variant, for listing and explaining the packages of an extension."""
    if base is None:
        return layer
    below = locks(base)
    lowest = below[-1]  # the lowest one has the interpreter and the channels
    return replace(
        layer,
        interpreter=lowest.interpreter,
        channels=tuple(dict.fromkeys(c for variant in (layer, *below) for c in variant.channels)),
        requested=tuple(dict.fromkeys(line for variant in (*reversed(below), layer) for line in variant.requested)),
        conda=tuple(p for variant in (*reversed(below), layer) for p in variant.conda),
        pip=tuple(p for variant in (*reversed(below), layer) for p in variant.pip),
    )


def distributions(base: BaseRevision) -> tuple[tuple[ProvidedDistribution, ...], tuple[str, ...]]:
    """The distributions that the interpreter of a base finds, and notices about those that pip cannot compare.

    Raises:
        StackyardError: as for `asking.ask`.
    """
    result: dict[str, ProvidedDistribution] = {}
    notices = []
    for name, version, extras in asking.ask(base).distributions:
        try:
            plain = str(Version(version))
        except InvalidVersion:
            notices.append(f"{name} of {base.id} has a version that pip cannot compare; it is hidden from pip")
            continue
        result.setdefault(canonical(name), ProvidedDistribution(canonical(name), plain, base=base.id, extras=extras))
    return tuple(result[name] for name in sorted(result)), tuple(notices)
