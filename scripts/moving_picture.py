"""Record commands in a shell and draw them as an SVG that moves: what was typed and shown. What takes longer
than some seconds is played faster, in these seconds.

python scripts/moving_picture.py docs/images/quickstart.svg --prepare '. /usr/share/lmod/lmod/init/bash' \\
    'stackyard deploy stack.yaml' 'module load quickstart && mpiexec -n 2 python heat.py'

The SVG is a strip of frames behind a window, moved by CSS alone, so that it plays as an image of a page; who has asked
for less motion sees the last frame. Lines are drawn once and used by every frame that shows them.
"""

from __future__ import annotations

import argparse
import fcntl
import itertools
import os
import pty
import select
import struct
import termios
import time
from collections.abc import Iterator
from html import escape
from pathlib import Path
from typing import NamedTuple

import pyte
from pyte.screens import Char

COLUMNS, ROWS = 96, 28
WIDE, HIGH, BORDER = 8.4, 18.0, 14.0
"""Of a cell, and around all of them, in pixels."""
PAUSE_S, TYPED_S, END_S, LEAST_S, MOST_S = 0.7, 0.03, 4.0, 0.07, 5.0
"""How long a typed line stays, a letter takes, the last frame stays; the shortest frame; the most of a command."""
QUIET_S, READY, UNTIL_S = 0.04, b"\x1b]7;ready\x07", 300
NAMES = {
    "default": "#d9d9d9", "black": "#1a1a1a", "red": "#f4005f", "green": "#98e024", "brown": "#fd971f",
    "blue": "#9d65ff", "magenta": "#f4005f", "cyan": "#58d1eb", "white": "#c4c5b5", "brightblack": "#878787",
    "brightred": "#f4005f", "brightgreen": "#98e024", "brightbrown": "#e0d561", "brightblue": "#9d65ff",
    "brightmagenta": "#f4005f", "brightcyan": "#58d1eb", "brightwhite": "#f6f6ef",
}  # fmt: skip
GROUND = "#0c0c0c"
Row = tuple[Char, ...]


class Frame(NamedTuple):
    """What the screen showed, and for how many seconds."""

    rows: tuple[Row, ...]
    seconds: float


class Written(NamedTuple):
    """What the shell wrote, and when."""

    at: float
    content: bytes


