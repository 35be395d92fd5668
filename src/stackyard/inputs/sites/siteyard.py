"""The site's own yard, to which the site's permissions, modules' root and licence acceptances apply."""

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
    """The directory of the site's ``yard:``, with variables and ``~`` replaced; None if not set."""
    return expanded(site.yard)


def expanded(text: str) -> Path | None:
    """A path of a site's file, absolute; None if empty.

    Raises:
        InputError: the home of an unknown account.
        MissingError: it is below your home, and you have none.
    """
    try:
        return home.expanded(os.path.expandvars(text)).absolute() if text else None
    except KeyError as error:
        raise InputError(f"cannot resolve {text}: no such account", hint="write the path of the directory") from error


def is_sites(workspace: Workspace) -> bool:
    """Whether a yard is the one in the site's ``yard:``; any other belongs to its creator."""
    named = site_root(workspace.site)
    return named is not None and named.resolve() == workspace.yard.root.resolve()


def unused(site: Site) -> list[str]:
    """A sentence for each setting of a site's file that needs a yard, if it names none."""
    said = [("permissions", "permissions" in site.model_fields_set), ("modules: root", bool(site.modules.root))]
    return [
        f"{site.file}: `{key}` is not used: it is for the site's own yard, and `yard:` names none"
        for key, is_set in said
        if is_set and not site.yard
    ]


def in_sites_yard(path: str, site: Site) -> bool:
    """Whether a revision is in the yard of the site's ``yard:``."""
    named = site_root(site)
    return named is not None and Path(path).resolve().is_relative_to(named.resolve())


def policy(workspace: Workspace) -> Policy:
    """The permissions of a yard: the site's ``permissions`` for its own yard, else by the directory."""
    if is_sites(workspace):
        return Policy(int(workspace.site.permissions.umask, 8), workspace.site.permissions.group)
    return permissions.of_directory(workspace.yard.root, workspace.site.permissions.group)
