"""Elements of HTML whose texts are always escaped, and the frame of every page.

The pages work from ``file://`` and without scripts; nothing is requested from elsewhere, which their policy enforces.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from html import escape
from typing import Any

from stackyard.catalogue import addresses
from stackyard.catalogue.model import Catalogue

POLICY = "default-src 'none'; script-src 'self' file:; style-src 'self' file:; base-uri 'none'; form-action 'none'"
_VOID = ("meta", "link", "input", "br")


class Markup(str):
    """HTML that is complete: everything else is text, and is escaped."""

    __slots__ = ()

    def __add__(self, other: str) -> Markup:
        """Both, one after the other; text is escaped."""
        return join(self, other)


Content = str | None
"""Text, or `Markup`; None and the empty text are left out."""


def tag(name: str, /, *content: Content, **attributes: Any) -> Markup:
    """An element. A class is ``class_``, ``aria_label`` is ``aria-label``; False and None leave an attribute out."""
    words = [name]
    for key, value in attributes.items():
        if value is not None and value is not False:
            word = key.rstrip("_").replace("_", "-")
            words.append(word if value is True else f'{word}="{escape(str(value))}"')
    opening = f"<{' '.join(words)}>"
    return Markup(opening if name in _VOID else f"{opening}{join(*content)}</{name}>")


def join(*content: Content) -> Markup:
    """Several pieces of content, one after the other."""
    return Markup("".join(text if isinstance(text, Markup) else escape(text) for text in content if text))


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
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n",
        tag("meta", charset="utf-8"),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", http_equiv="Content-Security-Policy", content=POLICY),
        tag("meta", name="generator", content="stackyard catalogue"),
        tag("title", title if title == name else f"{title} - {name}"),
        tag("link", rel="stylesheet", href=f"{assets}/catalogue.css"),
        tag("link", rel="alternate", type="application/atom+xml", title=f"{name}: what is new",
            href=f"{assets}/feed.xml"),
        tag("script", src=f"{assets}/search.js", defer=True, data_up=up or "./"),
        head or "",
        "\n</head>\n<body>\n",
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
