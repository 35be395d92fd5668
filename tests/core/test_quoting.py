"""What another account chose is printed as text, on one line, whatever a terminal would make of it."""

from __future__ import annotations

import ast
import io
import json
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

import click
import pytest

import stackyard.cli
from stackyard.cli import output
from stackyard.cli.tables import table
from stackyard.core.errors import StackyardError
from stackyard.core.quoting import harmless, one_line, plain

HOSTILE = {
    "\x1b[2J\x1b[H": r"\x1b[2J\x1b[H",  # clear the screen
    "\x1b[8mhidden": r"\x1b[8mhidden",
    "\x9b31m": r"\x9b31m",  # the same in one byte
    "\x1b]0;title\x07": r"\x1b]0;title\x07",
    "a\rkept": r"a\rkept",
    "a\nerror: b": r"a\nerror: b",
    "a\tb": r"a\tb",
    "\u202egnp.exe": r"\u202egnp.exe",
    "\u2066a\u2069": r"\u2066a\u2069",
    "a\u200bb\ufeff": r"a\u200bb\ufeff",
    "\udcff": r"\xff",
    "half \ud800": r"half \ud800",
    "\U000e0001": r"\U000e0001",
    "a\u2028b": r"a\u2028b",
}


@pytest.mark.parametrize(("text", "shown"), HOSTILE.items())
def test_what_a_terminal_would_obey_is_escaped(text: str, shown: str) -> None:
    assert plain(text) == shown and plain(plain(text)) == shown, "what is plain stays as it is"
    assert one_line(text) == shown
    assert harmless(text) == shown.replace(r"\n", "\n").replace(r"\t", "\t")


def test_plain_text_of_every_language_stays_and_long_text_is_cut() -> None:
    for text in ("python3.12", "größe", "数据", "e\u0301", "a\\b"):
        assert plain(text) == harmless(text) == text
    assert plain("x" * 160) == "x" * 160 and plain("x" * 161) == "x" * 160 + "..."
    assert plain("\x1b" * 200) == r"\x1b" * 40 + "..." and plain("abc", 2) == "ab..."


def test_our_own_colours_stay_and_others_do_not() -> None:
    ours = click.style("a", bold=True) + click.style("b", fg="red", dim=False) + click.style("c", dim=True, fg="cyan")
    assert harmless(ours) == one_line(ours) == ours
    for other in ("\x1b[30m", "\x1b[8m", "\x1b[41m", "\x1b[1;30m", "\x1b[1A"):
        assert harmless(other) == other.replace("\x1b", r"\x1b")


@pytest.mark.parametrize("text", HOSTILE)
def test_no_way_of_printing_lets_it_through(text: str) -> None:
    """An error, a notice, a table, a line and JSON, whatever forgot to make it plain before."""
    said = io.StringIO()
    with redirect_stdout(said), redirect_stderr(said):
        output.show_error(StackyardError(f"cannot do {text}", hint=f"do {text}", detail=f"x {text}"))
        output.show_notice(text)
        output.echo(text)
        output.show_table([{"name": text}], ["name"])
        output.show_json({text: [text]})
    lines = said.getvalue().split("\n")
    assert all(line.replace("\t", " ").isprintable() for line in lines), lines
    assert not any(line.startswith("error: b") for line in lines)
    assert json.loads("\n".join(lines[lines.index("{") :])) == {text: [text]}
    assert len(list(table([{"name": text}], ["name"], 0))) == 2


DOORS = {"output.py", "tables.py", "findings.py", "display.py", "launchview.py", "main.py"}
"""launchview prints what ranks print, as it is; main only words of its own."""


def test_the_command_line_prints_through_its_doors_alone() -> None:
    for file in Path(stackyard.cli.__file__).parent.rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            name = ast.unparse(node.func) if isinstance(node, ast.Call) else ""
            direct = name in ("click.echo", "click.secho", "print", "sys.stdout.write", "sys.stderr.write")
            if direct and file.name not in DOORS:
                assert ast.unparse(node).startswith("print(line, file=sys.stderr") and file.name == "display.py", (
                    file, node.lineno,
                )  # fmt: skip
