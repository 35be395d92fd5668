"""The path that users put on MODULEPATH: ``<yard>/modules``, or the site's ``modules.root``, a symlink to it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from stackyard.core.errors import InputError
from stackyard.inputs.sites.siteyard import expanded, is_sites
from stackyard.yard.layout import Yard
from stackyard.yard.write import atomic

if TYPE_CHECKING:
    from stackyard.inputs.models import Site


def users_path(yard: Yard, site: Site) -> Path:
    """Where users find the modules of a yard. `modules.root` applies to the site's own yard, not to a user's."""
    return (expanded(site.modules.root) if is_sites(yard, site) else None) or yard.modules


def check_root(yard: Yard, site: Site) -> Path | None:
    """The symlink that is still to be created; None if there is none.

    Raises:
        InputError: something else has its path.
    """
    root = users_path(yard, site)
    if root == yard.modules or (root.is_symlink() and root.readlink() == yard.modules):
        return None
    if os.path.lexists(root):
        what = f"a symlink to {root.readlink()}" if root.is_symlink() else "not a symlink"
        raise InputError(
            f"cannot create the symlink {root} to {yard.modules}: the path exists and is {what}",
            hint=f"move {root} away, or set another path in `modules: root:` of {site.file or 'the site'}",
        )
    return root


def make_root(yard: Yard, site: Site) -> None:
    """Create the symlink that `check_root` returns, once something is published."""
    root = check_root(yard, site)
    if root is not None and yard.modules.is_dir():
        atomic.replace_symlink(root, str(yard.modules))
