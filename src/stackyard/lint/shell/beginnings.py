"""Whether a word known only at run time may contain options of its launch: ``srun $OPTIONS ./a``, ``srun $EXE``."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

from stackyard.lint.shell.scope import CHANGERS, SETTERS, ResolvedCommand
from stackyard.lint.shell.words import CLOSE, OPEN, is_known, shown, unknown


def plain_variables(commands: Iterable[ResolvedCommand]) -> dict[str, bool]:
    """Variables with only known values that do not begin with an option; and whether one may be empty.

    Such a variable is set in the branches of an ``if``: the branch is unknown, but the variable never has options.
    """
    values: dict[str, set[str]] = {}
    for resolved in commands:
        for name, text in _set_by(resolved):
            values.setdefault(name, set()).add(text.strip())
    sure = {name: texts for name, texts in values.items() if all(is_known(text) for text in texts)}
    return {name: "" in texts for name, texts in sure.items() if not any(text.startswith("-") for text in texts)}


def _set_by(resolved: ResolvedCommand) -> list[tuple[str, str]]:
    """The variables that a command sets for later ones, with their values."""
    words = resolved.command.words
    name = words[0].plain or "" if words else ""
    if name in CHANGERS:
        return [(word.plain or "", unknown("read")) for word in words[1:]]
    names = [assignment.name for assignment in resolved.command.assignments if not words]
    if name in SETTERS:
        names = [word.raw.partition("=")[0].rstrip("+") for word in words[1:] if "=" in word.raw]
        return [(variable, unknown(variable)) for variable in names]
    return [(variable, resolved.environment[variable].text) for variable in names]


def may_be_options(rest: Sequence[str], plain: Mapping[str, bool]) -> bool:
    """Whether the first words after a launch's options may be further options; ``$ENV/bin/python`` is a path."""
    for word in rest:
        if not word.startswith(OPEN) or word.partition(CLOSE)[2].startswith("/"):
            return False
        name = re.fullmatch(r"\$\{?(\w+)\}?", shown(word))
        if not name or name[1] not in plain:
            return True
        if not plain[name[1]]:
            return False
    return False
