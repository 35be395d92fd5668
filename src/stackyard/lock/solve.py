"""The entry point of the package: locks a stack, reusing everything that is still valid."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from stackyard.errors import InputError
from stackyard.host.hashing import local_path
from stackyard.host.platforms import this_platform
from stackyard.lock import interpreter as python
from stackyard.lock import text
from stackyard.lock.fingerprint import (
    Fingerprint,
    changes,
    conda_requirements,
    constraints,
    fingerprint,
    option_places,
    pip_requirements,
    place_of,
    wanted,
    where_of,
)
from stackyard.lock.model import Lock, LockedInterpreter, LockedVariant, PipPackage
from stackyard.lock.redact import redact, variables_of
from stackyard.lock.virtual import Virtual, for_platform
from stackyard.progress import Progress
from stackyard.spec.models import Interpreter, Site, Stack, Variant
from stackyard.yard import atomic
from stackyard.yard.layout import Yard


def site_platforms(site: Site, requested: Sequence[str] = ()) -> tuple[str, ...]:
    """The platforms to lock for: those requested, else the site's, else its node kinds', else this machine's."""
    named = tuple(requested) or tuple(site.platforms)
    return named or tuple(dict.fromkeys(k.platform for k in site.nodes.values())) or (this_platform(),)


def pairs(stack: Stack, site: Site, platforms: Sequence[str] = ()) -> Iterator[tuple[Variant, str]]:
    """Every variant with every platform that it is for; ``platforms:`` of a file or a variant leaves the others out."""
    for variant in stack.variants:
        for platform in site_platforms(site, platforms):
            limits = [names for names in (variant.platforms, variant.environment.platforms) if names]
            if all(platform in names for names in limits):
                yield variant, platform


def lock_stack(
    stack: Stack, site: Site, yard: Yard, platforms: Sequence[str], previous: Lock | None, progress: Progress
) -> Lock:
    """Lock every variant for every platform, solving only what was not solved before.

    An entry of `previous`, or one that this yard or a parent of it keeps, is taken where its spec hash is the
    same. What was solved is kept in the yard at once, so that a later failure loses nothing.

    Args:
        platforms: conda platforms; empty means the site's, else those of its node kinds, else this machine's.

    Raises:
        InputError: nothing to lock for these platforms, or a spec that has no solution.
        StackyardError: a channel or index cannot be reached.
    """
    expected = list(pairs(stack, site, platforms))
    if not expected:
        names = ", ".join(site_platforms(site, platforms))
        raise InputError(
            f"{stack.name} does not support {names}", hint="check `platforms:` in its file and in site.yaml"
        )
    done = []
    for n, (variant, platform) in enumerate(expected):
        subject = _subject(variant, platform)
        print_of = fingerprint(variant, site, platform)
        found = _reusable(variant, platform, print_of, yard, previous)
        if found is None:
            found = _solve(variant, site, yard, platform, print_of, progress)
            _keep(found, yard)
            progress.phase(subject, "locked", f"{len(found.conda) + len(found.pip)} packages")
        for notice in found.notices:
            progress.notice(f"{subject}: {notice}")
        done.append(replace(found, stack=variant.stack, version=variant.version, variant=variant.name))
        progress.advance(stack.name, n + 1, len(expected))
    folder = str(Path(stack.file).absolute().parent) if stack.file else ""
    return Lock(stack.name, tuple(done), folder)


def spec_hash(variant: Variant, site: Site, platform: str) -> str:
    """The hash of all that influences the solve of one variant on one platform, in the spec and in the site."""
    return fingerprint(variant, site, platform).digest


def stale(lock: Lock, stack: Stack, site: Site, platforms: Sequence[str]) -> list[str]:
    """What makes a lock stale, one line each, once for all variants; empty if it is fresh."""
    reasons: list[str] = []
    changed: dict[str, list[str]] = {}
    expected = list(pairs(stack, site, platforms))
    keys = {(v.version, v.name, platform) for v, platform in expected}
    for variant, platform in expected:
        locked = lock.find(variant.version, variant.name, platform)
        subject = _subject(variant, platform)
        if locked is None:
            reasons.append(f"{subject} is not locked")
            continue
        now = fingerprint(variant, site, platform)
        if now.digest != locked.spec_hash:
            for line in _differences(locked, now):
                changed.setdefault(line, []).append(subject)
        elif platform == this_platform() and not python.unchanged(locked.interpreter):
            reasons.append(f"{subject}: {locked.interpreter.path} is no longer the locked Python")
    asked = set(site_platforms(site, platforms))
    gone = [v for v in lock.variants if v.key not in keys and v.platform in asked]
    reasons += [f"{_together(subjects)}: {line}" for line, subjects in changed.items()]
    return reasons + [f"{_named(v.version, v.variant)} for {v.platform} is no longer in the file" for v in gone]


def _together(subjects: Sequence[str]) -> str:
    return subjects[0] if len(subjects) == 1 else f"{subjects[0]} and {len(subjects) - 1} more"


def _differences(locked: LockedVariant, now: Fingerprint) -> list[str]:
    lines = changes(locked.requested, now.requested) + changes(locked.policy, now.policy)
    return lines or ["the lock was edited or written by another version of the program"]


def _subject(variant: Variant, platform: str) -> str:
    return f"{variant.stack} {_named(variant.version, variant.name)} for {platform}"


def _named(version: str, variant: str) -> str:
    return "-".join(part for part in (version, variant) if part)


# --------------------------------------------------------------------------- reuse


