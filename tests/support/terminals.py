"""Interactive shells in a pseudo-terminal: what they show after a TAB."""

from __future__ import annotations

import os
import pty
import re
import select
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

QUIET_S = 0.5
"""A shell that shows nothing for so long has shown all: zsh drops its list where more is typed meanwhile."""
CLEAR = "\x15echo cle''ar\n"


def typed(
    argv: Sequence[str], environ: Mapping[str, str], cwd: Path, begin: str, lines: Sequence[tuple[str, str]]
) -> list[tuple[list[str], float]]:
    """The words that a shell shows after a TAB behind each line, and the seconds until the word beside it was shown.

    Args:
        begin: a command line that it runs first.
    """
    child, terminal = pty.fork()
    if child == 0:
        os.chdir(cwd)
        os.execvpe(argv[0], argv, environ)
    found = []
    try:
        _until(terminal, f"{begin}; echo rea''dy\n", "ready")
        for line, word in lines:
            shown = _until(terminal, line, line[-4:])
            started = time.perf_counter()
            shown = _until(terminal, "\t", word, shown)
            took = time.perf_counter() - started
            while select.select([terminal], [], [], QUIET_S)[0]:
                shown += os.read(terminal, 65536).decode(errors="replace")
            found.append((_words(shown + _until(terminal, CLEAR, "clear")), took))
    finally:
        os.close(terminal)
        os.waitpid(child, 0)
    return found


def _words(shown: str) -> list[str]:
    return re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]|[\r\x07]", " ", shown).split()


def _until(terminal: int, line: str, end: str, shown: str = "") -> str:
    """What was shown, and what a shell prints for a line, until `end` is in it."""
    os.write(terminal, line.encode())
    most = time.monotonic() + 30
    while end not in shown and time.monotonic() < most:
        if select.select([terminal], [], [], 1)[0]:
            shown += os.read(terminal, 65536).decode(errors="replace")
    assert end in shown, f"{line!r}: {shown!r}"
    return shown
