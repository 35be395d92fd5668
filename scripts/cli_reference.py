"""Write docs/reference/cli.md and the man pages from the commands' own help texts: one source, no drift.

A test runs this and man_pages.py with --check.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import click

from stackyard.cli.main import VERBS, cli
from stackyard.cli.study import bench

ROOT = Path(__file__).parents[1]
TARGET = ROOT / "docs" / "reference" / "cli.md"
WIDE: dict[str, Any] = {"max_content_width": 100, "terminal_width": 100}

HEAD = """# The command line

Made by `python scripts/cli_reference.py`; do not edit. The same commands serve staff and users. Every read command has
`--json`; every writing command has `--dry-run`.

| exit code | meaning |
|---|---|
| 0 | done |
| 1 | it failed; the message names the cause |
| 2 | the command line or a file is wrong; the message names file, line and what to do |
| 3 | a check did not pass |
| 4 | something needed is missing on this machine |
"""


def reference() -> str:
    """The whole page."""
    parent = click.Context(cli, info_name="stackyard", **WIDE)
    parts = [HEAD, f"\n## stackyard\n\n```\n{cli.get_help(parent)}\n```\n"]
    for verb in VERBS:
        command = cli.get_command(parent, verb)
        assert command is not None
        context = click.Context(command, info_name=verb, parent=parent, **WIDE)
        parts.append(f"\n## stackyard {verb}\n\n```\n{command.get_help(context)}\n```\n")
        for name in bench.PARTS if verb == "bench" else ():
            if not (ROOT / "src" / "stackyard" / "cli" / "study" / f"{name}.py").exists():
                continue
            context = command.make_context(verb, [name], parent, resilient_parsing=True, **WIDE)
            parts.append(f"\n### stackyard {verb} {name}\n\n```\n{context.get_help()}\n```\n")
    return "".join(parts)


def main() -> None:
    """Write the page and the man pages, or with ``--check`` exit with status 1 if the page is stale."""
    text = reference()
    if "--check" in sys.argv:
        sys.exit(0 if TARGET.exists() and TARGET.read_text() == text else f"{TARGET} is stale: run {sys.argv[0]}")
    TARGET.write_text(text)
    # in a process of its own: click keeps the help option of the first context in which a command was shown
    subprocess.run([sys.executable, Path(__file__).with_name("man_pages.py")], check=True)


if __name__ == "__main__":
    main()
