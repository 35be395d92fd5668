"""`make quickstart`, run as it is: the stack is deployed, loaded as a module where Lmod is, and its two ranks agree."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest

from support import programs

ROOT = Path(__file__).parents[2]
SECONDS_AT_MOST = 120  # what is promised of a slow machine

pytestmark = [pytest.mark.slow, pytest.mark.real]


@pytest.fixture(scope="module")
def shown(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """The yard, and all that the quickstart printed."""
    yard = tmp_path_factory.mktemp("quickstart") / "yard"
    environ = {**os.environ, "QUICKSTART_YARD": str(yard)}
    done = subprocess.run(
        [ROOT / "scripts" / "quickstart.sh"], env=environ, capture_output=True, text=True, timeout=600, check=False
    )
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
    return yard, done.stdout + done.stderr


def test_two_ranks_agree_with_one(shown: tuple[Path, str]) -> None:
    assert "Heat is the same on 2 ranks as on one: yes" in shown[1]


def test_the_module_is_loaded_where_lmod_is(shown: tuple[Path, str]) -> None:
    yard, text = shown
    programs.need("lmod")
    assert re.search(r"\) quickstart/1\.0\S*-1", text)
    assert re.search(rf"^numpy \S+ from {re.escape(str(yard))}/stacks/quickstart/", text, re.MULTILINE)


def test_it_ends_with_what_was_made_where_how_fast_and_what_next(shown: tuple[Path, str]) -> None:
    yard, text = shown
    made, took, after = (text.index(f"\n{title}\n") for title in ("Created", "Took", "Next"))
    assert made < took < after
    assert "quickstart/1.0" in text[made:took]
    assert f"modulefiles in {yard}/modules" in text[made:took]
    assert f"module use {yard}/modules && module load quickstart" in text[after:]
    seconds = [float(number) for number in re.findall(r"^ *(\d+\.\d) s  ", text[took:after], re.MULTILINE)]
    assert len(seconds) >= 2
    assert sum(seconds) < SECONDS_AT_MOST


def test_a_second_run_builds_nothing_and_works(shown: tuple[Path, str]) -> None:
    yard = shown[0]
    environ = {**os.environ, "QUICKSTART_YARD": str(yard)}
    done = subprocess.run(
        [ROOT / "scripts" / "quickstart.sh"], env=environ, capture_output=True, text=True, timeout=600, check=False
    )
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
    assert [path.name for path in (yard / "stacks" / "quickstart").iterdir()] == ["1.0-py3-1"]
