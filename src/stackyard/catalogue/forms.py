"""The formats of a catalogue, and the files that each has. A page is made again only if what it is made of changed."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping
from functools import cache, partial
from pathlib import Path
from typing import NamedTuple

from stackyard import __version__
from stackyard.catalogue import addresses, eessi, feed, markdown, packages, site
from stackyard.catalogue.model import Catalogue, Revision, Stack


class _Form(NamedTuple):
    """One format: its pages, and its other files by path. Only the last of them is always made again."""

    suffix: str
    first: Callable[[Catalogue], bytes] | None
    stack: Callable[[Catalogue, Stack], bytes]
    revision: Callable[[Catalogue, Stack, Revision], bytes]
    others: Mapping[str, Callable[[Catalogue], bytes]]


def _asset(name: str) -> Callable[[Catalogue], bytes]:
    return lambda _: Path(__file__).with_name(name).read_bytes()


FORMS: Mapping[str, _Form] = {
    "site": _Form(".html", site.index_page, site.stack_page, site.revision_page, {
        f"{addresses.ASSETS}/catalogue.css": _asset("catalogue.css"),
        f"{addresses.ASSETS}/search.js": _asset("search.js"),
        f"{addresses.ASSETS}/packages.js": packages.index_script,
        f"{addresses.ASSETS}/feed.xml": feed.feed,
    }),
    "markdown": _Form(".md", markdown.index_page, markdown.stack_page, markdown.revision_page, {}),
    "json": _Form("", None, site.stack_page, site.revision_page, {"software.json": eessi.software_json}),
}  # fmt: skip


class _Page(NamedTuple):
    path: str
    key: str
    make: Callable[[], bytes]


def files(
    catalogue: Catalogue, form: str, is_made: Callable[[str, str], bool]
) -> tuple[dict[str, bytes | None], dict[str, str]]:
    """The files of a catalogue in one format: by path the bytes of each, or None for a page that stays; and their keys.

    The first page is the last file: files get their places in this order, so that none leads to one that is missing.

    Args:
        is_made: whether the page that is in place has this path and this key.
    """
    chosen, found, new = FORMS[form], dict[str, bytes | None](), {}
    for page in _pages(catalogue, chosen) if chosen.first else ():
        found[page.path] = None if is_made(page.path, page.key) else page.make()
        new[page.path] = page.key
    for path, make in chosen.others.items():
        found[path] = make(catalogue)
    if chosen.first:
        found[f"index{chosen.suffix}"] = chosen.first(catalogue)
    return found, new


def _pages(catalogue: Catalogue, form: _Form) -> Iterator[_Page]:
    for stack in catalogue.all_stacks:
        for revision in stack.revisions:
            before = stack.before(revision)
            parts = [stack.listed != (), *(_state(r) for r in (revision, before) if r)]
            path = addresses.of_revision(revision.module, form.suffix)
            yield _Page(path, _key(catalogue, parts), partial(form.revision, catalogue, stack, revision))
        if stack.listed:
            path, parts = addresses.of_stack(stack.name, form.suffix), list(map(_state, stack.listed))
            yield _Page(path, _key(catalogue, parts), partial(form.stack, catalogue, stack))


def _state(revision: Revision) -> str:
    return f"{revision.entry} {revision.facts.stamp if revision.facts else ''}"


def _key(catalogue: Catalogue, parts: list[object]) -> str:
    """Changes with all that a page is made from: revisions, the site, and this program."""
    words = (_program(), catalogue.name, catalogue.url, *map(str, parts))
    return hashlib.sha256("\0".join(words).encode("utf-8", "replace")).hexdigest()[:32]


@cache
def _program() -> str:
    """The hash of the sources of this room."""
    sources = sorted(path for path in Path(__file__).parent.iterdir() if path.is_file())
    digest = hashlib.sha256(__version__.encode())
    for path in sources:
        digest.update(path.read_bytes())
    return digest.hexdigest()
