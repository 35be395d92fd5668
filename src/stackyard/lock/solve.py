"""Locks a stack, reusing everything that is still valid."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from stackyard.core.errors import InputError
from stackyard.core.findings import counted
from stackyard.core.progress import Progress
from stackyard.host.files.hashing import local_path
from stackyard.host.machine.platforms import this_platform
from stackyard.inputs.models import Site, Stack, Variant
from stackyard.lock import interpreter as python
from stackyard.lock.lockfile import text
from stackyard.lock.lockfile.fingerprint import Fingerprint, fingerprint
from stackyard.lock.lockfile.freshness import Verdict, judge
from stackyard.lock.lockfile.model import Lock, LockedVariant
from stackyard.lock.renewal import NOTHING, Update, former
from stackyard.lock.solving import SolveContext
from stackyard.yard import checksum
from stackyard.yard.layout import Yard
from stackyard.yard.write import atomic


def site_platforms(site: Site, requested: Sequence[str] = ()) -> tuple[str, ...]:
    """The platforms to lock for: those requested, else the site's, else its node kinds', else this machine's."""
    named = tuple(requested) or tuple(site.platforms)
    return named or tuple(dict.fromkeys(k.platform for k in site.nodes.values())) or (this_platform(),)


def _with_platforms(variants: Iterable[Variant], site: Site, platforms: Sequence[str]) -> Iterator[tuple[Variant, str]]:
    """Each variant with each of its platforms; ``platforms:`` of a file or a variant excludes others."""
    for variant in variants:
        for platform in site_platforms(site, platforms):
            limits = [names for names in (variant.platforms, variant.environment.platforms) if names]
            if all(platform in names for names in limits):
                yield variant, platform


def lock_stack(
    stack: Stack, site: Site, yard: Yard, platforms: Sequence[str], previous: Lock | None, progress: Progress, *,
    update: Update = NOTHING, kept_by: Sequence[Yard] = (),
) -> Lock:  # fmt: skip
    """Lock every requested variant for every platform, solving only what changed.

    Fresh entries of `previous` are reused, and every solve prefers its packages. Entries of variants that are not
    requested are kept, fresh or not. Solutions are also kept in the yard, for the yards below it.

    Args:
        platforms: conda platforms; empty means the site's, else those of its node kinds, else this machine's.
        update: the locked packages to update.
        kept_by: yards whose solutions for the same spec hash are used if `previous` has no entry.

    Raises:
        InputError: nothing to lock for these platforms, or a spec that has no solution.
        StackyardError: a channel or index cannot be reached.
    """
    expected = list(_with_platforms(stack.wanted, site, platforms))
    if not expected:
        names = ", ".join(site_platforms(site, platforms))
        raise InputError(
            f"{stack.name} does not support {names}", hint="check `platforms:` in its file and in site.yaml"
        )
    done: list[LockedVariant] = []
    for n, (variant, platform) in enumerate(expected):
        subject = _subject(variant, platform)
        print_of = fingerprint(variant, site, platform)
        before = former(previous, variant.version, variant.name, platform)
        # the cheapest source first: the previous lock, a variant just locked, another yard's, then a solve
        solution = _reusable(variant, site, platform, print_of, previous, update) or _same(done, platform, print_of)
        if solution is None and before is None:
            solution = _kept(platform, print_of, kept_by, subject, progress)
        if solution is None:
            solution = SolveContext(variant, site, yard, platform, subject, progress, before, update).run(print_of)
            _keep(solution, yard)
            progress.phase(subject, "locked", counted(len(solution.conda) + len(solution.pip), "package"))
        # a lock that is shared has the names of the variant that it was solved for
        for notice in solution.notices:  # those about a platform are the same for all variants, and are shown once
            progress.notice(notice if notice.startswith(f"{platform}: ") else f"{subject}: {notice}")
        done.append(replace(solution, stack=variant.stack, version=variant.version, variant=variant.name))
        progress.advance(stack.name, n + 1, len(expected))
    directory = str(Path(stack.file).absolute().parent) if stack.file else ""
    return Lock(stack.name, _with_others(done, stack, site, platforms, previous), directory)


