"""A command line in this process, as `stackyard.cli.main` runs it, with its output encoded as a terminal would."""

from __future__ import annotations

import io
import sys
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

import click

from stackyard.cli.main import cli
from stackyard.cli.output import show_error
from stackyard.core.errors import StackyardError


def stackyard(*words: str | Path) -> tuple[int, str]:
    """The exit status and all output of ``stackyard WORDS...``. An exception that `main` does not expect is raised.

    Raises:
        AssertionError: an error without a message, or one that no terminal can show.
    """
    stream = io.TextIOWrapper(io.BytesIO(), encoding="utf-8", write_through=True)
    with redirect_stdout(stream), redirect_stderr(stream):
        code = _run([str(word) for word in words])
    stream.flush()
    return code, stream.buffer.getvalue().decode()  # type: ignore[attr-defined]


def _run(words: list[str]) -> int:
    try:
        return int(cli.main(words, prog_name="stackyard", standalone_mode=False) or 0)
    except StackyardError as error:
        assert error.message.strip(), "an error without a message"
        show_error(error)
        return error.exit_code
    except click.ClickException as error:
        error.show(file=sys.stderr)
        return error.exit_code
    except OSError as error:
        print(error.strerror, file=sys.stderr)
        return 1
