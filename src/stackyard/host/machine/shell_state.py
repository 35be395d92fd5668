"""The state of a bash: it writes its variables, functions and aliases to files, which are parsed here.

Standard library only.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping
from pathlib import Path

from stackyard.core.late import dataclass

SHELL_OWN = frozenset({"_", "SHLVL", "PWD", "OLDPWD"})
"""Variables that every shell changes by itself."""

_NAME = "__stackyard_state"
_ENV = "/usr/bin/env" if Path("/usr/bin/env").exists() else "env"

WRITER = f"""
{_NAME}() {{
    {_ENV} -0 > "$1.env"
    local name
    while read -r name; do declare -f -- "$name"; printf '\\0'; done < <(compgen -A function) > "$1.functions"
    alias -p > "$1.aliases"
}}
"""
"""Bash code that defines the function that `write` calls. It stands before any other code, so that nothing that this
code changes (aliases, PATH, shell options) alters its meaning; builtins and an absolute path do the rest."""


@dataclass(frozen=True)
class ShellState:
    """The state of a shell.

    Attributes:
        variables: the exported ones.
        functions: by name, the text between the outer braces, lines unchanged: a here-document must not be indented.
        aliases: by name, the value without its quotes.
    """

    variables: Mapping[str, str]
    functions: Mapping[str, str]
    aliases: Mapping[str, str]


def write(stem: Path) -> str:
    """The bash command that writes the shell's state to files whose names start with `stem`."""
    return f"{_NAME} {shlex.quote(str(stem))}"


def is_written(stem: Path) -> bool:
    """Whether `read` finds a state there."""
    return Path(f"{stem}.aliases").exists()


def read(stem: Path) -> ShellState:
    """The state that a shell wrote. The function that writes it is left out."""
    pairs = os.fsdecode(Path(f"{stem}.env").read_bytes()).split("\0")
    variables = dict(pair.split("=", 1) for pair in pairs if "=" in pair)
    variables.pop(f"BASH_FUNC_{_NAME}%%", None)
    functions = parse_functions(Path(f"{stem}.functions").read_text(encoding="utf-8", errors="replace"))
    functions.pop(_NAME, None)
    aliases = Path(f"{stem}.aliases").read_text(encoding="utf-8", errors="replace")
    return ShellState(variables, functions, parse_aliases(aliases))


def parse_functions(text: str) -> dict[str, str]:
    """Function bodies by name from the output of ``declare -f NAME``, each definition ended by a null byte."""
    functions: dict[str, str] = {}
    for definition in text.split("\0"):
        head, _, rest = definition.partition("\n")
        if head.endswith(" () "):
            functions[head[:-4]] = rest.partition("\n")[2].rpartition("\n}")[0]
    return functions


def parse_aliases(text: str) -> dict[str, str]:
    """Aliases by name from the output of ``alias -p``, their quotes undone. A value may have several lines."""
    return dict(word.split("=", 1) for word in shlex.split(text) if "=" in word)
