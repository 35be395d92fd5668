"""Write access to a yard, with the site's umask and group on everything that is written."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from stackyard.spec.models import Site
from stackyard.yard.layout import Yard
from stackyard.yard.lease import lease
from stackyard.yard.permissions import applied


@contextmanager
def writing(yard: Yard, site: Site, on_wait: Callable[[str], None] | None = None) -> Iterator[None]:
    """Hold the yard's lease and write with the site's umask and group, so that permissions do not depend on the user.

    The top directories get the site's group and pass it on to generations, locks and caches, as prefixes have it. Those
    that are created later inherit it from the yard itself.

    Raises:
        StackyardError: the yard is not writable, another writer held it too long, or its group cannot be set.
    """
    with applied(site.permissions), lease(yard, on_wait=on_wait):
        folders = (yard.cache, yard.generations, yard.locks, yard.stacks)
        with applied(site.permissions, yard.root, *(folder for folder in folders if folder.is_dir())):
            yield
