"""The few exceptions of the program, distinguished by what the user can do.

    StackyardError 1 a failure, with its cause InputError 2 the command line or a file is wrong ChecksFailed 3 a check
        did not pass MissingError 4 something required is missing on this machine

Only `stackyard.cli` catches them: it prints ``error:``, the place, the message and the hint.
"""

from __future__ import annotations

import signal
from collections.abc import Sequence

from stackyard.core.late import dataclass


@dataclass(frozen=True, order=True)
class Where:
    """A place in an input file. `line` and `column` count from 1; 0 means the whole file."""

    file: str = ""
    line: int = 0
    column: int = 0

    def __str__(self) -> str:
        parts = [self.file, *(str(n) for n in (self.line, self.column) if n)]
        return ":".join(parts)

    @property
    def in_short(self) -> str:
        """File and line, as at the beginning of notices; only the file without a line."""
        return f"{self.file}:{self.line}" if self.line else self.file


class StackyardError(Exception):
    """What failed and why, where, and a hint.

    Args:
        message: ``what failed: why``, one sentence.
        where: the place in the user's file, if the cause is in one.
        hint: the remedy in the imperative; if possible a command to type.
        detail: kept output of a failing program, shown below the message.

    Attributes:
        shows_hint: its text has the hint, as it leaves the Python API.
    """

    exit_code = 1
    shows_hint = False

    def __init__(
        self, message: str, *, where: Where | None = None, hint: str | None = None, detail: str | None = None
    ) -> None:
        super().__init__(message)
        self.message = message
        self.where = where
        self.hint = hint
        self.detail = detail

    def __str__(self) -> str:
        text = f"{self.where}: {self.message}" if self.where else self.message
        return f"{text}\nhint: {self.hint}" if self.shows_hint and self.hint else text


class InputError(StackyardError):
    """The command line or a file is invalid; nothing was changed."""

    exit_code = 2


class ManyErrors(InputError):
    """Several problems of one input, all reported at once."""

    def __init__(self, problems: Sequence[StackyardError]) -> None:
        super().__init__(f"{len(problems)} problems found")
        self.problems = tuple(problems)

    def __str__(self) -> str:
        if not self.shows_hint:
            return self.message
        for problem in self.problems:
            problem.shows_hint = True
        return "\n".join((self.message, *map(str, self.problems)))


class ChecksFailed(StackyardError):
    """At least one check failed."""

    exit_code = 3


class MissingError(StackyardError):
    """A requirement is missing on this machine; the hint tells how to get it."""

    exit_code = 4


class StopSignal(BaseException):
    """A signal that asks the program to end; like an interrupt, it leaves time to clean up.

    Attributes:
        number: the number of the signal.
    """

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number

    def __str__(self) -> str:
        return f"ended by {signal.Signals(self.number).name}"


def cause(error: Exception) -> str:
    """Why a file cannot be read, for a message that names it: an OSError without its number and path."""
    return error.strerror if isinstance(error, OSError) and error.strerror else str(error)
