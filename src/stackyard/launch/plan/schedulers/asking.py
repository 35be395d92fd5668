"""Asking a scheduler's client programs: one time limit, and an answer that may be a refusal."""

from __future__ import annotations

from collections.abc import Sequence

from stackyard.errors import MissingError
from stackyard.host.command import CommandError, Result, run

TIMEOUT_S = 60.0


def ask(argv: Sequence[str], *, check: bool = False) -> Result:
    """Run a client program. Raises MissingError, and CommandError when it hangs or (with `check`) fails."""
    try:
        return run(argv, timeout_s=TIMEOUT_S, check=check)
    except MissingError as error:
        raise MissingError(
            error.message, hint="work on a login node of the cluster, or load the scheduler's module"
        ) from error


def end(argv: Sequence[str], gone: Sequence[str]) -> None:
    """Run a program that ends a job; that it has ended already (words of `gone` in the answer) is no error."""
    result = ask(argv)
    if result.returncode and not any(word in result.output.lower() for word in gone):
        raise CommandError(f"{argv[0]} could not end job {argv[-1]}", result)


def signalled(code: int, number: int) -> int:
    """A shell's exit code for an exit code and a signal: 128 + signal after a signal."""
    return 128 + number if number else code
