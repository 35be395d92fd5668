"""Which yard is the site's own: its permissions, its modules' root and its acceptance of licences are for no other."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from stackyard.core.errors import InputError
from stackyard.host.files import home
from stackyard.yard.write import permissions
from stackyard.yard.write.permissions import Policy

if TYPE_CHECKING:
    from stackyard.inputs.sites.sitemodels import Site
    from stackyard.inputs.workspace import Workspace


def site_root(site: Site) -> Path | None:
    """The directory that the site's ``yard:`` names, with variables and ``~`` replaced; None where it names none."""
    return expanded(site.yard)


def expanded(text: str) -> Path | None:
    """A path of a site's file, absolute; None where it is empty.

    Raises:
        InputError: the home of an unknown account.
        MissingError: it is below your home, and you have none.
    """
    try:
        return home.expanded(os.path.expandvars(text)).absolute() if text else None
    except KeyError as error:
        raise InputError(f"cannot resolve {text}: no such account", hint="write the path of the directory") from error


def is_sites(workspace: Workspace) -> bool:
    """Whether a yard is the one that the site's ``yard:`` names; any other belongs to who made it."""
    named = site_root(workspace.site)
    return named is not None and named.resolve() == workspace.yard.root.resolve()


def unused(site: Site) -> list[str]:
    """What a site's file says about its yard although it names none, a sentence for each."""
    said = [("permissions", "permissions" in site.model_fields_set), ("modules: root", bool(site.modules.root))]
    return [
        f"{site.file}: `{key}` is not used: it is for the site's own yard, and `yard:` names none"
        for key, is_set in said
        if is_set and not site.yard
    ]


def in_sites_yard(path: str, site: Site) -> bool:
    """Whether a revision is in the yard that the site's ``yard:`` names."""
    named = site_root(site)
    return named is not None and Path(path).resolve().is_relative_to(named.resolve())


def policy(workspace: Workspace) -> Policy:
    """Who may read and write in a yard: as the site's ``permissions`` say in the site's, else as its directory says."""
    if is_sites(workspace):
        return Policy(int(workspace.site.permissions.umask, 8), workspace.site.permissions.group)
    return permissions.of_directory(workspace.yard.root, workspace.site.permissions.group)
