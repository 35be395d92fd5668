"""Every page of the documentation is in its index, and every link between pages leads to a file and to a heading.

`make docs` says so too, with Sphinx and in a quarter of a minute; this needs neither.
"""

from __future__ import annotations

import importlib.util
import re
from collections import Counter
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = sorted(
    [ROOT / "README.md", ROOT / "CHANGELOG.md", ROOT / "CONTRIBUTING.md"]
    + [page for pattern in ("docs/**/*.md", "examples/**/README.md") for page in ROOT.glob(pattern)]
)
INDEXES = ("docs/index.md", "docs/design/index.md")
FENCE = re.compile(r"(?ms)^( *)(```+|~~~+).*?^\1\2\s*$")
CODE = re.compile(r"(`+)(?!`).+?(?<!`)\1(?!`)", re.DOTALL)
LINK = re.compile(r"!?\[[^\]]*\]\(([^)\s]+)\)")
HEADING = re.compile(r"(?m)^#{1,6} +(.+?)\s*#*$")

_spec = importlib.util.spec_from_file_location("docs_conf", ROOT / "docs" / "conf.py")
assert _spec and _spec.loader
conf = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(conf)


def slug(heading: str) -> str:
    """The anchor that GitHub and MyST give a heading: what is shown of it, without punctuation, joined by hyphens."""
    shown = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading)
    return re.sub(r"[^\w\- ]", "", shown.lower()).strip().replace(" ", "-")


@cache
def anchors(page: Path) -> frozenset[str]:
    """The anchors of a page; a heading that another one above it has gets a number."""
    seen: Counter[str] = Counter()
    found = set()
    for heading in HEADING.findall(FENCE.sub("", page.read_text(encoding="utf-8"))):
        name = slug(heading)
        found.add(f"{name}-{seen[name]}" if seen[name] else name)
        seen[name] += 1
    return frozenset(found)


def broken(page: Path) -> list[str]:
    """The links of a page that lead nowhere, with the reason."""
    found = []
    for target in LINK.findall(CODE.sub("", FENCE.sub("", page.read_text(encoding="utf-8")))):
        if re.match(r"[a-z]+:", target):
            continue
        name, _, anchor = target.partition("#")
        other = page.parent / name if name else page
        if not other.exists():
            found.append(f"{target}: no such file")
        elif anchor and (other.suffix != ".md" or anchor not in anchors(other)):
            found.append(f"{target}: no such heading")
    return found


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_to_files_and_headings(page: Path) -> None:
    assert broken(page) == []


def test_a_broken_link_is_found(tmp_path: Path) -> None:
    (tmp_path / "other.md").write_text(
        "# A `code` title, with [a link](x.md)\n\n## Twice\n\n## Twice\n\n```\n# no\n```\n"
    )
    page = tmp_path / "page.md"
    page.write_text(
        "[1](other.md) [2](other.md#a-code-title-with-a-link) [3](other.md#twice-1) [4](#here) [5](no.md)\n"
        "[6](other.md#no) `[7](code.md)`\n```\n[8](fenced.md)\n```\n# Here\n[9](https://example.org/x#y)\n"
    )
    assert broken(page) == ["no.md: no such file", "other.md#no: no such heading"]


def test_each_page_is_in_one_index_once() -> None:
    listed = Counter(
        (ROOT / index).parent.joinpath(name).resolve()
        for index in INDEXES
        for _, names in conf.listed((ROOT / index).read_text(encoding="utf-8"))
        for name in names
    )
    pages = {*PAGES} - {ROOT / "docs/index.md"}
    assert pages - set(listed) == set(), "pages that no list of docs/index.md or docs/design/index.md has"
    assert set(listed) - pages == set() and {page for page, times in listed.items() if times > 1} == set()


def test_the_navigation_has_the_lists_of_the_index() -> None:
    text = "# T\n\n[not](listed.md)\n\n## One\n\n- [a](a.md): x\n- [b](b/c.md), [d](d.md),\n  [e](e.md)\n\n## No\n\nx\n"
    assert conf.listed(text) == [("One", ["a.md", "b/c.md", "d.md", "e.md"])]
    assert conf.navigation(text).endswith(
        "```{toctree}\n:hidden:\n:titlesonly:\n:caption: One\n\na.md\nb/c.md\nd.md\ne.md\n```"
    )
    assert conf.listed("# T\n\n- [a](a.md)\n") == [("", ["a.md"])]


def test_links_to_directories_lead_to_pages_of_the_site(tmp_path: Path) -> None:
    (tmp_path / "with").mkdir()
    (tmp_path / "with" / "README.md").touch()
    (tmp_path / "without").mkdir()
    text = "[a](with/) [b](without/) [c](page.md) ![d](with/) [e](https://example.org/)"
    assert conf.directories(text, tmp_path) == (
        "[a](with/README.md) b [c](page.md) ![d](with/) [e](https://example.org/)"
    )
