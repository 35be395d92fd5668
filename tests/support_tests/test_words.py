"""Words that read as if translated occur neither in docstrings and messages nor in the reference (CONTRIBUTING.md)."""

from __future__ import annotations

import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TRANSLATED = re.compile(r"\b(?:nobody|somebody|whoever|there (?:is|are) no|is no (?!longer)\w+)\b", re.IGNORECASE)
RIGHT = (
    "there is no version of",  # uv's own message, which is parsed
    "root is nobody",  # the account of that name
    "or there is none",
    "There are no allocated resources for the application",  # Open MPI's
    "there is no package called",  # R's
)
"""Texts that have such a word for a reason."""
FILES = [
    *sorted((ROOT / "src").rglob("*.py")),
    *(path for room in ("docs", "examples") for path in sorted((ROOT / room).rglob("*.md"))),
    ROOT / "README.md",
]


def texts(path: Path) -> Iterator[tuple[int, str]]:
    """Line and text of each comment and string of a module; each line of any other file."""
    if path.suffix != ".py":
        yield from enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        return
    for token in tokenize.generate_tokens(io.StringIO(path.read_text(encoding="utf-8")).readline):
        if token.type in (tokenize.COMMENT, tokenize.STRING) or tokenize.tok_name[token.type] == "FSTRING_MIDDLE":
            yield from enumerate(token.string.splitlines(), token.start[0])


def found_in(path: Path) -> list[str]:
    """Each line with such a word, with its place."""
    hits = ((number, line) for number, line in texts(path) if TRANSLATED.search(line))
    return [f"{path}:{number}: {line.strip()}" for number, line in hits if not any(each in line for each in RIGHT)]


def test_no_text_reads_as_translated() -> None:
    found = [hit for path in FILES for hit in found_in(path)]
    assert not found, "\n" + "\n".join(found)


@pytest.mark.parametrize(
    "line",
    ['"""What nobody uses."""', 'x = "this is no list"', "y = 1  # there is no such file", 'f"{x}: whoever may"'],
)
def test_such_a_word_is_found(tmp_path: Path, line: str) -> None:
    path = tmp_path / "module.py"
    path.write_text(f'"""The rest is right: it is no longer used."""\n\n{line}\n')
    (hit,) = found_in(path)
    assert hit.startswith(f"{path}:3: ")
