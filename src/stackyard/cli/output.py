"""The output of results: errors with place, message and hint; tables; JSON."""

from __future__ import annotations

import errno
import json
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any, TextIO

import click

from stackyard.cli.tables import table, terminal_width, wrapped
from stackyard.cli.typed import as_typed
from stackyard.core.errors import ManyErrors, StackyardError
from stackyard.core.quoting import harmless, one_line

MOST_PROBLEMS = 25
"""How many problems are shown at once: a file of a wrong kind can have one in every line."""


UNWRITABLE = (errno.EPIPE, errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.ESTALE)
"""Errors of a stream that cannot be written."""


def _redacted(text: str) -> str:
    from stackyard.core.secrets import redacted  # late: `list` starts without its patterns

    return redacted(text)


@contextmanager
def only_shown() -> Iterator[None]:
    """Within a ``with`` block, errors of output streams do not end the program.

    After an error (a closed pipe, a full disk) the rest of the stream's output is discarded.
    """
    try:
        yield
    except OSError as error:
        if error.errno not in UNWRITABLE:
            raise
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError:
            _discard(stream)


def _discard(stream: TextIO) -> None:
    with suppress(OSError):  # a stream without a descriptor, in tests
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def echo(text: object = "", *, err: bool = False) -> None:
    """Print a line with unprintable characters and ends of lines escaped, so that no name can imitate our lines."""
    click.echo(one_line(str(text)), err=err)


def show_text(text: str, *, err: bool = False) -> None:
    """Print several lines, each `harmless`."""
    click.echo(harmless(text), err=err)


def emit(text: str) -> None:
    """Print a text unchanged, for storing or running: a script, a lock, a list of variables."""
    click.echo(text, nl=False)


def show_error(error: StackyardError) -> None:
    """Print one error, or several, on standard error: what failed, where and why, and a hint."""
    problems = error.problems if isinstance(error, ManyErrors) else (error,)
    for problem in problems[:MOST_PROBLEMS]:
        label = click.style("error:", fg="red", bold=True)
        place = f"{problem.where}: " if problem.where else ""
        show_message(f"{label} {_redacted(as_typed(place + problem.message))}", "error: ")
        if problem.detail:
            show_text(_indent(_redacted(click.unstyle(problem.detail)), "  | "), err=True)
        label = click.style("hint:", fg="cyan")
        for number, line in enumerate(_redacted(as_typed(problem.hint or "")).splitlines()):
            show_message(f"  {label} {line}" if number == 0 else f"  {line}", "  hint: " if number == 0 else "  ")
    if len(problems) > MOST_PROBLEMS:
        echo(f"... and {len(problems) - MOST_PROBLEMS} more problems", err=True)


def show_notice(text: str) -> None:
    """Print a sentence for the user on standard error; one that begins with ``warning:`` is labelled so."""
    label = "warning:" if text.startswith("warning:") else "note:"
    sentence = text.removeprefix(label).lstrip()
    show_message(f"{click.style(label, fg='yellow')} {_redacted(as_typed(sentence))}", f"{label} ")


def show_message(text: str, label: str) -> None:
    """Print a message on standard error, on a terminal broken between words.

    Args:
        label: the beginning of the message without colours, below whose end further lines begin.
    """
    for line in wrapped(one_line(text), terminal_width(err=True), len(label)):
        click.echo(line, err=True)


def show_json(value: Any) -> None:
    """Print a value as JSON on standard output."""
    text = _redacted(json.dumps(value, indent=2, ensure_ascii=False, default=str))
    click.echo("\n".join(line if line.isprintable() else _in_ascii(line) for line in text.split("\n")))


def _in_ascii(line: str) -> str:
    """A line of JSON with characters that a terminal would interpret escaped in its strings."""
    return "".join(letter if letter.isprintable() else json.dumps(letter)[1:-1] for letter in line)


def show_table(rows: Sequence[Mapping[str, str]], columns: Sequence[str]) -> None:
    """Print rows as columns of even width, with headings; on a terminal fitted to its width."""
    click.echo("\n".join(table(rows, columns, terminal_width())))


def _indent(text: str, margin: str) -> str:
    lines = text.splitlines() or [""]
    return "\n".join(margin + line for line in lines)
