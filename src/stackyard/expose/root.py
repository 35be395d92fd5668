"""The path that users put on MODULEPATH: ``<yard>/modules``, or the site's ``modules.root``, a symbolic link to it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from stackyard.errors import InputError
from stackyard.yard import atomic
from stackyard.yard.layout import Yard

if TYPE_CHECKING:
    from stackyard.spec.models import Site


def users_path(yard: Yard, site: Site) -> Path:
    """Where users find the modules of a yard. The site's root is that of the site's own yard, not of a user's."""
    own = _expanded(site.yard)
    if not site.modules.root or (own is not None and own.resolve() != yard.root.resolve()):
        return yard.modules
    return _expanded(site.modules.root) or yard.modules


def check_root(yard: Yard, site: Site) -> Path | None:
    """The link that is still to be made, or None where there is none to make.

    Raises:
        InputError: something else is at the place of the link.
    """
    root = users_path(yard, site)
    if root == yard.modules or (root.is_symlink() and root.readlink() == yard.modules):
        return None
    if os.path.lexists(root):
        what = f"a link to {root.readlink()}" if root.is_symlink() else "something else"
        raise InputError(
            f"{root} is {what}, and `modules: root:` of {site.file or 'the site'} wants a link to {yard.modules} there",
            hint=f"move {root} away, or name another path under `modules: root:`",
        )
    return root


def make_root(yard: Yard, site: Site) -> None:
    """Make the link that `check_root` asks for, once something is published."""
    root = check_root(yard, site)
    if root is not None and yard.modules.is_dir():
        atomic.replace_symlink(root, str(yard.modules))


def _expanded(text: str) -> Path | None:
    return Path(os.path.expandvars(text)).expanduser().absolute() if text else None
