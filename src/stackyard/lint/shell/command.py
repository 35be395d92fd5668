"""Simple commands of a parsed shell script, and the variables that they set."""

from __future__ import annotations

from dataclasses import dataclass, field

from stackyard.lint.shell.words import Word


@dataclass(frozen=True)
class Assignment:
    """``NAME=value``; `value` is None for an array or an unknown value; `raw` is its source.

    `index`: the index of an array item with its brackets, ``[0]``.
    """

    name: str
    value: Word | None
    raw: str
    append: bool = False
    index: str = ""


@dataclass
class Command:
    """One simple command. `blocks` are (number, kind) of its enclosing blocks, outermost first.

    `piped`: a pipe reads its output; `fed`: it reads from a pipe; `functions`: the names of the enclosing functions.
    """

    line: int
    words: list[Word] = field(default_factory=list)
    assignments: list[Assignment] = field(default_factory=list)
    redirects: list[tuple[str, Word]] = field(default_factory=list)
    blocks: tuple[tuple[int, str], ...] = ()
    background: bool = False
    piped: bool = False
    fed: bool = False
    conditional: bool = False
    here: str = ""
    here_line: int = 0
    functions: tuple[str, ...] = ()

    def within(self, kind: str) -> bool:
        """Whether it is in a block of that kind: branch, loop, function, group or subshell."""
        return any(block == kind for _, block in self.blocks)
