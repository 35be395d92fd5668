"""Elements of HTML whose texts are always escaped, for the pages that Stackyard writes: reports and the catalogue."""

from __future__ import annotations

from html import escape
from typing import Any

_VOID = ("meta", "link", "input", "br")


class Markup(str):
    """HTML that is complete: everything else is text, and is escaped."""

    __slots__ = ()

    def __add__(self, other: str) -> Markup:
        """Both, one after the other; text is escaped."""
        return join(self, other)


BREAK = Markup("\n")
"""A line end, for people who read the source."""
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


def head(policy: str, generator: str, title: str, *content: Content) -> Markup:
    """What every page begins with, up to the opening of its body; `policy`: what a browser may load for it."""
    inner = [
        tag("meta", charset="utf-8"),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", http_equiv="Content-Security-Policy", content=policy),
        tag("meta", name="generator", content=f"stackyard {generator}"),
        tag("title", title),
    ]
    start = Markup('<!DOCTYPE html>\n<html lang="en">\n<head>\n')
    return join(start, *inner, *content, Markup("\n</head>\n<body>\n"))
