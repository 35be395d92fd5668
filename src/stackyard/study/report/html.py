"""A report as one HTML file: without scripts and external requests, for a phone, print, the dark and screen readers."""

from __future__ import annotations

import re
from collections.abc import Iterator
from html import escape
from pathlib import Path

from stackyard.study.report.document import Block, Commands, Figure, Prose, ReportDocument, ReportTable, Section

_DARK = ("#6cb6ff", "#ffa657", "#57d977", "#c297ff", "#ff8fcf", "#b1bac4", "#e3b341", "#56d4dd")
"""The colours of `svg.COLOURS` on a dark page, in the same order."""
MOST_LINE = 40
"""Characters of a cell in one line."""
_POLICY = "default-src 'none'; style-src 'unsafe-inline'"
_HEAD = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<meta name="generator" content="stackyard report">
<title>{title}</title>
<style>{style}</style>
</head>
<body>
<main>
<h1>{title}</h1>
"""


def html_text(document: ReportDocument) -> str:
    """The page."""
    head = _HEAD.format(policy=_POLICY, title=escape(document.title), style=_style())
    sections = list(enumerate(document.sections, 1))
    links = "".join(f'<li><a href="#s{number}">{escape(each.title)}</a></li>' for number, each in sections)
    body = "".join(_section(number, each) for number, each in sections)
    return f'{head}<nav aria-label="Contents"><ul>{links}</ul></nav>\n{body}</main>\n</body>\n</html>\n'


def _style() -> str:
    lines = [f"  svg polyline.c{n}, svg path.c{n} {{ stroke: {colour} }} svg path.c{n} {{ fill: {colour} }}\n"
             for n, colour in enumerate(_DARK)]  # fmt: skip
    style = Path(__file__).with_name("page.css").read_text(encoding="utf-8")
    return style.replace("/* colours */", "".join(lines) + "  svg path.h { fill: #0d1117 }")


def _section(number: int, section: Section) -> str:
    figures = "".join(_figure(block) for block in section.blocks if isinstance(block, Figure))
    figures = f'<div class="figures">{figures}</div>\n' if figures else ""
    others = "".join(part for block in section.blocks for part in _block(block))
    head = f'<section aria-labelledby="s{number}">\n<h2 id="s{number}">{escape(section.title)}</h2>\n'
    return f"{head}{figures}{others}</section>\n"


def _figure(figure: Figure) -> str:
    return f"<figure>{figure.svg}<figcaption>{escape(figure.caption)}</figcaption></figure>\n"


def _block(block: Block) -> Iterator[str]:
    if isinstance(block, Prose):
        tag = "li" if block.is_list else "p"
        items = "".join(f"<{tag}>{_code(item)}</{tag}>\n" for item in block.items)
        yield f"<ul>\n{items}</ul>\n" if block.is_list else items
    elif isinstance(block, Commands):
        yield f"<h3>{escape(block.title)}</h3>\n"
        yield from (f'<pre tabindex="0"><code>{escape(line)}</code></pre>\n' for line in block.lines)
    elif isinstance(block, ReportTable):
        yield _table(block)


def _code(text: str) -> str:
    """A sentence, with the words in backticks as code."""
    return re.sub(r"`([^`]+)`", r"<code>\1</code>", escape(text))


def _table(table: ReportTable) -> str:
    numbers = [' class="n"' if column in table.numbers else _wide(table, at) for at, column in enumerate(table.columns)]
    head = "".join(f'<th scope="col"{n}>{escape(c)}</th>' for c, n in zip(table.columns, numbers, strict=True))
    rows = "".join(f"<tr>{_cells(row, numbers, table.heads)}</tr>\n" for row in table.rows)
    caption = escape(table.caption)
    return (f'<div class="scroll" role="region" tabindex="0" aria-label="{caption}"><table><caption>{caption}</caption>'
            f"<thead><tr>{head}</tr></thead>\n<tbody>{rows}</tbody></table></div>\n")  # fmt: skip


def _wide(table: ReportTable, column: int) -> str:
    """The class of a column whose cells are broken into lines."""
    return ' class="w"' if any(len(row[column]) > MOST_LINE for row in table.rows) else ""


def _cells(row: tuple[str, ...], numbers: list[str], heads: int) -> str:
    return "".join(
        f'<th scope="row"{n}>{escape(cell)}</th>' if at < heads else f"<td{n}>{escape(cell)}</td>"
        for at, (cell, n) in enumerate(zip(row, numbers, strict=True))
    )
