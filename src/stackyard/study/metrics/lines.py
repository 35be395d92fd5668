"""Lines of logs that may have millions of them, progress bars and colours: streamed, each within a bound."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from stackyard.host.files.at import open_regular

LONGEST = 1 << 16
"""Bytes of a line; a longer one is skipped."""
BLOCK = 1 << 20
_BREAK = re.compile(rb"[\r\n\x08]+")
"""A progress bar returns to the start of its line, or goes back over it."""
_COLOUR = re.compile(rb"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\))")
"""ECMA-48, 5.4: control sequences; and operating system commands, such as links."""
NUMBER = r"[-+]?(?:\d[\d,]*\.?\d*|\.\d+)(?:[eE][-+]?\d+)?|[-+]?(?:nan|inf)\b"
"""A number as programs print it: 1234.5, 1,234.5, 1.2e+03, nan."""


def lines(path: Path, *, ended: bool) -> Iterator[bytes]:
    """The lines of a log, without colours.

    Args:
        ended: the program came to its end. The last line of one that was killed may be half a number: without a line
            break it is left out.

    Raises:
        OSError: not a regular file, or it cannot be read.
    """
    rest, skipping = b"", False
    with open_regular(path) as stream:
        while block := stream.read(BLOCK):
            *whole, rest = _BREAK.split(rest + block)
            yield from (_bare(line) for line in whole[skipping:] if len(line) <= LONGEST)
            skipping = skipping and not whole
            if len(rest) > LONGEST:
                rest, skipping = b"", True
    if rest and ended and not skipping:
        yield _bare(rest)


def _bare(line: bytes) -> bytes:
    return _COLOUR.sub(b"", line) if b"\x1b" in line else line


def number(text: str) -> float:
    """A printed number; NaN for anything else."""
    try:
        return float(text.strip().replace(",", ""))
    except ValueError:
        return float("nan")


def clock(text: str) -> float:
    """Seconds of ``1:02:03.4``, or of a number."""
    seconds = 0.0
    for part in text.split(":"):
        seconds = seconds * 60 + number(part)
    return seconds
