"""Running a scheduler's client programs, with a timeout."""

from __future__ import annotations

import re
from collections.abc import Sequence

from stackyard.core.errors import InputError, MissingError
from stackyard.host.run.command import CommandError, Result, run

TIMEOUT_S = 60.0
_JOB = re.compile(r"\w[\w.\[\]-]*")
"""Ids of jobs and of array tasks: ``1234_5``, ``1234[5].server``, ``ƒ2Xy9``."""


def ask(argv: Sequence[str], *, check: bool = False) -> Result:
    """Run a client program. Raises MissingError, and CommandError if it times out or (with `check`) fails."""
    try:
        return run(argv, timeout_s=TIMEOUT_S, check=check, leaves_others=True)
    except MissingError as error:
        raise MissingError(
            error.message, hint="use a login node of the cluster, or load the scheduler's module"
        ) from error


def end(argv: Sequence[str], gone: Sequence[str]) -> None:
    """Run a program that cancels a job; not an error if the job has ended (output contains a word of `gone`).

    Raises:
        InputError: the last word is not the id of a job: an option such as ``--me`` would cancel others.
    """
    if not _JOB.fullmatch(argv[-1]):
        raise InputError(f"{argv[-1]!a} is not the id of a job", hint="its status.json is damaged")
    result = ask(argv)
    if result.returncode and not any(word in result.output.lower() for word in gone):
        raise CommandError(f"{argv[0]} failed to cancel job {argv[-1]}", result)


def signalled(code: int, number: int) -> int:
    """A shell's exit code for an exit code and a signal: 128 + signal after a signal."""
    return 128 + number if number else code
