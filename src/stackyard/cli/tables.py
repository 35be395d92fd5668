"""Tables and long lines as text. On a terminal they fit its width; elsewhere each row is one line, for `grep`.

Lines are broken between words, and inside a word only if necessary. The first column, which identifies the row, is
never broken, since you may copy it.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence

import click

from stackyard.core.quoting import one_line

_GAP, _MARGIN, _LEAST = 2, 4, 8


def terminal_width(*, err: bool = False) -> int:
    """The width of the terminal on standard output or standard error; 0: none, or its width is unknown."""
    if not (sys.stderr if err else sys.stdout).isatty():
        return 0
    import shutil

    return shutil.get_terminal_size((0, 0)).columns


def table(rows: Sequence[Mapping[str, str]], columns: Sequence[str], room: int) -> Iterator[str]:
    """Rows as columns of even width, with headings; colours in a cell do not count.

    Args:
        room: the maximal width, kept by breaking cells into lines, and by putting the first column (with a nameless one
            after it) on separate lines; 0: unlimited.
    """
    rows = [{column: one_line(row[column]) for column in columns} for row in rows]
    heads = {column: click.style(column, bold=True) for column in columns}
    natural = {c: max(_width(row[c]) for row in (heads, *rows)) for c in columns}
    words = {c: max(_longest(row[c]) for row in (heads, *rows)) for c in columns}
    first = columns[: 2 if columns[1:2] in (("",), [""]) else 1]
    side_by_side = _shrunk(natural, {**words, **{c: natural[c] for c in first}}, room)
    if not room or _total(side_by_side) <= room:
        for row in (heads, *rows):
            yield from _lines(row, side_by_side)
        return
    rest = {c: natural[c] for c in columns if c not in first}
    below = _shrunk(_shrunk(rest, words, room - _MARGIN), dict.fromkeys(rest, _LEAST), room - _MARGIN)
    for row in (heads, *rows):
        yield (" " * _GAP).join(row[c] for c in first if _width(row[c]))
        yield from (f"{'':{_MARGIN}}{line}" for line in _lines(row, below))


def wrapped(text: str, room: int, margin: int = 0) -> Iterator[str]:
    """A line broken between words if it is wider than `room` (0: never).

    Args:
        margin: the indentation of the other lines; text within it on the first line is not put on a separate line.
    """
    inner = text.lstrip(" ")
    line, started = text[: len(text) - len(inner)], False
    for word in inner.split(" "):
        if room and started and _width(line) > margin and _width(line) + 1 + _width(word) > room:
            yield line.rstrip()
            line, started = " " * margin, False
            if not word:
                continue
        line, started = line + " " * started + word, True
    yield line


def show_line(text: str, margin: int = 0) -> None:
    """Print a line, on a terminal broken between words; further lines are indented by `margin`."""
    for line in wrapped(one_line(text), terminal_width(), margin):
        click.echo(line)


def _width(text: str) -> int:
    return len(click.unstyle(text) if "\033" in text else text)


def _longest(text: str) -> int:
    return max(map(_width, text.split(" ")))


def _total(widths: Mapping[str, int]) -> int:
    return sum(widths.values()) + _GAP * (len(widths) - 1)


def _shrunk(widths: Mapping[str, int], least: Mapping[str, int], room: int) -> dict[str, int]:
    """The widths, with the widest reduced until all fit or are minimal."""
    result = dict(widths)
    while room and _total(result) > room:
        widest = max(result, key=lambda c: (result[c] > least[c], result[c]))
        if result[widest] <= least[widest]:
            break
        result[widest] -= 1
    return result


def _lines(row: Mapping[str, str], widths: Mapping[str, int]) -> Iterator[str]:
    """One row as text lines: as many as its highest cell."""
    cells = {column: _cell(row[column], width) for column, width in widths.items()}
    for number in range(max(map(len, cells.values()))):
        parts = ((cells[c][number] if number < len(cells[c]) else "", width) for c, width in widths.items())
        yield (" " * _GAP).join(text + " " * (width - _width(text)) for text, width in parts).rstrip()


def _cell(text: str, width: int) -> list[str]:
    lines: list[str] = []
    for line in wrapped(text, width):
        plain = click.unstyle(line)
        lines += [plain[at : at + width] for at in range(0, len(plain), width)] if len(plain) > width else [line]
    return lines
