"""What a traceback of Python tells of a program: its exceptions, and the place in the program's own files. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

_FRAME = re.compile(
    r'\W*(?:File "(?P<file>[^"\n]+)"|File (?P<notebook>\S+\.py):(?P<at>\d+)|(?P<rich>\S+\.py):(?P<row>\d+) in)'
    r"(?:, line (?P<line>\d+))?(?:,? in (?P<function>[\w.<>]+))?"
)
"""A frame as Python prints it, as faulthandler, IPython and rich do."""
_INSTALLED = re.compile(
    r"/(?:site|dist)-packages/|/lib(?:64)?/python\d|^<(?!stdin|string|ipython)|/runpy\.py|\.zip/|\.pyx$|/torchinductor"
)
_SOURCE = re.compile(r"[\s│❱|]+(?P<text>\S.*?)[\s│]*$")
_EXCEPTION = re.compile(r"(?P<name>(?:[A-Za-z_]\w*\.)*[A-Za-z_]\w*)(?:\s*$|: *(?P<message>.*))")
MOST_TOLD = 240


@dataclass(frozen=True)
class Place:
    """A place in a program. `source` is its line of code; empty where it was not printed."""

    text: str
    source: str = ""


def is_frame(text: str) -> bool:
    """Whether a line names a file and a line of a stack."""
    return _FRAME.match(text) is not None


def place(lines: Sequence[str], *, innermost_first: bool = False) -> Place | None:
    """The innermost frame in a file that is not of an installed package; without one the innermost of all.

    Args:
        innermost_first: the order of the frames, as faulthandler prints them; then with the innermost itself.
    """
    frames = [(number, match) for number, text in enumerate(lines) if (match := _FRAME.match(text))]
    if not frames:
        return None
    ordered = frames if innermost_first else frames[::-1]
    own = [one for one in ordered if not _INSTALLED.search(_file(one[1]))]
    number, frame = (own or ordered)[0]
    after = _SOURCE.match(lines[number + 1]) if number + 1 < len(lines) else None
    line = frame["line"] or frame["at"] or frame["row"]
    name = "/".join(_file(frame).split("/")[-2:])
    function = frame["function"] if frame["function"] not in (None, "<module>") else ""
    text = f"{name}:{line}" if line else name
    text = f"{text} in {function}" if function else text
    if innermost_first and number:
        inner = place(lines[frames[0][0] : frames[0][0] + 1])
        text = f"{inner.text}, called from {text}" if inner else text
    return Place(text, after["text"] if after and not is_frame(after.string) else "")


def _file(frame: re.Match[str]) -> str:
    return frame["file"] or frame["notebook"] or str(frame["rich"])


def exception(text: str) -> str:
    """``KeyError: 'x'`` from the line that ends a traceback, shortened; the text itself if it is none."""
    match = _EXCEPTION.match(text.strip())
    if not match:
        return text.strip()[:MOST_TOLD]
    message = (match["message"] or "").strip()
    return f"{match['name']}: {message}"[:MOST_TOLD] if message else match["name"]


def told(raised: str, before: str, lines: Sequence[str]) -> str:
    """``KeyError: 'x' at train.py:41 in main``, with the exception that it came from.

    Args:
        raised: the line of the exception.
        before: the line of the first exception of its chain; empty without one.
        lines: the last traceback of the chain.
    """
    what, at = exception(raised), place(lines)
    source = at.source if at else ""
    if source and ":" not in what:  # `assert x > 0`: the exception itself says nothing
        what = f"{what} ({source[:MOST_TOLD]})"
    what = f"{what} at {at.text}" if at else what
    origin = exception(before) if before else ""
    return f"{what}; it came from {origin}" if origin and origin != exception(raised) else what
