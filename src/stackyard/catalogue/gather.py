"""Reads a yard for its catalogue. What an earlier run read is read again only where its files have changed."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from itertools import groupby
from pathlib import Path

from stackyard.catalogue.model import STATUSES, Catalogue, Facts, Package, Revision, Stack
from stackyard.core import toml
from stackyard.core.errors import StackyardError
from stackyard.deploy.described.cite import citation_of
from stackyard.deploy.described.packages import packages_of
from stackyard.expose.commands import example
from stackyard.expose.root import users_path
from stackyard.inputs.workspace import Workspace
from stackyard.verify.report import Report, read_report
from stackyard.yard import catalogue, checksum, disk
from stackyard.yard.generation import generations
from stackyard.yard.revision import revisions
from stackyard.yard.revision.directories import RevisionPaths
from stackyard.yard.revision.manifest import Entry
from stackyard.yard.revision.record import BuildRecord

_NO_FACTS = ("removed", "missing")
Tell = Callable[[str], None]


def gather(workspace: Workspace, known: Mapping[str, Facts], tell: Tell) -> Catalogue:
    """What the catalogue of a yard shows: of the site's yard where the yard has a parent, since users' own are private.

    Args:
        known: the facts of an earlier run, by module.
        tell: is called with a sentence for each revision whose files cannot be read.

    Raises:
        StackyardError: the current generation cannot be read.
    """
    yard, site = workspace.yard.lineage()[-1], workspace.site
    manifest = generations.current(yard)
    shared = {package: package for facts in known.values() for package in facts.packages}
    entries = [entry for entry in (manifest.entries if manifest else ()) if not entry.hidden]
    everything = [Revision(entry, _facts(entry, known.get(entry.module), shared, tell)) for entry in entries]
    here = {entry.module for entry in entries}
    shown = [revision for revision in everything if not _is_private(revision, here)]
    stacks = groupby(shown, lambda revision: revision.entry.stack)  # a manifest is sorted by stack and version
    return Catalogue(
        name=site.name, summary=site.summary, modules=str(users_path(Workspace(site, yard))), url=site.catalogue.url,
        number=manifest.number if manifest else 0, updated=manifest.created if manifest else "", yard=str(yard.root),
        all_stacks=tuple(Stack(name, tuple(each)[::-1]) for name, each in stacks),
    )  # fmt: skip


def published_state(workspace: Workspace) -> object:
    """A value that changes with each publication and each verification; None where the yard cannot be read."""
    try:
        manifest = generations.current(workspace.yard)
        entries = manifest.entries if manifest else ()
        return (manifest.number if manifest else 0, *(_stamp(RevisionPaths.of(e.folder)) for e in entries))
    except (OSError, StackyardError):
        return None


def _is_private(revision: Revision, here: Collection[str]) -> bool:
    """Whether it extends a revision that is not in this yard: such a layer is its user's own."""
    return bool(revision.facts and revision.facts.base and revision.facts.base not in here)


def _facts(entry: Entry, known: Facts | None, shared: dict[Package, Package], tell: Tell) -> Facts | None:
    if entry.state in _NO_FACTS:
        return None
    paths = RevisionPaths.of(entry.folder)
    try:
        stamp = _stamp(paths)
        if known is None or known.stamp != stamp:
            record = revisions.readable(paths)
            if record is None:
                tell(f"{entry.module} is left out: its record is damaged or missing: {paths.record}")
                return None
            return _read(record, paths, stamp, shared, tell)
    except (OSError, StackyardError) as error:
        tell(f"{entry.module} is left out: {error}")
        return None
    return known


def _stamp(paths: RevisionPaths) -> str:
    """Changes with the files from which facts are read."""
    words = []
    for path in (paths.record, paths.report):
        try:
            status = path.stat()
            words.append(f"{status.st_mtime_ns}-{status.st_size}-{status.st_ino}")
        except disk.ABSENT:
            words.append("-")
    return " ".join(words)


def _read(record: BuildRecord, paths: RevisionPaths, stamp: str, shared: dict[Package, Package], tell: Tell) -> Facts:
    packages = (Package(p.name, p.version, p.build, p.kind, p.licence) for p in packages_of(record))
    report = _report(paths, record.module, tell)
    checks, size = _counts(report) if report else {}, catalogue.size(record)
    return Facts(
        stamp=stamp, summary=record.summary, platform=record.platform,
        python=str(record.interpreter.get("version", "")), axes=dict(record.axes), asked=_asked(paths.lock),
        bytes=size["bytes"], files=size["files"], entries=size["entries"],
        checks=checks, checked=report.created if report else "",
        verdict=report.state if report else "", command=example(record), base=record.base_id,
        identities=citation_of(record).identities,
        packages=tuple(shared.setdefault(package, package) for package in packages),
    )  # fmt: skip


def _report(paths: RevisionPaths, module: str, tell: Tell) -> Report | None:
    try:
        return read_report(paths.report) if disk.is_there(paths.report) else None
    except StackyardError as error:
        tell(f"{module} is shown without its checks: {error}")
        return None


def _counts(report: Report) -> dict[str, tuple[int, ...]]:
    counts: dict[str, Counter[str]] = {}
    for check in report.checks:
        counts.setdefault(check.kind, Counter())[check.status] += 1
    return {kind: tuple(count[status] for status in STATUSES) for kind, count in counts.items()}


def _asked(lock: Path) -> tuple[str, ...]:
    """The names of the packages that a stack's file asks for, from the head of its lock; none if that is unreadable.

    Only the head is parsed: the packages are nine tenths of the file, and a record has them.
    """
    try:
        head = re.split(r"\n\[\[(?:conda|pip)\]\]\n", checksum.read(lock), maxsplit=1)[0]
        wanted = toml.loads(head)["variant"][0].get("requested", ())
        return tuple(dict.fromkeys(filter(None, map(_name, wanted))))
    except (OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError):
        return ()


def _name(requirement: str) -> str:
    """The package of a MatchSpec or a pip requirement: ``conda-forge::numpy >=2`` is numpy."""
    match = re.match(r"[\w.-]+", requirement.removeprefix("pip: ").rpartition("::")[2].strip())
    return match[0] if match else ""
