"""The last part of a collection, except the trash: deletes unused files and records what was observed."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from stackyard.core.errors import StackyardError, cause
from stackyard.upkeep.gc import unseen as unlooked
from stackyard.upkeep.gc.garbage import former
from stackyard.upkeep.gc.remove import Outcome
from stackyard.yard import disk
from stackyard.yard.generation import manifestfile
from stackyard.yard.layout import Yard
from stackyard.yard.others import childnotes, usage
from stackyard.yard.write import idleleases, reserve, temporaries

if TYPE_CHECKING:
    from pathlib import Path

    from stackyard.upkeep.gc.collect import Plan


def up(yard: Yard, plan: Plan, outcome: Outcome) -> None:
    """Compress manifests; remove counts, leases and temporary files; fill the reserve; note the bases in use."""
    _forget_counts(yard, [count.path for count in plan.counts], outcome)
    _pack(plan.packed, outcome)
    _remove_names(yard, plan.rules.keep, outcome)
    _remove_leases(yard, plan.leases, outcome)
    _remove_temporaries(yard, plan.temporaries, outcome)
    reserve.keep(yard)
    if plan.seen.extends_others or disk.is_directory(yard.registrations):
        childnotes.renew(yard)
    outcome.unseen += unlooked.keep(plan.seen, yard)


def _forget_counts(yard: Yard, files: list[Path], outcome: Outcome) -> None:
    if files:
        outcome.counts, left = usage.forget(yard, files)
        outcome.kept |= left


def _pack(manifests: Iterable[Path], outcome: Outcome) -> None:
    for path in manifests:
        try:
            outcome.packed[path] = manifestfile.pack(path)
        except FileNotFoundError:
            continue  # another collection was faster
        except OSError as error:
            outcome.kept[str(path)] = (cause(error),)


def _remove_names(yard: Yard, keep: int, outcome: Outcome) -> None:
    """Remove the names of conda prefixes and for completion without modulefiles: a rollback makes them anew."""
    for paths in former(yard, keep):
        for names in (paths.envs, paths.names):
            try:
                if disk.is_there(names) and not disk.is_directory(paths.modules):
                    disk.delete_tree(names, yard.root)
            except OSError as error:
                outcome.kept[str(names)] = (cause(error),)


def _remove_leases(yard: Yard, directories: Iterable[Path], outcome: Outcome) -> None:
    idleleases.sweep(yard)
    for directory in directories:
        try:
            outcome.leases += [directory] if idleleases.remove(directory) else []
        except StackyardError as error:
            outcome.kept[str(directory)] = (error.message,)


def _remove_temporaries(yard: Yard, paths: Iterable[Path], outcome: Outcome) -> None:
    for path in paths:
        try:
            outcome.temporaries += [path] if temporaries.remove(yard, path) else []
        except OSError as error:
            outcome.kept[str(path)] = (cause(error),)
