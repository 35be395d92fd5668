"""Functions of a script that are never called, so that their commands do not run."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from stackyard.lint.shell.command import Command

_ANY = re.compile(r"\"?\$(?:\{?[@*1-9])")
"""A command whose name the script's caller gives: it may be that of any function."""


@dataclass(frozen=True)
class Function:
    """A function and the first and last line of its commands."""

    name: str
    first: int
    last: int


def uncalled(commands: Sequence[Command], text: str) -> tuple[Function, ...]:
    """The functions whose names occur only in their definitions, in comments and in other such functions."""
    if any(command.words and _ANY.match(command.words[0].raw) for command in commands):
        return ()
    functions = [
        _function(name, commands) for name in dict.fromkeys(n for command in commands for n in command.functions)
    ]
    rows = ["" if row.lstrip().startswith("#") else row for row in text.split("\n")]
    result: list[Function] = []
    while dead := [
        f for f in functions if f not in result and not _is_named(f, rows, result) and not _runs(f, commands)
    ]:
        result += dead
    return tuple(result)


def _runs(function: Function, commands: Sequence[Command]) -> bool:
    """Whether a command outside the function starts with its name, as in ``f() { ./a; }; f``."""
    outside = (command for command in commands if function.name not in command.functions and command.words)
    return any(command.line == function.first and command.words[0].raw == function.name for command in outside)


def _function(name: str, commands: Sequence[Command]) -> Function:
    lines = [command.line for command in commands if name in command.functions]
    return Function(name, min(lines), max(lines))


def _is_named(function: Function, rows: Sequence[str], dead: Sequence[Function]) -> bool:
    name = re.escape(function.name)
    word, defined = re.compile(rf"(?<![\w.-]){name}(?![\w.-])"), re.compile(rf"(?:function\s+)?{name}\s*(?:\(\s*\))?")
    for number, row in enumerate(rows, 1):
        if any(other.first <= number <= other.last for other in (function, *dead)):
            continue
        text = defined.sub("", row, count=1) if _defines(row, name) else row
        if word.search(text):
            return True
    return False


def _defines(row: str, name: str) -> bool:
    return bool(re.match(rf"\s*(?:function\s+{name}\b|{name}\s*\(\s*\))", row))
