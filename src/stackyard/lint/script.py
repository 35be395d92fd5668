"""`Script`: a parsed batch script. Pure: text in, facts out."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property

from stackyard.launch.request.options import Table
from stackyard.lint.dialect import Dialect
from stackyard.lint.directives import Directive, foreign_directives, head_is_filled_in, read_directives, scheduler_of
from stackyard.lint.launches import InnerCommand, Launch, find_launches
from stackyard.lint.request import Request, read_request, slurm_variables
from stackyard.lint.shell.command import Command
from stackyard.lint.shell.commands import read_shell
from stackyard.lint.shell.functions import Function, uncalled
from stackyard.lint.shell.placing import placed
from stackyard.lint.shell.scope import ResolvedCommand, resolve
from stackyard.lint.tables import HEADS


@dataclass(frozen=True)
class Script:
    """The request and the launches of a script.

    `commands` are all simple commands of its body, expanded, but those of functions that nothing calls (`uncalled`);
    `inner` those in the shells of its tasks; `inner_lines` the numbers of lines inside here-documents and strings;
    `unreached` the first and last line of what follows an ``exit`` that always runs; `dialect` the head
    of the scheduler that a plug-in adds to the site.
    """

    name: str
    text: str
    directives: tuple[Directive, ...]
    scheduler: str
    request: Request
    commands: tuple[ResolvedCommand, ...] = field(repr=False)
    launches: tuple[Launch, ...]
    inner: tuple[InnerCommand, ...] = field(repr=False)
    inner_lines: frozenset[int] = field(repr=False)
    uncalled: tuple[Function, ...] = ()
    unreached: tuple[int, int] | None = None
    dialect: Dialect | None = None

    @cached_property
    def own(self) -> Dialect | None:
        """The head of a plug-in's scheduler, if the script is for it and its options are known."""
        dialect = self.dialect
        return dialect if dialect and dialect.meanings and dialect.kind == self.scheduler else None

    @cached_property
    def table(self) -> Table | None:
        """The options of its head; None if unknown."""
        return self.own.table if self.own else HEADS.get(self.scheduler)

    @cached_property
    def is_batch(self) -> bool:
        """Whether it is a job script: it has directives that are not disabled."""
        return bool(self.scheduler)

    @cached_property
    def is_filled_in(self) -> bool:
        """Whether a program fills in whole lines of its head, which may then have any option."""
        return head_is_filled_in(self.text, self.commands[0].line if self.commands else 0)

    @cached_property
    def foreign(self) -> tuple[tuple[int, str], ...]:
        """Directives that are not supported, with their lines."""
        return foreign_directives(self.text, {*self.inner_lines, *(directive.line for directive in self.directives)})

    @cached_property
    def rows(self) -> list[str]:
        """The lines of the text."""
        return self.text.splitlines()

    def row(self, number: int) -> str:
        """One line of the text; empty beyond its end, where a command of a generated shell may be."""
        return self.rows[number - 1] if number <= len(self.rows) else ""

    @cached_property
    def code(self) -> str:
        """The text without whole-line comments."""
        return "\n".join("" if row.lstrip().startswith("#") else row for row in self.text.splitlines())

    def origin(self, text: str, at: ResolvedCommand, depth: int = 6) -> str:
        """The origin of a text: its variables replaced, step by step, by the source of their values."""
        for _ in range(depth):
            replaced = re.sub(r"\$\{?(\w+)(?:\[[^]]*\])?[^}\s\"'$)]*\}?", lambda m: self._source(m, at), text)
            if replaced == text:
                break
            text = replaced[:2000]
        return text

    @staticmethod
    def _source(match: re.Match[str], at: ResolvedCommand) -> str:
        value = at.environment.get(match[1])
        source = value.source if value and value.source and not value.source.startswith("$" + match[1]) else ""
        return source if source and match[1] not in re.findall(r"\w+", source) else match[0]


def parse_script(text: str, name: str = "script", dialect: Dialect | None = None) -> Script:
    """Parse a batch script. Never raises: parts that cannot be parsed are unknown.

    Args:
        text: the whole script.
        name: the file name in findings, usually its path.
        dialect: the head of the scheduler that a plug-in adds to the site.
    """
    clean = text.replace("\r\n", "\n")
    shell, inner_lines = read_shell(clean)
    directives = read_directives(clean, inner_lines, dialect)
    scheduler = scheduler_of(directives)
    request = read_request(scheduler, directives, dialect)
    known = slurm_variables(request) if scheduler == "slurm" else {}
    dead = uncalled(shell, clean)
    names = {function.name for function in dead}
    shell = placed([command for command in shell if not names.intersection(command.functions)])
    end = len(shell) if "{%" in clean else _end(shell)
    unreached = (shell[end].line, shell[-1].line) if end < len(shell) else None
    commands = resolve(shell[:end], known, zsh=_is_zsh(clean, request))
    launches, inner = find_launches(commands)
    starts, tasks = tuple(launches), tuple(inner)
    return Script(
        name, text, directives, scheduler, request, tuple(commands), starts, tasks, inner_lines, dead, unreached,
        dialect,
    )  # fmt: skip


def _is_zsh(text: str, request: Request) -> bool:
    """Whether zsh runs the script, by its first line or the shell option of PBS or LSF."""
    named = request.values.get({"pbs": "S", "lsf": "L"}.get(request.scheduler, ""))
    first = text.partition("\n")[0]
    return bool(re.search(r"\bzsh\b", named or (first if first.startswith("#!") else "")))


def _end(commands: Sequence[Command]) -> int:
    """The number of commands up to an ``exit`` or ``exec PROGRAM`` that always runs; later ones do not run."""
    for number, command in enumerate(commands, 1):
        name = command.words[0].plain if command.words else ""
        ends = name == "exit" or (name == "exec" and len(command.words) > 1)
        beside = command.conditional or command.background or command.piped or command.fed
        if ends and not beside and all(kind == "group" for _, kind in command.blocks):
            return number
    return len(commands)
