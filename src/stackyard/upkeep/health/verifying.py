"""Runs the checks of published revisions again and publishes the results."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import field
from pathlib import Path

from stackyard.core.errors import InputError, StackyardError
from stackyard.core.late import dataclass
from stackyard.core.progress import Progress
from stackyard.deploy import licences
from stackyard.deploy.deploy import write_report
from stackyard.deploy.published.rollback import mark
from stackyard.deploy.writing import writing
from stackyard.inputs.workspace import Workspace
from stackyard.verify.report import RUNS_NOTHING, Report, lacking_licences, stopped, without_record
from stackyard.verify.verify import verify
from stackyard.yard import catalogue
from stackyard.yard.generation import generations
from stackyard.yard.generation.origin import origin
from stackyard.yard.layout import Yard
from stackyard.yard.revision.directories import RevisionPaths
from stackyard.yard.revision.manifest import Entry, State
from stackyard.yard.revision.record import read_record


@dataclass
class Verification:
    """The report of each revision, by module, and the entries that were verified; others are incomplete."""

    reports: dict[str, Report] = field(default_factory=dict)
    verified: list[Entry] = field(default_factory=list)


def revisions_to_verify(yard: Yard, rev: str | None) -> list[Entry]:
    """The named revision, or all published ones.

    Raises:
        InputError: no such revision, or nothing is published.
    """
    if rev:
        return [catalogue.resolve(yard, rev)]
    entries = [entry for entry in generations.entries(yard) if entry.is_visible]
    if not entries:
        raise InputError(
            f"nothing is published in {yard.root}", hint="publish a revision first: `stackyard deploy FILE`"
        )
    return entries


def modules_to_verify(yard: Yard, entries: Sequence[Entry]) -> dict[str, Path]:
    """The modulefile tree of the yard that publishes each revision, by revision.

    Raises:
        InputError: a revision is not published.
    """
    published: dict[str, Path] = {}
    for ancestor in yard.lineage():
        if any(entry.module not in published for entry in entries):
            published = {e.module: ancestor.modules for e in generations.entries(ancestor)} | published
    for entry in entries:
        if entry.module not in published:
            raise InputError(
                f"cannot verify {entry.module}: it is built but not published, so it has no modulefile",
                hint="deploy its file again: the built revision is verified and published, not rebuilt",
            )
    return published


def verify_again(
    workspace: Workspace, modules: Mapping[str, Path], entries: Sequence[Entry], progress: Progress, *, deep: bool
) -> Verification:
    """Run the checks of revisions on this machine; writes nothing.

    If this account has not accepted a licence of a revision, checks that run its programs are skipped.

    Args:
        modules: the result of `modules_to_verify`.
        deep: read every byte of every file.
    """
    verification = Verification()
    for entry in entries:
        report, is_verified = _verified(entry, modules[entry.module], workspace, progress, deep)
        progress.phase(entry.module, report.state, report.tally())
        verification.reports[entry.module] = report
        verification.verified += [entry] if is_verified else []
    return verification


def _verified(entry: Entry, modules: Path, workspace: Workspace, progress: Progress, deep: bool) -> tuple[Report, bool]:
    """The report of one revision, and whether it was verified; a failure does not stop the others."""
    try:
        record = read_record(RevisionPaths.of(entry.folder).record)
    except StackyardError as error:
        return without_record(entry, error), False
    try:
        lacking = licences.unaccepted(workspace, record, os.environ)
        agreed = licences.variables(workspace, record, os.environ)
        yards = workspace.yard.lineage()
        done = verify(record, modules, workspace.site, variables=agreed, progress=progress, deep=deep, yards=yards,
                      only=RUNS_NOTHING if lacking else None)  # fmt: skip
        if lacking is None:
            return done, True
        done = lacking_licences(done, lacking)
        return done, done.state == "failed"
    except (StackyardError, OSError) as error:
        return stopped(entry, error), False


def publish_results(workspace: Workspace, verification: Verification, command: Sequence[str] = ()) -> list[str]:
    """Write the reports of this yard's own revisions and publish the results; returns the changed modules.

    Writes nothing if the yard is not writable.
    """
    own = [e for e in verification.verified if Path(e.folder).is_relative_to(workspace.yard.root)]
    if not own or not os.access(workspace.yard.root, os.W_OK):
        return []
    states: dict[str, State] = {}
    with writing(workspace):
        for entry in own:
            write_report(RevisionPaths.of(entry.folder), verification.reports[entry.module])
            states |= _state(entry.module, verification.reports[entry.module])
        return mark(workspace, states, origin(command))


def _state(module: str, report: Report) -> dict[str, State]:
    """The state that a verification gives a revision; with skipped checks it stays as it was."""
    if report.state == "passed":
        return {module: "published"}
    return {module: "failed"} if report.state == "failed" else {}
