"""The page "Where is ..." of CONTRIBUTING.md names the places where things are, and rooms stay small."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCES = ROOT / "src" / "stackyard"
ROW = re.compile(r"^\| (?P<what>[^|]+) \| `(?P<place>[^`]+)`(?P<more>[^|]*) \| `(?P<marker>[^|]+)` \|$", re.MULTILINE)
PAGE = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
SECTION = PAGE[PAGE.index("### Where is ...") : PAGE.index("## Words")]
ROWS = [match.groups() for match in ROW.finditer(SECTION)]
MORE_THAN_TWENTY = {"launch/node": 26}
"""Directories with more modules than a drawer should have, and how many: they may only become fewer."""


def test_twenty_rows_are_read() -> None:
    assert len(ROWS) == SECTION.count("\n| ") - 1 == 20


@pytest.mark.parametrize(("what", "place", "more", "marker"), ROWS, ids=[row[0] for row in ROWS])
def test_the_named_place_is_where_it_is(what: str, place: str, more: str, marker: str) -> None:
    assert marker in (SOURCES / place).read_text(encoding="utf-8"), f"{what}: {place} does not have {marker}"
    for other in re.findall(r"`([\w./]+/[\w./]*)`", more):
        assert (SOURCES / other).exists(), f"{what}: {other} does not exist"


def test_a_directory_has_twenty_modules_at_most() -> None:
    found = {
        str(directory.relative_to(SOURCES)): count
        for directory in [SOURCES, *(path.parent for path in SOURCES.rglob("__init__.py"))]
        if (count := len([path for path in directory.glob("*.py") if path.name not in ("__init__.py", "api.py")])) > 20
    }
    assert found == MORE_THAN_TWENTY
