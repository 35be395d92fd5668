"""The page about the command line, and the man pages, are what the commands say of themselves."""

import subprocess
import sys
from pathlib import Path

import pytest

from support import programs

ROOT = Path(__file__).parents[2]
MAN = ROOT / "docs" / "man"


@pytest.mark.parametrize("script", ["cli_reference.py", "man_pages.py"])
def test_the_pages_are_fresh(script: str) -> None:
    done = subprocess.run(
        [sys.executable, ROOT / "scripts" / script, "--check"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def test_man_shows_them_without_a_warning() -> None:
    programs.need("man")
    for page in (MAN / "stackyard.1", *sorted(MAN.glob("stackyard-*.1"))):
        done = subprocess.run(
            ["man", "--warnings", "-E", "UTF-8", "-l", page],
            env={"PATH": "/usr/bin:/bin", "MANWIDTH": "100", "LC_ALL": "C.UTF-8"},
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert done.returncode == 0 and done.stderr == "", page
        assert done.stdout.startswith(page.stem.upper()) and "SEE ALSO" in done.stdout
    shown = done.stdout
    assert "stackyard-wrap - " in shown.replace("\u2010", "-") and "--commands" in shown
