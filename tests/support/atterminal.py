"""A person at a terminal: what they type and see."""

from __future__ import annotations

import os
import pty
import subprocess
from collections.abc import Callable
from typing import Any


def answered(start: Callable[[int], subprocess.Popen[Any]], says: str) -> str:
    """What is seen at a terminal where a program is started, and the question that it asks is answered.

    Args:
        start: starts it with this file descriptor as its terminal.
    """
    ours, theirs = pty.openpty()
    process = start(theirs)
    os.close(theirs)
    os.write(ours, f"{says}\n".encode())
    shown = b""
    while True:
        try:
            shown += os.read(ours, 4096)
        except OSError:  # the other side is closed
            break
    process.wait(30)
    os.close(ours)
    return shown.decode().replace("\r\n", "\n")
