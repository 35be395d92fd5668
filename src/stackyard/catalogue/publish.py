"""Writes a catalogue into a directory, for one command, or where the site asks for it after each publication."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from stackyard.catalogue import forms, kept, write
from stackyard.catalogue.gather import gather
from stackyard.core.errors import StackyardError
from stackyard.core.late import dataclass
from stackyard.inputs.sites.siteyard import expanded, is_sites, policy
from stackyard.yard.write.lease import lease
from stackyard.yard.write.permissions import applied

if TYPE_CHECKING:
    from stackyard.inputs.workspace import Workspace

_WAIT_S = 600.0


@dataclass(frozen=True)
class Written:
    """What a run wrote, or would write: the paths of files with other bytes, and of those that were removed."""

    directory: str
    form: str
    stacks: int
    revisions: int
    written: tuple[str, ...]
    removed: tuple[str, ...]


def write_catalogue(
    workspace: Workspace, directory: Path, form: str, tell: Callable[[str], None], *, dry_run: bool = False
) -> Written:
    """Write the catalogue of a yard. A second writer of the same directory waits for the first.

    Args:
        form: one of `forms.FORMS`.
        tell: is called with a sentence for each revision that cannot be read, and about another writer.
        dry_run: write nothing.

    Raises:
        InputError: the directory holds something else, or another catalogue.
        StackyardError: the yard cannot be read, or the directory cannot be written; on a full disk it is as before.
    """
    directory = directory.absolute()
    yard = os.path.realpath(workspace.yard.lineage()[-1].root)
    made = kept.look(directory, yard, form)
    if dry_run:
        return _run(workspace, directory, made, tell, dry_run=True)
    kept.begin(directory, made)
    with lease(directory / kept.OWN / "writer", f"the catalogue in {directory}", wait_s=_WAIT_S, on_wait=tell):
        return _run(workspace, directory, kept.look(directory, yard, form), tell, dry_run=False)


def _run(
    workspace: Workspace, directory: Path, made: kept.Made, tell: Callable[[str], None], *, dry_run: bool
) -> Written:
    last, own = kept.read(directory), set(made.files)
    catalogue = gather(workspace, last.facts, tell)

    def is_made(path: str, key: str) -> bool:
        size = write.size_of(directory / path) if path in own else None
        return last.keys.get(path) == (key, size)

    files, keys = forms.files(catalogue, made.form, is_made)
    changed = write.difference(directory, made, files)
    if not dry_run:
        write.put(directory, made, files, changed)
        kept.write_read(directory, catalogue, keys)
    shown = (sum(1 for _ in catalogue.stacks), len(catalogue.listed))
    return Written(str(directory), made.form, *shown, tuple(changed.new), changed.stale)


def refresh_catalogues(workspace: Workspace, tell: Callable[[str], None]) -> None:
    """Write the catalogues that the site asks for, after a publication in its own yard; a failure is only told.

    They are written by the account that publishes, with the permissions of the yard.
    """
    for form, directory in wanted(workspace).items():
        try:
            with applied(policy(workspace)):
                write_catalogue(workspace, directory, form, tell)
        except (StackyardError, OSError) as error:
            tell(f"the catalogue in {directory} is as before: {error}; write it with `stackyard catalogue`")


def wanted(workspace: Workspace) -> Mapping[str, Path]:
    """The directories of the catalogues that the site asks for, by format; none for another yard than the site's."""
    if not is_sites(workspace):
        return {}
    places = {form: expanded(path) for form, path in workspace.site.catalogue.directories.items()}
    return {form: place for form, place in places.items() if place is not None}
