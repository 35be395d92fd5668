"""An Atom feed (RFC 4287) of what is new and what ends."""

from __future__ import annotations

from uuid import NAMESPACE_URL, uuid5
from xml.etree import ElementTree

from stackyard.catalogue import addresses, texts
from stackyard.catalogue.model import Catalogue, Revision, changes
from stackyard.core.quoting import plain

ENTRIES = 50
_ATOM = "http://www.w3.org/2005/Atom"
_NEVER = "1970-01-01T00:00:00+00:00"


def feed(catalogue: Catalogue) -> bytes:
    """The feed; its links are relative to it where the site does not say where it is published."""
    base = f"{catalogue.url.rstrip('/')}/" if catalogue.url else addresses.up(f"{addresses.ASSETS}/feed.xml")
    news = catalogue.news[:ENTRIES]
    root = ElementTree.Element("feed", xmlns=_ATOM)
    _add(root, "title", f"{catalogue.name or 'Software'}: what is new")
    _add(root, "id", _identifier(catalogue.yard))
    _add(root, "updated", catalogue.updated or _NEVER)
    ElementTree.SubElement(_add(root, "author"), "name").text = _text(catalogue.name or "Stackyard")
    _add(root, "link", rel="alternate", href=f"{base}index.html")
    for revision in news:
        root.append(_entry(catalogue, revision, base, "new"))
    for revision in catalogue.retiring[:ENTRIES]:
        root.append(_entry(catalogue, revision, base, "retired"))
    ElementTree.indent(root)
    text: str = ElementTree.tostring(root, encoding="unicode")
    return f'<?xml version="1.0" encoding="utf-8"?>\n{text}\n'.encode()


def _entry(catalogue: Catalogue, revision: Revision, base: str, kind: str) -> ElementTree.Element:
    entry, element = revision.entry, ElementTree.Element("entry")
    is_new = kind == "new"
    title = revision.module if is_new else f"{revision.module} is retired from {entry.retired}"
    _add(element, "title", title)
    _add(element, "id", _identifier(catalogue.yard, revision.module, *([] if is_new else [kind, entry.retired])))
    _add(element, "updated", entry.created)
    _add(element, "link", rel="alternate", href=base + addresses.of_revision(revision.module))
    ending = f"Use {entry.successor}" if entry.successor else title
    _add(element, "summary", _new(catalogue, revision) if is_new else ending)
    return element


def _new(catalogue: Catalogue, revision: Revision) -> str:
    """What a new revision is, and what changed in it."""
    stack = next(stack for stack in catalogue.all_stacks if stack.name == revision.entry.stack)
    before, facts = stack.before(revision), revision.facts
    if facts is None or before is None or before.facts is None:
        return facts.summary if facts else ""
    lines = texts.change_lines(changes(before.facts, facts))
    more = f" and {len(lines) - 10} more" if len(lines) > 10 else ""
    about = f"{facts.summary.rstrip('.')}. " if facts.summary else ""
    return f"{about}Since {before.module}: {', '.join(lines[:10]) or 'the same packages'}{more}."


def _identifier(*words: str) -> str:
    return uuid5(NAMESPACE_URL, "stackyard:" + "\0".join(words)).urn


def _add(parent: ElementTree.Element, name: str, text: str = "", **attributes: str) -> ElementTree.Element:
    element = ElementTree.SubElement(parent, name, attributes)
    if text:
        element.text = _text(text)
    return element


def _text(text: str) -> str:
    """Text on one line, without what XML cannot hold."""
    return plain(text.encode("utf-8", "replace").decode(), 2000)
