"""The path that users put on MODULEPATH: ``<yard>/modules``, or the site's ``modules.root``, a symlink to it."""

from __future__ import annotations

import os
from pathlib import Path

from stackyard.core.errors import InputError
from stackyard.inputs.sites.siteyard import expanded, is_sites
from stackyard.inputs.workspace import Workspace
from stackyard.yard.write import atomic


def users_path(workspace: Workspace) -> Path:
    """The path at which users find the modules of a yard. `modules.root` applies only to the site's own yard."""
    return (expanded(workspace.site.modules.root) if is_sites(workspace) else None) or workspace.yard.modules


def check_root(workspace: Workspace) -> Path | None:
    """The symlink that must still be created; None if it exists or is not needed.

    Raises:
        InputError: another file has its path.
    """
    root = users_path(workspace)
    if root == workspace.yard.modules or (root.is_symlink() and root.readlink() == workspace.yard.modules):
        return None
    if os.path.lexists(root):
        what = f"a symlink to {root.readlink()}" if root.is_symlink() else "not a symlink"
        raise InputError(
            f"cannot create the symlink {root} to {workspace.yard.modules}: the path exists and is {what}",
            hint=f"move {root} away, or set another path in `modules: root:` of {workspace.site.file or 'the site'}",
        )
    return root


def make_root(workspace: Workspace) -> None:
    """Create the symlink from `check_root`, once revisions are published."""
    root = check_root(workspace)
    if root is not None and workspace.yard.modules.is_dir():
        atomic.replace_symlink(root, str(workspace.yard.modules))
