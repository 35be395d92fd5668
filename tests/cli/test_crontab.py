"""The crontab lines of the documentation work where cron runs them: without your variables and your PATH."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest

from stackyard.yard.layout import Yard
from support import smallyard
from support.cli import STACKYARD

ROOT = Path(__file__).parents[2]
_LINE = re.compile(r"(?<![\w/.-])(?:[\d*/,-]+ +){4}[\d*/,-]+ +(\S*stackyard\b[^`\n]*)")
PROGRAM, SITE, YARD = "/opt/stackyard/current/commands/stackyard", "/etc/stackyard/site.yaml", "/sw/stackyard"


def lines() -> list[tuple[str, str]]:
    """Each command of a crontab line, with the file that it is in."""
    files = [*ROOT.glob("docs/**/*.md"), *ROOT.glob("examples/**/*.md"), ROOT / "README.md"]
    return [(file.name, found[1].strip()) for file in sorted(files) for found in _LINE.finditer(file.read_text())]


def test_they_are_found() -> None:
    assert {name for name, _ in lines()} == {"operate.md", "remove.md", "fsck.md"} and len(lines()) >= 6
    assert _LINE.search("in its crontab: `17 3 * * * stackyard gc`, or")[1] == "stackyard gc"  # type: ignore[index]


@pytest.mark.parametrize("line", sorted({line for _, line in lines()}))
def test_each_works_without_anything_of_the_shell(line: str, tmp_path: Path) -> None:
    """As crontab(5) describes it: HOME, LOGNAME, SHELL and a short PATH, a line for /bin/sh, ``%`` is a new line."""
    assert "%" not in line and line.startswith(f"{PROGRAM} --site {SITE} --yard {YARD} "), "it names what cron lacks"
    yard: Yard = smallyard.make(tmp_path / "yard", "1.0", "2.0")
    site = smallyard.give_site(tmp_path, yard.root)
    left = yard.root / ".licences.json.ab12cd34.tmp"
    left.touch()
    os.utime(left, (0, 0))
    (tmp_path / "home").mkdir()
    for name, real in ((PROGRAM, STACKYARD), (SITE, site), (YARD, yard.root)):
        line = line.replace(f"{name} ", f"{real} ")
    words = [
        "env",
        "-i",
        f"HOME={tmp_path}/home",
        "LOGNAME=root",
        "SHELL=/bin/sh",
        "PATH=/usr/bin:/bin",
        "/bin/sh",
        "-c",
    ]
    done = subprocess.run([*words, line], cwd=tmp_path / "home", capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{done.stdout}{done.stderr}"
    if line.endswith(" gc"):
        assert "removed 1 temporary file" in done.stdout and not left.exists()
    else:
        assert "nothing is wrong in 2 revisions" in done.stdout
    assert not (tmp_path / "home" / ".local").exists(), "no other yard was looked at, or made"
