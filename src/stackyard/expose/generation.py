"""The ``modules/`` tree of one generation: a modulefile per revision and format, the short names, the spider cache.

One directory serves both module systems. Lmod prefers ``2.13-1.lua`` to a Tcl file of the same name, and Environment
Modules ignores files without its magic line, so ``module use <yard>/modules`` works with either.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from stackyard.core.errors import StackyardError
from stackyard.expose.modulefiles import lua, tcl
from stackyard.expose.modulefiles.page import page
from stackyard.expose.names import rc_lua, rc_tcl, short_names
from stackyard.expose.published import change_of, freeze
from stackyard.expose.root import users_path
from stackyard.expose.spider import write_cache
from stackyard.host.files import at
from stackyard.host.files.hashing import sha256_file
from stackyard.inputs.workspace import Workspace
from stackyard.yard.generation import generations
from stackyard.yard.layout import Yard, place_of
from stackyard.yard.revision.manifest import Entry
from stackyard.yard.revision.record import BuildRecord
from stackyard.yard.revision.signatures import refusals
from stackyard.yard.write import atomic, trash

if TYPE_CHECKING:
    from stackyard.core.change import EnvironmentChange
    from stackyard.inputs.models import Site


Texts = dict[tuple[Entry, str], dict[str, str]]
"""The modulefiles of entries that were rendered before, each with why it may not be loaded."""


def write_modules(
    directory: Path,
    entries: Sequence[Entry],
    records: Mapping[str, BuildRecord],
    workspace: Workspace,
    done: Texts | None = None,
) -> None:
    """Write the modules of one generation into `directory`, which is not yet visible to users.

    Every entry gets its modulefiles, even a withdrawn one: a shell that loaded it must be able to unload it. That of a
    removed revision only supports unloading.

    Args:
        entries: all revisions whose files still exist, with their short names already assigned.
        records: their build records by module name, as far as they can be read.
        workspace: its yard, whose ``<yard>/modules`` or the site's ``modules.root`` is the directory's final path.
        done: as for `module_texts`.

    The operations of new revisions are frozen before.

    Raises:
        StackyardError: as `module_texts`; or a command that a module offers does not exist.
    """
    texts = module_texts(entries, records, workspace, done)
    for entry in entries:
        if entry.module in records and entry.state != "removed":
            freeze(records[entry.module], workspace.site)
    for path, text in texts.items():
        atomic.write_text(directory / path, text, top=workspace.yard.root)
    _show_to_root(directory, workspace.yard)  # Lmod reads Tcl too
    if "lua" in workspace.site.modules.formats:
        write_cache(directory, users_path(workspace))


def _show_to_root(directory: Path, yard: Yard) -> None:
    """Make the tree readable for others if root writes it: Lmod, run by root, ignores other files of root.

    Otherwise neither verification nor the spider would find a module. Access is controlled by the yard's own directory.
    """
    if os.geteuid() != 0:
        return

    def shown(status: os.stat_result) -> int:
        return status.st_mode | (0o005 if stat.S_ISDIR(status.st_mode) else 0o004)

    with at.parent(yard.root, directory) as place:
        at.set_mode(*place, shown)
        with at.opened(*place) as top:
            for inner, _, entries in at.walk(top):
                for entry in entries:
                    at.set_mode(inner, entry.name, shown)


def module_texts(
    entries: Sequence[Entry],
    records: Mapping[str, BuildRecord],
    workspace: Workspace,
    done: Texts | None = None,
) -> dict[str, str]:
    """The files of a generation by their path in ``modules/``. Writes nothing.

    A module without a demanded signature refuses to load, but can be unloaded: this is decided here, since a modulefile
    runs no program. A revision with an unreadable record or unreadable operations keeps its present modulefiles, so
    that its damage does not affect others.

    Args:
        done: texts already rendered by this process for the same revisions and site, for reuse; extended here.

    Raises:
        StackyardError: such a revision has no present modulefiles either.
    """
    site, yard = workspace.site, workspace.yard
    texts: dict[str, str] = {}
    done = {} if done is None else done
    refused = refusals(entries, records, yard)
    places = trash.removed(yard) if any(entry.state == "removed" for entry in entries) else {}
    for entry in entries:
        key = (entry, refused.get(entry.module, ""))
        try:
            if key not in done:
                record = _record(entry, records)
                change = change_of(record, site, places.get(place_of(entry.folder)))
                done[key] = modulefiles(record, entry, change, site, key[1])
            texts |= done[key]
        except StackyardError:
            files = _kept(entry, yard)
            if not files:
                raise
            texts |= files
    for path, names in short_names(entries, records, site, _taken(entries, yard)).items():
        base = f"{path}/" if path else ""
        if "lua" in site.modules.formats:
            texts[f"{base}.modulerc.lua"] = rc_lua(names)
        if "tcl" in site.modules.formats:
            texts[f"{base}.modulerc"] = rc_tcl(names)
    return texts


def modulefiles(
    record: BuildRecord, entry: Entry, change: EnvironmentChange, site: Site, refused: str = ""
) -> dict[str, str]:
    """The modulefiles of one revision, in the site's formats.

    Args:
        refused: why loading is refused; empty: it is not.
    """
    content = page(record, site, entry=entry, change=change)
    content = replace(content, removed=refused) if refused else content
    texts: dict[str, str] = {}
    if "lua" in site.modules.formats:
        texts[f"{entry.module}.lua"] = lua.render_page(content)
    if "tcl" in site.modules.formats:
        texts[entry.module] = tcl.render_page(content)
    return texts


def _kept(entry: Entry, yard: Yard) -> dict[str, str]:
    """The present modulefiles of a revision, if they are unchanged since publication."""
    manifest = generations.current(yard)
    noted = manifest.files if manifest else {}
    directory = yard.generation(manifest.number).modules if manifest else yard.modules
    names = (name for name in (f"{entry.module}.lua", entry.module) if (directory / name).is_file())
    whole = (name for name in names if not noted or sha256_file(directory / name) == noted.get(name))
    return {name: (directory / name).read_text(encoding="utf-8") for name in whole}


def _record(entry: Entry, records: Mapping[str, BuildRecord]) -> BuildRecord:
    try:
        return records[entry.module]
    except KeyError:
        raise StackyardError(
            f"cannot read the build record of {entry.module} in {entry.folder}",
            hint="restore it: `stackyard verify --repair`; or move that directory out of the yard: "
            "a revision without one is no longer published",
        ) from None


def _taken(entries: Sequence[Entry], yard: Yard) -> frozenset[str]:
    """Names of stacks in this yard and its parents, which alias modules must not use."""
    own = {entry.module.rpartition("/")[0] for entry in entries} | {entry.stack for entry in entries}
    above = {
        directory.name
        for parent in yard.lineage()[1:]
        if parent.stacks.is_dir()
        for directory in parent.stacks.iterdir()
        if directory.is_dir()
    }
    return frozenset(own | above)