class Recording:
    """A bash in a terminal of its own, and what it wrote when. The screen is drawn later: that takes longer."""

    def __init__(self) -> None:
        """Start it, without start files."""
        environ = {**os.environ, "TERM": "xterm-256color", "COLORTERM": "truecolor", "PS1": r"\[\e]7;ready\a\]$ "}
        self._child, self._terminal = pty.fork()
        if self._child == 0:
            os.execvpe("bash", ["bash", "--norc", "--noprofile"], environ)
        fcntl.ioctl(self._terminal, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
        self._commands: list[tuple[list[Written], list[Written]]] = []
        self._until_ready()

    def prepare(self, line: str) -> None:
        """Run a line that the picture does not show."""
        os.write(self._terminal, f"{line}; clear\n".encode())
        self._until_ready()

    def type(self, line: str) -> None:
        """Type a line letter by letter, and wait until the next prompt."""
        typed = []
        for letter in line:
            os.write(self._terminal, letter.encode())
            typed += self._take(TYPED_S)
        os.write(self._terminal, b"\n")
        self._commands.append((typed, self._until_ready()))

    def close(self) -> None:
        """End the shell."""
        os.close(self._terminal)
        os.waitpid(self._child, 0)

    def frames(self) -> list[Frame]:
        """Every state of the screen."""
        screen = pyte.Screen(COLUMNS, ROWS)
        stream = pyte.ByteStream(screen)
        stream.feed(b"$ ")
        found: list[Frame] = []
        for typed, answered in self._commands:
            for written in typed:
                stream.feed(written.content)
                _keep(found, screen, TYPED_S)
            _keep(found, screen, PAUSE_S)
            of_command: list[Frame] = []
            waiting = 0.0
            for written, after in itertools.zip_longest(answered, answered[1:]):
                stream.feed(written.content)
                quiet = after.at - written.at if after else LEAST_S
                waiting += quiet
                if waiting >= LEAST_S and quiet >= QUIET_S:  # in the midst of what is written is half a picture
                    _keep(of_command, screen, waiting)
                    waiting = 0.0
            found += played(of_command)
            _keep(found, screen, 2 * PAUSE_S)
        return found

    def _until_ready(self) -> list[Written]:
        found, most = list[Written](), time.monotonic() + UNTIL_S
        while READY not in b"".join(written.content for written in found[-2:]):
            found += self._take(1.0)
            if time.monotonic() > most:
                raise SystemExit(f"no prompt after {UNTIL_S} s: {found[-1:]}")
        return found

    def _take(self, wait_s: float) -> list[Written]:
        if not select.select([self._terminal], [], [], wait_s)[0]:
            return []
        return [Written(time.monotonic(), os.read(self._terminal, 1 << 20))]


def _keep(frames: list[Frame], screen: pyte.Screen, seconds: float) -> None:
    """The screen as it is now; a state that stays is one frame."""
    rows = tuple(tuple(screen.buffer[y][x] for x in range(COLUMNS)) for y in range(ROWS))
    if frames and frames[-1].rows == rows:
        seconds += frames.pop().seconds
    frames.append(Frame(rows, seconds))


def played(frames: list[Frame]) -> list[Frame]:
    """The frames of a command in at most `MOST_S`; those that would be shorter than `LEAST_S` are left out."""
    factor = min(1.0, MOST_S / sum(frame.seconds for frame in frames))
    kept: list[Frame] = []
    for frame in frames:
        seconds = frame.seconds * factor
        if kept and kept[-1].seconds < LEAST_S:
            seconds += kept.pop().seconds
        kept.append(Frame(frame.rows, seconds))
    return kept


def colour(name: str) -> str:
    """A colour of the terminal for CSS, of sixteen shades a channel; pyte has other than its names as six digits."""
    if name in NAMES:
        return NAMES[name]
    return "#" + "".join(f"{round(int(name[at : at + 2], 16) / 17):x}" for at in (0, 2, 4))


def drawn(row: Row) -> str:
    """A line: backgrounds and half blocks as strokes, one path for each colour; all other characters as text."""
    areas: dict[str, list[str]] = {}
    for half in (0, 1):
        for fill, group in itertools.groupby(range(COLUMNS), lambda x, half=half: _fill(row[x], half)):
            cells = list(group)
            if fill:
                areas.setdefault(fill, []).append(f"M{cells[0]} {half}.5h{len(cells)}".replace(" 0.", " ."))
    paths = "".join(f'<path stroke="{fill}" d="{"".join(parts)}"/>' for fill, parts in areas.items())
    return (f'<g transform="scale({WIDE:g} {HIGH / 2:g})">{paths}</g>' if paths else "") + "".join(_words(row))


def _fill(cell: Char, half: int) -> str:
    """The colour of the upper or the lower half of a cell, where it has one."""
    if cell.data == "▀" and half == 0:
        return colour(cell.fg)
    return "" if cell.bg == "default" else colour(cell.bg)


def _words(row: Row) -> Iterator[str]:
    for (fg, bold), group in itertools.groupby(enumerate(row), lambda at: (at[1].fg, at[1].bold)):
        cells = list(group)
        text = "".join(" " if cell.data == "▀" else cell.data for _, cell in cells)
        if not text.strip():
            continue
        left = cells[0][0] + len(text) - len(text.lstrip())
        text = text.strip()
        weight = ' font-weight="bold"' if bold else ""
        size = f'x="{left * WIDE:g}" y="{HIGH * 0.75:g}" textLength="{len(text) * WIDE:g}"'
        yield f'<text {size} fill="{colour(fg)}"{weight}>{escape(text)}</text>'


def svg(frames: list[Frame]) -> str:
    """The frames below each other, moved by one step at a time past a window of one frame."""
    seconds = [*(frame.seconds for frame in frames[:-1]), END_S]
    names: dict[Row, str] = {}
    strip, steps, at = [], [], 0.0
    width, height = COLUMNS * WIDE + 2 * BORDER, ROWS * HIGH + 2 * BORDER
    for number, (frame, stays) in enumerate(zip(frames, seconds, strict=True)):
        top = number * height
        for y, row in enumerate(frame.rows):
            if drawn(row):
                name = names.setdefault(row, f"r{len(names)}")
                strip.append(f'<use href="#{name}" y="{top + y * HIGH:g}"/>')
        steps.append(f"{100 * at / sum(seconds):.3f}%{{transform:translateY({-top:g}px)}}")
        at += stays
    rows = "".join(f'<g id="{name}">{drawn(row)}</g>' for row, name in names.items())
    last = f"translateY({-(len(frames) - 1) * height:g}px)"
    style = (
        "path{shape-rendering:crispEdges}"
        "text{font:14px ui-monospace,'DejaVu Sans Mono',Menlo,Consolas,monospace;white-space:pre}"
        f"#film{{animation:film {sum(seconds):.2f}s step-end infinite}}@keyframes film{{{''.join(steps)}}}"
        f"@media(prefers-reduced-motion:reduce){{#film{{animation:none;transform:{last}}}}}"
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height:g}" width="{width:g}">'
        f"<style>{style}</style><defs>{rows}</defs>"
        f'<rect width="{width:g}" height="{height:g}" rx="8" fill="{GROUND}"/>'
        f'<svg x="{BORDER:g}" y="{BORDER:g}" width="{COLUMNS * WIDE:g}" height="{ROWS * HIGH:g}">'
        f'<g id="film">{"".join(strip)}</g></svg></svg>\n'
    )


def main() -> None:
    """Record the lines, and write the picture."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("target", type=Path)
    parser.add_argument("lines", nargs="+")
    parser.add_argument("--prepare", default=":", help="a line that is run before and not shown")
    options = parser.parse_args()
    recording = Recording()
    recording.prepare(options.prepare)
    for line in options.lines:
        recording.type(line)
    recording.close()
    frames = recording.frames()
    options.target.write_text(svg(frames), encoding="utf-8")
    print(f"{options.target}: {len(frames)} frames, {options.target.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
