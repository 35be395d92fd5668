"""``stackyard completion``: the script by which a shell completes our command lines without starting Python."""

from __future__ import annotations

from pathlib import Path

import click

import stackyard
from stackyard.cli.context import Context
from stackyard.cli.help import verb
from stackyard.cli.output import emit

FILES = {"bash": "stackyard.bash", "zsh": "_stackyard", "fish": "stackyard.fish", "tcsh": "stackyard.tcsh"}
"""The script of each shell in the package, as `scripts/completions.py` writes it."""


@verb(
    ("for bash, once", "stackyard completion bash > ~/.local/share/bash-completion/completions/stackyard"),
    ("for fish", "stackyard completion fish > ~/.config/fish/completions/stackyard.fish"),
)
@click.argument("shell", type=click.Choice(tuple(FILES)))
def command(context: Context, shell: str) -> None:
    """Print the script that completes verbs, options, files, revisions and runs in SHELL."""
    emit((Path(stackyard.__file__).parent / "completions" / FILES[shell]).read_text(encoding="utf-8"))
