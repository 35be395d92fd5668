"""Tables on a terminal keep to its width; elsewhere each row is one line."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pty
import re
import struct
import subprocess
import termios
from pathlib import Path

import click
import pytest

from stackyard.cli.tables import table, wrapped
from stackyard.yard.layout import Yard
from support import smallyard
from support.cli import STACKYARD, inside

LONG = "a-stack-whose-name-somebody-chose-in-a-hurry-and-kept"
COLUMNS = ("name", "", "when", "what")
GREEN = click.style("published", fg="green")
ROWS = [
    {"name": "one/1.0", "": "(D)", "when": "2026-11-23 18:00", "what": f"{GREEN}, by me"},
    {"name": "two/2.0", "": "", "when": "2026-11-23 18:01", "what": "/a/path/that/cannot/be/broken"},
]


def shown(room: int, *more: dict[str, str]) -> list[str]:
    return [click.unstyle(line) for line in table([*ROWS, *more], COLUMNS, room)]


@pytest.mark.parametrize("room", [0, 64, 200])
def test_a_table_that_fits_is_not_changed(room: int) -> None:
    assert shown(room) == [
        "name          when              what",
        "one/1.0  (D)  2026-11-23 18:00  published, by me",
        "two/2.0       2026-11-23 18:01  /a/path/that/cannot/be/broken",
    ]


def test_cells_are_broken_between_words_and_keep_their_colours() -> None:
    assert shown(55) == [
        "name          when        what",
        "one/1.0  (D)  2026-11-23  published, by me",
        "              18:00",
        "two/2.0       2026-11-23  /a/path/that/cannot/be/broken",
        "              18:01",
    ]
    assert GREEN in "".join(table(ROWS, COLUMNS, 55))


def test_what_a_row_is_about_is_never_broken() -> None:
    lines = shown(40, {"name": LONG, "": "(D)", "when": "", "what": "x"})
    assert lines[:3] == ["name", "    when        what", "one/1.0  (D)"] and f"{LONG}  (D)" in lines
    assert all(len(line) <= 40 for line in lines if LONG not in line)
    assert "/a/path/that/cannot/be/" in "".join(line.strip() for line in lines), "broken, where nothing else helps"


def test_every_word_of_a_cell_is_shown_whatever_the_width() -> None:
    for room in range(1, 100):
        text = re.sub(r"\s", "", "".join(shown(room)))
        assert all(part in text for row in ROWS for part in (row["name"], "18:0")), room
        assert sorted(text) == sorted(re.sub(r"\s", "", "".join(shown(0)))), room


@pytest.mark.parametrize(
    ("text", "room", "margin", "lines"),
    [
        ("  key    a b c", 11, 9, ["  key    a", "         b", "         c"]),
        ("  + a-name-that-is-too-long  for it", 10, 4, ["  + a-name-that-is-too-long", "    for it"]),
        ("a  b", 0, 2, ["a  b"]),
        ("", 10, 0, [""]),
    ],
)
def test_a_line_is_broken_between_words(text: str, room: int, margin: int, lines: list[str]) -> None:
    assert list(wrapped(text, room, margin)) == lines


@pytest.fixture
def yard(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Yard:
    monkeypatch.setenv("STACKYARD_SITE", str(smallyard.give_site(tmp_path, text="usage: {count: true}")))
    monkeypatch.setenv("STACKYARD_HOME", str(tmp_path / "yard"))
    yard = smallyard.make(tmp_path / "yard", "1.0", stack=LONG)
    smallyard.publish(yard, [smallyard.build(yard, "tool", "1.0")])
    inside("retire", LONG, "--on", "2030-01-01", "--use", "tool/1.0-py311-1")
    return yard


def on_a_terminal(columns: int, *words: str) -> str:
    """What a command line prints on a terminal of so many columns."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    environ = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "LINES")}
    with subprocess.Popen([STACKYARD, *words], stdout=theirs, stderr=theirs, stdin=theirs, env=environ):
        os.close(theirs)
        shown = b""
        with contextlib.suppress(OSError):  # the program has closed its side
            while text := os.read(ours, 4096):
                shown += text
    os.close(ours)
    return shown.decode()


VERBS = (("list", "--size", "--usage"), ("history",), ("history", "1"), ("show", LONG), ("usage",), ("show", "tool"))


@pytest.mark.parametrize("words", VERBS, ids=lambda words: " ".join(words)[:16])
def test_no_line_on_a_terminal_is_wider_than_it_but_for_one_word(yard: Yard, words: tuple[str, ...]) -> None:
    lines = [click.unstyle(line) for line in on_a_terminal(80, *words).splitlines()]
    wide = [line for line in lines if len(line) > 80]
    assert lines and not [line for line in wide if len(line.split("  ")[-1].split(" ")[-1]) < 60], wide
    piped = inside(*words).out
    assert any(len(line) > 80 for line in piped.splitlines()) or words[0] in ("usage", "history", "show")
    assert sorted(re.sub(r"\s", "", "".join(lines))) == sorted(re.sub(r"\s", "", piped))
