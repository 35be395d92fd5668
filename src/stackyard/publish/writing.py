"""The right to write to a yard, with the site's umask and group on all that is written."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from stackyard.spec.models import Site
from stackyard.yard.layout import Yard
from stackyard.yard.lease import lease
from stackyard.yard.permissions import applied


@contextmanager
def writing(yard: Yard, site: Site, on_wait: Callable[[str], None] | None = None) -> Iterator[None]:
    """Hold the yard's lease and write as the site wants it, so that a yard is as readable whoever deploys.

    The top folders get the site's group and pass it on: generations, locks and caches have it as the prefixes do. Those
    that are not there yet get it from the yard itself.

    Raises:
        StackyardError: the yard is not writable, somebody else kept it too long, or the group cannot be given.
    """
    with applied(site.permissions), lease(yard, on_wait=on_wait):
        folders = (yard.cache, yard.generations, yard.locks, yard.stacks)
        with applied(site.permissions, yard.root, *(folder for folder in folders if folder.is_dir())):
            yield
