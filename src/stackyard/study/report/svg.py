"""A drawing as SVG 1.1: lines, marks and words, with colours as attributes, so that it needs no style sheet.

Each element has a class too, by which a page changes the colours in the dark (`html`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape

from stackyard.study.report.document import said

WIDTH = 480
INK, FAINT, BACK = "#1f2328", "#6e7781", "#ffffff"
COLOURS = ("#0059b3", "#b34700", "#1a7f37", "#8250df", "#bf3989", "#57606a", "#7d4e00", "#0e7c86")
"""Each has a contrast of 4.5 and more on white."""
SHAPES = ("circle", "square", "diamond", "triangle")
DASHES = ("", "7 3", "2 3", "8 3 2 3")
MOST_TEXT = 56
"""Characters that fit into a line; titles, captions and tables have all."""
Point = tuple[float, float]


class Drawing:
    """Elements of a drawing, `WIDTH` wide; its height is known at the end."""

    def __init__(self) -> None:
        self._parts: list[str] = []

    def text(self, at: Point, words: str, *, anchor: str = "start", faint: bool = False, bold: bool = False) -> None:
        """Words at a point; `anchor` is start, middle or end."""
        weight = ' font-weight="600"' if bold else ""
        colour = f'class="{"f" if faint else "i"}" fill="{FAINT if faint else INK}"'
        words = words if len(words) <= MOST_TEXT else f"{words[:MOST_TEXT]}…"
        self._parts.append(f'<text {_at(at)} text-anchor="{anchor}" {colour}{weight}>{escape(words)}</text>')

    def line(self, points: Sequence[Point], style: str = "i", *, width: float = 1, dash: str = "") -> None:
        """A line through points; `style` is a class: ``i`` ink, ``f`` faint, ``cN`` the N-th colour."""
        dashes = f' stroke-dasharray="{dash}"' if dash else ""
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
        self._parts.append(f'<polyline points="{path}" fill="none" class="{style}" stroke="{_colour(style)}" '
                           f'stroke-width="{width:g}"{dashes}/>')  # fmt: skip

    def mark(self, at: Point, number: int, *, size: float = 4, hollow: bool = False, tip: str = "") -> None:
        """The mark of the N-th variant: a shape and a colour of its own; `tip` is shown when pointed at."""
        style = f"c{number % len(COLOURS)}"
        fill = BACK if hollow else _colour(style)
        look = f'class="{style}{" h" if hollow else ""}" stroke="{_colour(style)}" fill="{fill}"'
        title = f"<title>{escape(tip)}</title>" if tip else ""
        self._parts.append(f'<path d="{_shape(_turned(SHAPES, number), at, size)}" {look}>{title}</path>')

    def interval(self, low: Point, high: Point, style: str, *, is_range: bool) -> None:
        """A bar between two points: solid with ends for an interval, dashed without for a range."""
        self.line([low, high], style, width=1.6, dash="3 2" if is_range else "")
        across = (4.0, 0.0) if low[0] == high[0] else (0.0, 4.0)
        for x, y in () if is_range else (low, high):
            self.line([(x - across[0], y - across[1]), (x + across[0], y + across[1])], style, width=1.6)

    def heading(self, title: str, names: Sequence[str], lines: int = 0) -> float:
        """The title and the legend, a name a line; returns where they end. The last `lines` names are dashed lines."""
        self.text((14, 16), title, bold=True)
        for number, name in enumerate(names):
            y, is_mark = 38.0 + 18 * number, number < len(names) - lines
            dash = dash_of(number) if is_mark else "4 4"
            self.line([(14, y), (40, y)], f"c{number % len(COLOURS)}" if is_mark else "f", width=2, dash=dash)
            if is_mark:
                self.mark((27, y), number)
            self.text((50, y + 4), said(name, 60))
        return 44.0 + 18 * len(names)

    def rendered(self, name: str, title: str, description: str, height: float) -> str:
        """The SVG; `name` is part of its ids."""
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height:.0f}" width="{WIDTH}" '
            f'height="{height:.0f}" role="img" aria-labelledby="{name}-t {name}-d" font-size="13" '
            f'font-family="system-ui, sans-serif"><title id="{name}-t">{escape(title)}</title>'
            f'<desc id="{name}-d">{escape(description)}</desc>'
            f'<rect class="b" width="100%" height="100%" fill="{BACK}"/>{"".join(self._parts)}</svg>'
        )


def dash_of(number: int) -> str:
    """The dashes of the N-th variant's line."""
    return _turned(DASHES, number)


def _turned(kinds: Sequence[str], number: int) -> str:
    """One of some kinds, so that variants of the same colour differ: 32 are told apart."""
    return kinds[(number + number // len(COLOURS)) % len(kinds)]


def _at(point: Point) -> str:
    return f'x="{point[0]:.1f}" y="{point[1]:.1f}"'


def _colour(style: str) -> str:
    return {"i": INK, "f": FAINT}.get(style) or COLOURS[int(style[1:])]


def _shape(kind: str, at: Point, size: float) -> str:
    x, y = at
    if kind == "circle":
        arc = f"a{size:g},{size:g} 0 1,0"
        return f"M{x - size:.1f},{y:.1f}{arc} {2 * size:g},0{arc} {-2 * size:g},0z"
    corners = {"square": ((-1, -1), (1, -1), (1, 1), (-1, 1)), "diamond": ((0, -1.3), (1.3, 0), (0, 1.3), (-1.3, 0)),
               "triangle": ((0, -1.2), (1.2, 1), (-1.2, 1))}[kind]  # fmt: skip
    return "M" + "L".join(f"{x + size * dx:.1f},{y + size * dy:.1f}" for dx, dy in corners) + "z"


def ticks(low: float, high: float, count: int = 5) -> list[float]:
    """Round numbers that cover a range: the first is at or below it, the last at or above."""
    step = max(high - low, 1e-12) / count
    unit = float(10 ** math.floor(math.log10(step)))
    step = next(unit * each for each in (1, 2, 2.5, 5, 10) if unit * each >= step * 0.999)
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    return [step * each for each in range(first, last + 1)]
