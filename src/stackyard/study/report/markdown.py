"""A report as Markdown (CommonMark with the tables of GitHub): sentences, tables and commands."""

from __future__ import annotations

import re
from collections.abc import Iterator

from stackyard.study.report.document import Block, Commands, Figure, Prose, ReportDocument, ReportTable


def markdown_text(document: ReportDocument) -> str:
    """The text. Figures are files of their own: ``-o FILE.svg``."""
    parts = [f"# {_escaped(document.title)}\n"]
    for section in document.sections:
        parts.append(f"## {_escaped(section.title)}\n")
        parts += [part for block in section.blocks if not isinstance(block, Figure) for part in _block(block)]
    return "\n".join(parts)


def _block(block: Block) -> Iterator[str]:
    if isinstance(block, Prose):
        mark, end = ("- ", "") if block.is_list else ("", "\n")
        yield "\n".join(f"{mark}{_escaped(item)}{end}" for item in block.items) + end.join(["\n"] * block.is_list)
    elif isinstance(block, Commands):
        yield f"{_escaped(block.title)}:\n"
        yield from (_fenced(line) for line in block.lines)
    elif isinstance(block, ReportTable):
        yield f"{_escaped(block.caption)}\n"
        yield "\n".join(_rows(block)) + "\n"


def _rows(table: ReportTable) -> Iterator[str]:
    yield _row([_escaped(column) for column in table.columns])
    yield _row(["---:" if column in table.numbers else "---" for column in table.columns])
    yield from (_row([_escaped(cell) for cell in row]) for row in table.rows)


def _row(cells: list[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _fenced(line: str) -> str:
    fence = "`" * max(3, 1 + max(map(len, re.findall("`+", line)), default=0))
    return f"{fence}\n{line}\n{fence}\n"


def _escaped(text: str) -> str:
    """Text in which Markdown and the HTML in it find nothing to obey; words in backticks of ours stay code."""
    return re.sub(r"([\\*_\[\]<>|#~&])", r"\\\1", text)
