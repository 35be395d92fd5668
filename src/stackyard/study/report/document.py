"""A report before it has a format: sections of sentences, tables, figures and commands. All of it is plain text.

Prose of other people (names, messages, hosts) enter as they are: each renderer escapes whatever it writes.
"""

from __future__ import annotations

from collections.abc import Sequence

from stackyard.core.late import dataclass
from stackyard.core.quoting import plain
from stackyard.core.secrets import redacted

MOST = 2_000
"""Characters of a text of other people that a report repeats."""


@dataclass(frozen=True)
class Prose:
    """Sentences, each a paragraph, or an item of a list."""

    items: tuple[str, ...]
    is_list: bool = False


@dataclass(frozen=True)
class ReportTable:
    """A table; the first `heads` cells of a row name it.

    Attributes:
        numbers: the columns that are aligned to the right.
    """

    caption: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    numbers: frozenset[str] = frozenset()
    heads: int = 1


@dataclass(frozen=True)
class Figure:
    """A figure: an SVG without a style of its own.

    Attributes:
        name: of ``--figure``.
        caption: what it shows and how to read it.
    """

    name: str
    metric: str
    caption: str
    svg: str


@dataclass(frozen=True)
class Commands:
    """Command lines to copy, below what they do."""

    title: str
    lines: tuple[str, ...]


Block = Prose | ReportTable | Figure | Commands


@dataclass(frozen=True)
class Section:
    """A part of a report. `is_brief`: it belongs to the summary on a terminal."""

    title: str
    blocks: tuple[Block, ...]
    is_brief: bool = False


@dataclass(frozen=True)
class ReportDocument:
    """A report."""

    title: str
    sections: tuple[Section, ...]

    def figures(self) -> Sequence[Figure]:
        """All figures, in their order."""
        return [block for section in self.sections for block in section.blocks if isinstance(block, Figure)]


def said(text: object, most: int = MOST) -> str:
    """A text of other people on one line: without secrets and without what terminals and browsers obey."""
    return plain(redacted(str(text)), most)
