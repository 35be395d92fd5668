"""The types of names and words in users' files: one declaration applies to every file and key.

Each is a `stackyard.core.grammar` as pydantic applies it; `inputs.reading.validate` turns its exceptions into errors
with places.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import date
from typing import Annotated, Any

from stackyard.core import grammar
from stackyard.core.late import dataclass
from stackyard.core.quoting import quoted

UNFILLED = "unfilled"
"""In the context of a validation: names of axes in braces are not replaced yet, and are checked later."""


@dataclass(frozen=True)
class _GrammarType:
    """A grammar in ``Annotated``, for pydantic and for `inputs.reading.acceptance`.

    `or_empty`: an empty text is the default, and means not set.
    """

    check: Callable[[str], object]
    or_empty: bool = False

    def accept(self, text: str) -> str:
        """The text itself. Raises ValueError."""
        if text or not self.or_empty:
            self.check(text)
        return text

    def __get_pydantic_core_schema__(self, source: Any, handler: Any) -> Any:
        """The schema of a text that has this grammar."""
        from pydantic_core import core_schema

        return core_schema.with_info_after_validator_function(self._apply, handler(source))

    def _apply(self, text: str, info: Any) -> str:
        later = bool(info.context and info.context.get(UNFILLED)) and "{" in text
        return text if later else self.accept(text)


def _label_of_axes(text: str) -> None:
    grammar.LABEL(re.sub(r"\{\w+\}", "0", text))


def _begins_with_a_date(text: str) -> None:
    if not _is_date(text.split(maxsplit=1)[0]):
        raise ValueError(f"{quoted(text)} does not start with a date: write e.g. 2026-12-31 use the module open-ce")


def _is_date(text: str) -> bool:
    try:
        return len(text) == 10 and bool(date.fromisoformat(text))
    except ValueError:
        return False


VariableName = Annotated[str, _GrammarType(grammar.SETTABLE)]
OptionalVariable = Annotated[str, _GrammarType(grammar.SETTABLE, or_empty=True)]
VariableRead = Annotated[str, _GrammarType(grammar.VARIABLE)]
"""A variable whose value is read, and that is not set."""

LoadedVariables = dict[Annotated[str, _GrammarType(grammar.LOADED)], Annotated[str, _GrammarType(grammar.VALUE)]]
"""Variables that a module sets for users."""

VariableValue = Annotated[str, _GrammarType(grammar.VALUE)]
Variables = dict[VariableName, VariableValue]
Text = Annotated[str, _GrammarType(grammar.VALUE)]
"""What users read: a summary, a notice, a help text."""

Deprecation = Annotated[Text, _GrammarType(_begins_with_a_date, or_empty=True)]
"""A date and a message."""

Program = Annotated[str, _GrammarType(grammar.PROGRAM)]
Command = Annotated[str, _GrammarType(grammar.COMMAND)]
"""A command of the stack."""

HostModule = Annotated[str, _GrammarType(grammar.MODULE)]
Alias = Annotated[str, _GrammarType(_label_of_axes)]
"""The name of an alias module; may hold names of axes in braces."""

Family = Annotated[str, _GrammarType(grammar.FAMILY, or_empty=True)]
Word = Annotated[str, _GrammarType(grammar.WORD, or_empty=True)]
RoleName = Annotated[str, _GrammarType(grammar.ROLE)]
JobName = Annotated[str, _GrammarType(grammar.JOB, or_empty=True)]
ArrayIndices = Annotated[str, _GrammarType(grammar.ARRAY, or_empty=True)]
Interface = Annotated[str, _GrammarType(grammar.INTERFACE)]
OptionalInterface = Annotated[str, _GrammarType(grammar.INTERFACE, or_empty=True)]
OptionalPath = Annotated[str, _GrammarType(grammar.PATH, or_empty=True)]
CollisionPath = Annotated[str, _GrammarType(grammar.INNER_PATH)]
"""A path of a package, relative to the prefix or to site-packages; ``*`` stands for any text."""

CollisionWinner = Annotated[str, _GrammarType(grammar.COLLISION_WINNER)]
"""The package whose file is taken; of two with one name, with what installs it: ``numpy (conda)``."""

StagedPath = Annotated[str, _GrammarType(grammar.PATH)]
InnerPath = Annotated[str, _GrammarType(grammar.INNER_PATH)]
WholePath = Annotated[str, _GrammarType(grammar.WHOLE_PATH)]
NodePath = Annotated[str, _GrammarType(grammar.NODE_PATH, or_empty=True)]
