"""Makes text of other sources safe for messages and notebooks: without secrets, truncated, no control characters.

A terminal interprets control sequences: colours, a cleared screen, overwritten lines, reversed letters. So text chosen
by other accounts (names of processes or files, notes in shared directories) passes `plain`, and all output of the
command line passes `harmless`.

Secrets are removed before truncation, which would make them unrecognisable.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

MOST = 160
LONG = 1000
"""For paths, which are of use only as a whole."""
_OURS = r"(\x1b\[(?:[0-2]|22|3[1-7]|9[1-6])m)"
"""The colours that `click.style` makes of ours: none that hides text."""
_BYTES = range(0xDC80, 0xDD00)
"""How Python keeps the bytes of a file name that are not UTF-8."""


def quoted(value: object) -> str:
    """A value in quotes, if it is text, with control characters escaped."""
    return repr(cut(value)) if isinstance(value, str) else cut(repr(value))


def cut(text: str, most: int = MOST) -> str:
    """The beginning of a text: `most` characters, then dots."""
    from stackyard.core.secrets import redacted  # late: most commands refuse nothing

    text = redacted(text)
    return text if len(text) <= most else f"{text[:most]}..."


def plain(text: str, most: int = MOST) -> str:
    """Text chosen by another account, on one line, truncated after `most` characters, with unprintable ones escaped.

    Control characters, ends of lines, and what turns the direction of text are ``\\x1b``, ``\\n`` and ``\\u202e``.
    Plain text is unchanged.
    """
    text = _escaped(text[: most + 1])
    return text if len(text) <= most else f"{text[:most]}..."


def harmless(text: str) -> str:
    """A text without control characters, except ends of lines, tabs and our own colours."""
    if text.isprintable():
        return text
    parts = re.split(_OURS, text)
    return "".join(part if number % 2 else _escaped(part, "\n\t") for number, part in enumerate(parts))


def one_line(text: str) -> str:
    """`harmless`, with ends of lines escaped too, for text that must not look like a separate line."""
    return harmless(text).replace("\n", "\\n").replace("\t", "\\t")


def _escaped(text: str, but: str = "") -> str:
    if text.isprintable():
        return text
    return "".join(letter if letter.isprintable() or letter in but else _escape(letter) for letter in text)


def _escape(letter: str) -> str:
    if ord(letter) in _BYTES:
        return f"\\x{ord(letter) - 0xDC00:02x}"
    return letter.encode("unicode_escape").decode("ascii")


def facts_html(title: str, facts: Mapping[str, str], *more: str) -> str:
    """A title and a table of facts, without empty ones.

    Args:
        more: complete HTML to follow.
    """
    from html import escape  # late: only notebooks need its tables

    rows = "".join(
        f'<tr><th style="text-align: left">{escape(name)}</th><td style="text-align: left">{escape(text)}</td></tr>'
        for name, text in facts.items()
        if text
    )
    return f"<div><strong>{escape(title)}</strong><table><tbody>{rows}</tbody></table>{''.join(more)}</div>"


def table_html(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table with headings."""
    from html import escape

    head = "".join(f"<th>{escape(name)}</th>" for name in columns)
    body = "".join(f"<tr>{''.join(f'<td>{escape(text)}</td>' for text in row)}</tr>" for row in rows)
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
