"""A report as one HTML file: without scripts and external requests, for a phone, print, the dark and screen readers."""

from __future__ import annotations

import re
from collections.abc import Iterator
from html import escape
from pathlib import Path

from stackyard.core.markup import BREAK, Markup, head, join, tag
from stackyard.study.report.document import Block, Commands, Figure, Prose, ReportDocument, ReportTable, Section

_DARK = ("#6cb6ff", "#ffa657", "#57d977", "#c297ff", "#ff8fcf", "#b1bac4", "#e3b341", "#56d4dd")
"""The colours of `svg.COLOURS` on a dark page, in the same order."""
MOST_LINE = 40
"""Characters of a cell in one line."""
_POLICY = "default-src 'none'; style-src 'unsafe-inline'"


def html_text(document: ReportDocument) -> str:
    """The page."""
    sections = list(enumerate(document.sections, 1))
    links = (tag("li", tag("a", each.title, href=f"#s{number}")) for number, each in sections)
    contents = tag("nav", tag("ul", *links), aria_label="Contents")
    main = tag("main", BREAK, tag("h1", document.title), BREAK, contents, BREAK,
               *(_section(number, each) for number, each in sections))  # fmt: skip
    return join(head(_POLICY, "report", document.title, tag("style", Markup(_style()))), main,
                Markup("\n</body>\n</html>\n"))  # fmt: skip


def _style() -> str:
    lines = [f"  svg polyline.c{n}, svg path.c{n} {{ stroke: {colour} }} svg path.c{n} {{ fill: {colour} }}\n"
             for n, colour in enumerate(_DARK)]  # fmt: skip
    style = Path(__file__).with_name("page.css").read_text(encoding="utf-8")
    return style.replace("/* colours */", "".join(lines) + "  svg path.h { fill: #0d1117 }")


def _section(number: int, section: Section) -> Markup:
    figures = join(*(_figure(block) for block in section.blocks if isinstance(block, Figure)))
    return tag("section", BREAK, tag("h2", section.title, id=f"s{number}"), BREAK,
               tag("div", figures, class_="figures") + BREAK if figures else None,
               *(part for block in section.blocks for part in _block(block)),
               aria_labelledby=f"s{number}") + BREAK  # fmt: skip


def _figure(figure: Figure) -> Markup:
    return tag("figure", Markup(figure.svg), tag("figcaption", figure.caption))


def _block(block: Block) -> Iterator[Markup]:
    if isinstance(block, Prose):
        items = join(*(tag("li" if block.is_list else "p", _code(item)) + BREAK for item in block.items))
        yield tag("ul", BREAK, items) + BREAK if block.is_list else items
    elif isinstance(block, Commands):
        yield tag("h3", block.title) + BREAK
        yield from (tag("pre", tag("code", line), tabindex="0") + BREAK for line in block.lines)
    elif isinstance(block, ReportTable):
        yield _table(block) + BREAK


def _code(text: str) -> Markup:
    """A sentence, with the words in backticks as code."""
    return Markup(re.sub(r"`([^`]+)`", r"<code>\1</code>", escape(text)))


def _table(table: ReportTable) -> Markup:
    kinds = ["n" if column in table.numbers else _wide(table, at) for at, column in enumerate(table.columns)]
    columns = (tag("th", column, scope="col", class_=kind) for column, kind in zip(table.columns, kinds, strict=True))
    rows = (tag("tr", *_cells(row, kinds, table.heads)) + BREAK for row in table.rows)
    inner = tag("table", tag("caption", table.caption), tag("thead", tag("tr", *columns)), BREAK, tag("tbody", *rows))
    return tag("div", inner, class_="scroll", role="region", tabindex="0", aria_label=table.caption)


def _wide(table: ReportTable, column: int) -> str | None:
    """The class of a column whose cells are broken into lines."""
    return "w" if any(len(row[column]) > MOST_LINE for row in table.rows) else None


def _cells(row: tuple[str, ...], kinds: list[str | None], heads: int) -> Iterator[Markup]:
    for at, (cell, kind) in enumerate(zip(row, kinds, strict=True)):
        yield tag("th", cell, scope="row", class_=kind) if at < heads else tag("td", cell, class_=kind)
