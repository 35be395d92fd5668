"""The messages of docs/howto/troubleshooting.md are the program's: each is a string of its sources, its names apart."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/howto/troubleshooting.md").read_text(encoding="utf-8")
ROWS = re.findall(r"^\| `([^`]+)` \|", PAGE, re.MULTILINE)
NAME = re.compile(r"\b(?!(?:YAML|CA|NUL|MPI|MPICH|PATH|PMI|SSL_CERT_FILE|Jinja)\b)[A-Z][A-Z]*\b")
"""What stands for something else on the page: a word in capitals that is not one of the message's own."""


@cache
def messages() -> str:
    """Every string of the program, one a line; what is filled in is a tab."""
    found = []
    for file in sorted((ROOT / "src" / "stackyard").rglob("*.py")):
        tree = ast.parse(file.read_text(encoding="utf-8"))
        inner = {id(part) for node in ast.walk(tree) if isinstance(node, ast.JoinedStr) for part in node.values}
        for node in ast.walk(tree):
            if isinstance(node, ast.JoinedStr):
                found.append("".join(str(p.value) if isinstance(p, ast.Constant) else "\t" for p in node.values))
            elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in inner:
                found.append(node.value)
    return "\n".join(text.replace("\n", " ") for text in found)


def pattern(message: str) -> str:
    """A message of the page as it is in the sources: a name is one or more fields, with their punctuation."""
    return "^" + "\t[\t ,:]*".join(map(re.escape, NAME.split(message)))


def test_the_rows_are_read() -> None:
    assert len(ROWS) > 40 and len(set(ROWS)) == len(ROWS) == PAGE.count("\n| `")


def test_each_message_is_in_the_sources() -> None:
    """In one test: the sources are parsed once, not by each worker."""
    assert [message for message in ROWS if not re.search(pattern(message), messages(), re.MULTILINE)] == []


def test_a_message_that_changed_is_found() -> None:
    assert not re.search(pattern("no such version in YARD: NAME"), messages(), re.MULTILINE)
    assert not re.search(pattern("no such revision at YARD"), messages(), re.MULTILINE)