def _reusable(
    variant: Variant, platform: str, print_of: Fingerprint, yard: Yard, previous: Lock | None
) -> LockedVariant | None:
    """An entry with the same spec hash whose local files are all still there, or None."""
    for candidate in _candidates(variant, platform, print_of.digest, yard, previous):
        if candidate.spec_hash == print_of.digest and candidate.platform == platform and _intact(candidate):
            return candidate
    return None


def _candidates(
    variant: Variant, platform: str, digest: str, yard: Yard, previous: Lock | None
) -> Iterator[LockedVariant]:
    if previous is not None:
        named = previous.find(variant.version, variant.name, platform)
        yield from (v for v in (named, *previous.variants) if v is not None)
    for place in yard.lineage():
        path = place.kept_lock(digest)
        if path.is_file():
            yield from text.read(path).variants


def _intact(locked: LockedVariant) -> bool:
    if locked.platform == this_platform() and not python.unchanged(locked.interpreter):
        return False
    paths = [local_path(p.url) for p in locked.pip if p.kind == "path"]
    return all(path is not None and path.exists() for path in paths)


def _keep(locked: LockedVariant, yard: Yard) -> None:
    atomic.write_text(yard.kept_lock(locked.spec_hash), text.dump(Lock(locked.stack, (locked,))))


# --------------------------------------------------------------------------- solving


def _solve(
    variant: Variant, site: Site, yard: Yard, platform: str, print_of: Fingerprint, progress: Progress
) -> LockedVariant:
    """Solve the conda part, find the interpreter, then solve the pip part on top of both."""
    subject = _subject(variant, platform)
    progress.phase(subject, "solve")
    virtual = for_platform(site, platform, variant.axes)
    asked = wanted(variant, site)
    source = python.source_of(asked, conda=bool(conda_requirements(variant, platform)))
    locked = LockedVariant(
        variant.stack, variant.version, variant.name, platform, print_of.digest, LockedInterpreter("none"),
        virtual=virtual.packages, requested=print_of.requested, policy=print_of.policy,
    )  # fmt: skip
    locked = _with_conda(locked, variant, site, yard, asked if source == "conda" else None, virtual, subject)
    if source != "conda":
        locked = replace(locked, interpreter=_interpreter(source, asked, locked, variant, yard))
    pip, notices = _pip(locked, variant, site, yard, virtual, subject, progress)
    locked = replace(locked, pip=pip, notices=(*virtual.notices, *locked.notices, *notices))
    return redact(locked, variables_of(variant.environment), os.environ)


def _with_conda(
    locked: LockedVariant, variant: Variant, site: Site, yard: Yard, asked: Interpreter | None, virtual: Virtual,
    subject: str,
) -> LockedVariant:  # fmt: skip
    """The conda packages; with `asked`, Python is one of them if pip packages or the stack need it."""
    from stackyard.lock.channels import Resolver

    requirements = conda_requirements(variant, locked.platform)
    resolver = Resolver(site.channels, where_of(variant))
    specs = [resolver.spec(r) for r in requirements]
    places = tuple((spec, r.place) for spec, r in zip(specs, requirements, strict=True) if r.place.file)
    pips = pip_requirements(variant, locked.platform)
    if asked is not None and (asked.version or (pips and not any(r.name == "python" for r in requirements))):
        specs.append(python.conda_spec(asked.version))
    if not specs:
        return locked
    from stackyard.lock.conda import CondaRequest, solve_conda

    channels = resolver.search_list(variant.environment, locked.platform, variant.axes)
    request = CondaRequest(
        subject, locked.platform, tuple(specs), channels, virtual.packages, yard.repodata, site.pins,
        site.channels.priority, site.channels.exclude_newer, place_of(variant), places,
    )  # fmt: skip
    packages = solve_conda(request)
    return replace(
        locked, conda=packages, channels=tuple(c.shown for c in channels), interpreter=python.from_conda(packages),
    )  # fmt: skip


def _interpreter(
    source: python.Source, asked: Interpreter, locked: LockedVariant, variant: Variant, yard: Yard
) -> LockedInterpreter:
    where = place_of(variant)
    if locked.interpreter.source == "conda":
        raise InputError(
            f"two interpreters: interpreter: source: {source}, and python {locked.interpreter.version} of conda",
            where=where,
            hint="remove python and what depends on it from the conda packages, or use interpreter: source: conda",
        )
    if source == "host":
        return python.from_host(asked, locked.platform, where)
    return python.from_uv(asked, locked.platform, yard.pythons, where)


def _pip(
    locked: LockedVariant, variant: Variant, site: Site, yard: Yard, virtual: Virtual, subject: str, progress: Progress
) -> tuple[tuple[PipPackage, ...], tuple[str, ...]]:
    from stackyard.lock import pip
    from stackyard.lock.given import given
    from stackyard.spec import pipsettings

    requirements = pip_requirements(variant, locked.platform)
    if not requirements:
        return (), ()
    progress.phase(subject, "solve", "pip")
    places = option_places(variant)
    settings, notices = pipsettings.settings(site.pip, variant.environment.pip_options, os.environ, places)
    provided, unknown = given(locked.conda, yard.lineage())
    request = pip.PipRequest(
        subject, locked.platform, locked.interpreter.version, virtual.version("__glibc"), requirements, settings,
        yard.uv, constraints(variant, locked.platform), provided, variant.build, place_of(variant),
        site.channels.exclude_newer, places,
    )  # fmt: skip
    solution = pip.solve_pip(request)
    return solution.packages, (*notices, *unknown, *solution.notices)
