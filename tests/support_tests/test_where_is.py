"""The page "Where is ..." of CONTRIBUTING.md names the places where things are, and rooms stay small."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCES = ROOT / "src" / "stackyard"
ROW = re.compile(r"^\| (?P<what>[^|]+) \| `(?P<place>[^`]+)`(?P<more>[^|]*) \| `(?P<marker>[^|]+)` \|$", re.MULTILINE)
PAGE = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
SECTION = PAGE[PAGE.index("### Where is ...") : PAGE.index("## Words")]
ROWS = [match.groups() for match in ROW.finditer(SECTION)]


def test_twenty_rows_are_read() -> None:
    assert len(ROWS) == SECTION.count("\n| ") - 1 == 20


@pytest.mark.parametrize(("what", "place", "more", "marker"), ROWS, ids=[row[0] for row in ROWS])
def test_the_named_place_is_where_it_is(what: str, place: str, more: str, marker: str) -> None:
    assert marker in (SOURCES / place).read_text(encoding="utf-8"), f"{what}: {place} does not have {marker}"
    for other in re.findall(r"`([\w./]+/[\w./]*)`", more):
        assert (SOURCES / other).exists(), f"{what}: {other} does not exist"


def test_a_directory_has_twenty_files_at_most() -> None:
    sources = [path for path in SOURCES.rglob("*") if path.is_file() and path.parent.name != "__pycache__"]
    files = Counter(str(path.parent.relative_to(SOURCES)) for path in sources)
    assert files["launch/node"] > 10, "no sources found"
    assert {directory: count for directory, count in files.items() if count > 20} == {}
