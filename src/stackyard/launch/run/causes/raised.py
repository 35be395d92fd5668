"""What usually causes an exception of Python that no rule knows, from its message and the line of code that raised it.

The rows are in rules/raised.yaml. They are for the hint only: which exception it was is told in its own words.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Sequence
from dataclasses import dataclass

from stackyard.launch.run.causes.tracebacks import is_frame

_PACKAGE = re.compile(r"/(?:site|dist)-packages/(\w+)")
_MARKS = re.compile(r"[\s~^│❱|]*")
_WORKER = "Original Traceback"
"""How the traceback of a worker begins that another process prints (PyTorch's DataLoader)."""
IN_WORKER = "a sample that a worker of the DataLoader read is to blame, unless all fail: "
MOST_PACKAGES = 3
MOST_TEXT, MOST_LINES = 4000, 40
"""Characters of a line that are compared, and lines of a stack whose end is missing."""


@dataclass(frozen=True)
class Usual:
    """A row of rules/raised.yaml, whose head describes the fields."""

    raised: re.Pattern[str]
    source: str
    hint: str


@functools.cache
def usual() -> tuple[Usual, ...]:
    """The rows, in the order in which they are tried."""
    from stackyard.inputs.reading.yamlfile import packaged

    rows = packaged(__package__, "rules/raised.yaml")
    return tuple(Usual(re.compile(row["raised"]), row.get("source", ""), row["hint"]) for row in rows)


def raised_hint(raised: str, stack: Sequence[str]) -> str:
    """What usually causes an exception, and what to do; empty where nothing is known of its kind.

    Args:
        raised: the line that names the exception; empty where the log does not have it.
        stack: the lines of its traceback, the innermost last.
    """
    source = (_source(stack) if raised else "\n".join(map(str.strip, stack[-MOST_LINES:])))[:MOST_TEXT]
    for row in usual():
        match = row.raised.search(raised[:MOST_TEXT])
        if not match:
            continue
        name = next(filter(None, match.groupdict().values()), "").strip()
        if not row.source:
            return _told(row.hint, name, "", stack)
        if at := re.search(row.source.replace("{name}", re.escape(name)), source):
            return _told(row.hint, name, at.groupdict().get("what") or "", stack)
    return ""


def _told(hint: str, name: str, what: str, stack: Sequence[str]) -> str:
    packages = list(dict.fromkeys(found[1] for line in reversed(stack) if (found := _PACKAGE.search(line))))
    named = f" ({', '.join(packages[:MOST_PACKAGES])})" if packages else ""
    told = hint.replace("{packages}", named).replace("{name}", name).replace("{what}", what)
    return f"{IN_WORKER}{told}" if stack and stack[0].startswith(_WORKER) else told


def _source(stack: Sequence[str]) -> str:
    """The line of code that raised the exception: the last of a stack that is neither a frame nor a mark below it."""
    for line in reversed(stack):
        if line[:1] in " \t│❱|" and not is_frame(line) and not _MARKS.fullmatch(line):
            return line.strip()
    return ""
