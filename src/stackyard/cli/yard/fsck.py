"""``stackyard fsck``: find changed files, and restore them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from stackyard.cli.context import Context
from stackyard.cli.help import verb
from stackyard.cli.output import echo, show_json, show_notice
from stackyard.core.errors import InputError
from stackyard.core.findings import counted, human_bytes
from stackyard.yard.api import Entry, Yard, find_revision, is_directory

if TYPE_CHECKING:
    from stackyard.inputs.api import Workspace
    from stackyard.upkeep.api import FaultReport

_MOST_LINES = 1000


@verb(
    ("every night: sizes, times and modes of all files, the bytes of a few", "stackyard fsck"),
    ("every byte of everything", "stackyard fsck --deep"),
    ("every byte of one revision, and restore what is damaged", "stackyard fsck pytorch/2.13 --deep --repair"),
)
@click.argument("revs", nargs=-1, metavar="[REV...]")
@click.option("--deep", is_flag=True, help="Read every byte, not only a sample.")
@click.option("--repair", "mend", is_flag=True, help="Restore what is damaged from the cache, or from what is locked.")
@click.option("--json", "as_json", is_flag=True, help="Print what was found as JSON.")
def command(context: Context, revs: Sequence[str], deep: bool, mend: bool, as_json: bool) -> None:
    """Compare the files of REV..., or of everything in the yard, with what they were written as.

    Runs no program of a stack; `verify` does. A file is named with its package, what differs in it, and the other
    revisions that have the same file. --repair replaces each file by a rename, so running programs keep theirs; an
    adopted prefix is only reported. Exit status 3: something is not as it was written, and was not repaired.
    """
    from stackyard.upkeep.api import require_repairable

    workspace = context.workspace()
    yard = workspace.yard
    if not is_directory(yard.root):
        raise InputError(f"no such yard: {yard.root}", hint="choose one with --yard or $STACKYARD_HOME")
    entries = [find_revision(yard, rev) for rev in revs]
    if mend:
        require_repairable(yard)
    report = _checked(workspace, entries, deep, whole=not revs)
    left, done = report, list[str]()
    if mend and report.to_repair:
        if not as_json:
            _show_faults(report)
        done = _repaired(context, workspace, report)
        left = _checked(workspace, entries, deep, whole=not revs, again=report)
    if as_json:
        show_json(left.to_json() | {"found": [fault.to_json() for fault in report.shown], "repaired": done})
    else:
        _show(left, report if done or left is not report else None)
    if left.faults:
        raise click.exceptions.Exit(3)


def _checked(
    workspace: Workspace, entries: Sequence[Entry], deep: bool, *, whole: bool, again: FaultReport | None = None
) -> FaultReport:
    import sys

    from stackyard.cli.display import display
    from stackyard.core.progress import SilentProgress
    from stackyard.upkeep.api import check_files

    if not sys.stderr.isatty():  # a job of every night says what it found, and nothing else
        return check_files(workspace, entries, SilentProgress(), deep=deep, whole=whole, again=again)
    with display() as progress:
        return check_files(workspace, entries, progress, deep=deep, whole=whole, again=again)


def _repaired(context: Context, workspace: Workspace, report: FaultReport) -> list[str]:
    """Repair the faults; returns a sentence for each repair."""
    from stackyard.cli.display import display
    from stackyard.deploy.api import writing
    from stackyard.upkeep.api import note_lost_images, repair_rest, restore_revisions
    from stackyard.yard.api import origin

    entries = _damaged(workspace.yard, report)
    with display() as progress:
        restore_revisions(workspace, entries, progress, lambda: repair_rest(report, workspace, origin(context.command)))
        with writing(workspace):
            for line in note_lost_images(report):
                progress.notice(line)
        return list(progress.notices)


def _damaged(yard: Yard, report: FaultReport) -> list[Entry]:
    """The damaged revisions as entries; without a record, only what the path tells."""
    from stackyard.upkeep.api import listed_entries

    known = {entry.folder: entry for entry in listed_entries(yard)}
    own = (fault for fault in report.faults if fault.directory and fault.path.is_relative_to(fault.directory))
    # an adopted prefix is not the yard's to repair
    modules = {**report.unrecorded, **{fault.directory: fault.revision for fault in own}}
    return [known.get(directory) or _unlisted(modules[directory], directory) for directory in sorted(modules)]


def _unlisted(module: str, directory: str) -> Entry:
    return Entry(module.partition("/")[0], "", "", 0, module, directory, "", state="built")


def _show_faults(report: FaultReport) -> None:
    root, shown = report.yard.root, report.shown
    for fault in shown[:_MOST_LINES]:
        echo(fault.line(root))
    if len(shown) > _MOST_LINES:
        echo(f"... and {len(shown) - _MOST_LINES:,} more: --json has them all")


def _show(report: FaultReport, repaired: FaultReport | None) -> None:
    """Print the faults, their remedies, and a summary line."""
    if repaired is None:
        _show_faults(report)
    elif report.faults:
        echo(click.style("not repaired:", bold=True))
        _show_faults(report)
    for note in report.notes:
        show_notice(note)
    for remedy in dict.fromkeys(fault.remedy for fault in report.shown if fault.remedy):
        show_notice(remedy)
    echo(_summary(report, repaired))


def _summary(report: FaultReport, repaired: FaultReport | None) -> str:
    count, shown = len(report.shown), repaired or report
    text = "nothing is wrong" if not count else counted(count, "fault")
    if repaired is not None:
        text = f"{counted(len(repaired.shown), 'fault')} found, {count} left"
    read = f"{human_bytes(shown.read_bytes)} in {shown.read:,} files read, {shown.seconds:.1f} s"
    return f"{text} in {counted(len(shown.revisions), 'revision')}: {read}{_sampled(shown)}"


def _sampled(report: FaultReport) -> str:
    """The certainty of a sample's result, as a sentence."""
    if report.deep:
        return ""
    if report.sampled == report.files:
        return f"; all {report.files:,} files sampled (--deep reads the caches too)"
    return (
        f"; {report.sampled:,} of {report.files:,} files sampled: one that changed and kept its size and its time "
        f"is missed with a chance of {report.missed:.0%} (--deep reads all)"
    )
