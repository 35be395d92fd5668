"""What ``submit`` would do on the site of an example."""

from __future__ import annotations

from pathlib import Path

from support.cli import Done, inside

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


def submit(site: str, *words: str, expect: int = 0) -> Done:
    """``submit --dry-run train.py`` with these words."""
    file = EXAMPLES / site / "site.yaml"
    return inside("--site", file, "submit", *words, "--dry-run", "train.py", expect=expect)
