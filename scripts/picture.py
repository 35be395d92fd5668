"""Run commands in a terminal of their own and draw what a person saw as an SVG, for the documents.

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
    """What a command prints on standard output, with colours; progress goes to standard error and is not drawn."""
    environ = {**os.environ, "FORCE_COLOR": "1", "CLICOLOR_FORCE": "1", "COLUMNS": str(WIDTH), "TERM": "xterm-256color"}
    done = subprocess.run(
        ["bash", "-c", command], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=environ, check=False
    )
    return done.stdout.rstrip("\n")


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