def _with_others(
    done: Sequence[LockedVariant], stack: Stack, site: Site, platforms: Sequence[str], previous: Lock | None
) -> tuple[LockedVariant, ...]:
    """The new locks, and the previous ones of variants that are not requested; in the matrix's order."""
    by_key = {variant.key: variant for variant in done}
    keys = [(v.version, v.name, platform) for v, platform in _with_platforms(stack.variants, site, platforms)]
    both = (by_key.get(key) or (previous.find(*key) if previous else None) for key in keys)
    return tuple(variant for variant in both if variant)


def staleness(lock: Lock, stack: Stack, site: Site, platforms: Sequence[str]) -> Verdict:
    """Compare the requested part of a lock with the present file and policy; each change once for all variants.

    Uses neither a solver nor the network.
    """
    reasons: list[str] = []
    changed: dict[str, list[str]] = {}
    harmless: dict[str, None] = {}
    keys = {(v.version, v.name, platform) for v, platform in _with_platforms(stack.variants, site, platforms)}
    for variant, platform in _with_platforms(stack.wanted, site, platforms):
        locked = lock.find(variant.version, variant.name, platform)
        subject = _subject(variant, platform)
        if locked is None:
            reasons.append(f"{subject} is not locked")
            continue
        verdict = judge(locked, fingerprint(variant, site, platform), variant, site)
        harmless.update(dict.fromkeys(verdict.harmless))
        for line in verdict.reasons:
            changed.setdefault(line, []).append(subject)
        if not verdict.reasons and platform == this_platform() and not python.unchanged(locked.interpreter):
            reasons.append(f"{subject}: {locked.interpreter.path} is no longer the locked Python")
    targets = set(site_platforms(site, platforms))
    gone = [v for v in lock.variants if v.key not in keys and v.platform in targets]
    reasons += [f"{_together(subjects)}: {line}" for line, subjects in changed.items()]
    reasons += [f"{_named(v.version, v.variant)} for {v.platform} is no longer in the file" for v in gone]
    return Verdict(tuple(reasons), tuple(harmless))


def _together(subjects: Sequence[str]) -> str:
    return subjects[0] if len(subjects) == 1 else f"{subjects[0]} and {len(subjects) - 1} more"


def _subject(variant: Variant, platform: str) -> str:
    return f"{variant.stack} {_named(variant.version, variant.name)} for {platform}"


def _named(version: str, variant: str) -> str:
    return "-".join(part for part in (version, variant) if part)


# --------------------------------------------------------------------------- reuse


def _reusable(
    variant: Variant, site: Site, platform: str, print_of: Fingerprint, previous: Lock | None, update: Update
) -> LockedVariant | None:
    """An entry of the previous lock that is still fresh and has no package to update, or None."""
    if previous is None:
        return None
    named = previous.find(variant.version, variant.name, platform)
    if named is not None and not judge(named, print_of, variant, site).reasons and _intact(named):
        return None if update.concerns(named) else named
    same = (v for v in previous.variants if (v.spec_hash, v.platform) == (print_of.digest, platform))
    return next((v for v in same if _intact(v) and not update.concerns(v)), None)


def _same(done: Sequence[LockedVariant], platform: str, print_of: Fingerprint) -> LockedVariant | None:
    """The solution of this run for another variant with the same requirements."""
    return next((v for v in done if (v.spec_hash, v.platform) == (print_of.digest, platform)), None)


def _kept(
    platform: str, print_of: Fingerprint, yards: Sequence[Yard], subject: str, progress: Progress
) -> LockedVariant | None:
    """The solution for a spec hash that one of these yards keeps, or None; a damaged one is skipped with a notice."""
    for path in (yard.kept_lock(print_of.digest) for yard in yards):
        try:
            variants = text.read(path).variants if path.is_file() else ()
        except InputError as error:
            progress.notice(f"{path} is left out: {error.message}")
            continue
        for candidate in variants:
            if candidate.platform == platform and _intact(candidate):
                progress.notice(f"{subject}: solved before, as kept in {path.parent} (`--update` solves again)")
                return candidate
    return None


def _intact(locked: LockedVariant) -> bool:
    if locked.platform == this_platform() and not python.unchanged(locked.interpreter):
        return False
    paths = [local_path(p.url) for p in locked.pip if p.kind == "path"]
    return all(path is not None and path.exists() for path in paths)


def _keep(locked: LockedVariant, yard: Yard) -> None:
    atomic.write_text(yard.kept_lock(locked.spec_hash), checksum.add(text.dump(Lock(locked.stack, (locked,)))))
