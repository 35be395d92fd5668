"""The frame of every page of a catalogue, its tables and sections.

The pages work from ``file://`` and without scripts; nothing is requested from elsewhere, which their policy enforces.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any

from stackyard.catalogue import addresses
from stackyard.catalogue.model import Catalogue
from stackyard.core import markup
from stackyard.core.markup import Content, Markup, join, tag

POLICY = "default-src 'none'; script-src 'self' file:; style-src 'self' file:; base-uri 'none'; form-action 'none'"


def link(text: str, page: str, at: str, **attributes: Any) -> Markup:
    """A link to a page of the catalogue; `at` is the page that it is on."""
    return tag("a", text, href=addresses.up(at) + page, **attributes)


def section(title: str, *content: Content, name: str = "") -> Markup:
    """A section with its heading; nothing without content."""
    inner = join(*content)
    if not inner:
        return inner
    identifier = name or title.lower().replace(" ", "-")
    return tag("section", tag("h2", title, id=identifier), inner) + Markup("\n")


def table(caption: str, columns: Sequence[Content], rows: Iterable[Sequence[Content]], class_: str = "") -> Markup:
    """A table whose first column names its rows, in a region that scrolls on a narrow screen."""
    head = "".join(tag("th", column, scope="col") for column in columns)
    body = "".join(f"{tag('tr', tag('th', row[0], scope='row'), *(tag('td', cell) for cell in row[1:]))}\n"
                   for row in rows)  # fmt: skip
    return table_of(caption, head, body, class_)


def table_of(caption: str, head: str, body: str, class_: str = "") -> Markup:
    """The same of cells and rows that are complete."""
    inner = tag("table", tag("caption", caption, class_="hidden"), tag("thead", tag("tr", Markup(head))),
                tag("tbody", Markup(body)))  # fmt: skip
    return tag("div", inner, class_=f"scroll {class_}".strip(), role="region", tabindex="0", aria_label=caption)


def data(value: Any, **attributes: Any) -> Markup:
    """A script element that holds JSON."""
    return tag("script", Markup(script_json(value)), **attributes)


def script_json(value: Any) -> str:
    """JSON that no parser of HTML or JavaScript takes for anything else."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    for letter in "<>&\u2028\u2029":
        text = text.replace(letter, f"\\u{ord(letter):04x}")
    return text


def page(catalogue: Catalogue, at: str, title: str, *content: Content, head: Content = None, foot: str = "") -> bytes:
    """A whole page. `head`: more of its head; `foot`: a sentence at its end."""
    up, name = addresses.up(at), catalogue.name or "Software"
    assets = f"{up}{addresses.ASSETS}"
    search = tag("form", tag("label", "Find a package", for_="q", class_="hidden"),
                 tag("input", id="q", type="search", autocomplete="off", spellcheck="false", maxlength="200",
                     placeholder="Find a package: torch 2.1", aria_describedby="hits"),
                 role="search")  # fmt: skip
    parts = [
        markup.head(
            POLICY, "catalogue", title if title == name else f"{title} - {name}",
            tag("link", rel="stylesheet", href=f"{assets}/catalogue.css"),
            tag("link", rel="alternate", type="application/atom+xml", title=f"{name}: what is new",
                href=f"{assets}/feed.xml"),
            tag("script", src=f"{assets}/search.js", defer=True, data_up=up or "./"),
            head,
        ),
        tag("a", "To the content", href="#main", class_="skip"),
        tag("header", tag("div", link(name, "index.html", at, class_="home"), search, class_="bar")), "\n",
        tag("main", tag("div", tag("p", id="hits", role="status"), tag("div", id="results"), id="found"),
            tag("noscript", tag("p", "The search needs JavaScript; every table and link here works without it.",
                                class_="note")),
            Markup("\n"), *content, id="main"),
        _footer(foot, assets), "\n</body>\n</html>\n",
    ]  # fmt: skip
    return "".join(parts).encode("utf-8", "replace")


def _footer(foot: str, assets: str) -> Markup:
    feed = tag("a", "Feed of new software", href=f"{assets}/feed.xml")
    return tag("footer", tag("p", foot, " Written by Stackyard from the records of what is installed. ", feed))
