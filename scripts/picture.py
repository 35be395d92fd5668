"""Run commands in a terminal of their own and draw their output as an SVG, for the documents.

python scripts/picture.py docs/images/quickstart.svg "stackyard list" "stackyard show demo"
"""

from __future__ import annotations

import os
import subprocess
import sys
from io import StringIO
from pathlib import Path

from rich.console import Console
from rich.terminal_theme import MONOKAI
from rich.text import Text

WIDTH = 110


def captured(command: str) -> str:
    """What a command shows on a terminal of its own, with colours; of a line that was redrawn, its last state."""
    environ = {**os.environ, "COLUMNS": str(WIDTH), "TERM": "xterm-256color"}
    done = subprocess.run(
        ["script", "-qec", command, "/dev/null"], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, env=environ,
        check=False,
    )  # fmt: skip
    lines = done.stdout.decode().replace("\r\n", "\n").rstrip("\n").split("\n")
    return "\n".join(line.rsplit("\r", 1)[-1] for line in lines)


def main() -> None:
    """Draw the commands of the command line, one below the other."""
    target, *commands = sys.argv[1:]
    console = Console(record=True, width=WIDTH, file=StringIO(), force_terminal=True)
    for command in commands:
        console.print(Text.assemble(("$ ", "bold green"), (command, "bold")))
        console.print(Text.from_ansi(captured(command)))
    Path(target).write_text(console.export_svg(title="stackyard", theme=MONOKAI), encoding="utf-8")


if __name__ == "__main__":
    main()
