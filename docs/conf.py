"""The documentation as a site: Sphinx with MyST, over the Markdown as it stands in the repository (`make docs`).

The pages are plain Markdown whose links work in a checkout too, so the source directory is the whole checkout (examples
have pages of their own) and the navigation is made from the lists of ``docs/index.md`` and ``docs/design/index.md``.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from stackyard import __version__

ROOT = Path(__file__).parents[1]

project = "Stackyard"
author = "the Stackyard authors"
copyright = author
release = version = __version__

extensions = ["myst_parser"]
root_doc = "docs/index"
include_patterns = [
    "docs/**.md",
    "examples/README.md",
    "examples/**/README.md",
    "README.md",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
]
exclude_patterns = [".*", "build", "src", "tests", "benchmarks", "scripts", "runs", "quickstart-yard"]
highlight_language = "text"
myst_heading_anchors = 4
myst_enable_extensions = ["html_image"]

html_theme = "furo"
html_title = f"Stackyard {release}"
html_copy_source = False
html_show_sphinx = False
html_extra_path = ["index.html"]
html_static_path = ["_static"]
html_css_files = ["docs.css"]
html_theme_options = {"top_of_page_buttons": []}

HEADING = re.compile(r"^## (.+)$", re.M)
ENTRY = re.compile(r"(?:^- |, |^  )\[[^\]]+\]\(([^)#\s]+\.md)\)", re.M)
LINK = re.compile(r"(?<!!)\[([^\]]+)\]\(([^)#\s:]+)(#[^)\s]*)?\)")


def listed(text: str) -> list[tuple[str, list[str]]]:
    """The pages that an index lists: each heading with the pages below it, or the whole list with the first one."""
    parts = HEADING.split(text)
    sections = list(zip(parts[1::2], parts[2::2], strict=True)) or [("", text)]
    return [(title, pages) for title, body in sections if (pages := ENTRY.findall(body))]


def navigation(text: str) -> str:
    """An index page with a hidden toctree for each of its lists."""
    trees = []
    for title, pages in listed(text):
        caption = [f":caption: {title}"] if title else []
        trees.append("\n".join(["```{toctree}", ":hidden:", ":titlesonly:", *caption, "", *pages, "```"]))
    return "\n\n".join([text, *trees])


def directories(text: str, place: Path) -> str:
    """Links to directories lead to their README; where they have none, which a checkout shows, only the words stay."""

    def led(match: re.Match[str]) -> str:
        target = place / match[2]
        if not target.is_dir():
            return match[0]
        return f"[{match[1]}]({match[2].rstrip('/')}/README.md)" if (target / "README.md").is_file() else match[1]

    return LINK.sub(led, text)


def read(app: Any, name: str, source: list[str]) -> None:
    """What a page is before it is parsed."""
    source[0] = directories(source[0], (ROOT / name).parent)
    if name in ("docs/index", "docs/design/index"):
        source[0] = navigation(source[0])


def setup(app: Any) -> dict[str, bool]:
    """Sphinx' door to this file."""
    app.connect("source-read", read)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
