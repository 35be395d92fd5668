"""A skip is a failure where the real part is required; the tests run a pytest of their own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from support.realness import allowed

TESTS = Path(__file__).parents[1]
MODULE = """
import pytest
def test_passes(): pass
def test_gpu(): pytest.skip("no GPU on this machine")
@pytest.mark.skipif(True, reason="strace is not on this machine")
def test_marked(): pass
@pytest.mark.xfail(reason="known")
def test_known(): assert False
"""


def outcome(directory: Path, required: str, module: str = MODULE, *options: str) -> tuple[str, str]:
    (directory / "test_it.py").write_text(module)
    environ = {**os.environ, "STACKYARD_REQUIRE_REAL": required, "PYTHONPATH": str(TESTS)}
    argv = [sys.executable, "-m", "pytest", "-p", "support.realness", "-q", *options, directory]
    done = subprocess.run(argv, env=environ, capture_output=True, text=True, timeout=240, cwd=directory, check=False)
    return done.stdout.strip().splitlines()[-1].partition(" in ")[0], done.stdout


@pytest.mark.parametrize("required,expected", [
    ("", "1 passed, 2 skipped, 1 xfailed"),
    ("1", "1 passed, 1 skipped, 1 xfailed, 1 error"),
])  # fmt: skip
@pytest.mark.parametrize("options", [(), ("-n1",)])
def test_a_skip_fails_unless_it_is_allowed(
    tmp_path: Path, required: str, expected: str, options: tuple[str, ...]
) -> None:
    line, text = outcome(tmp_path, required, MODULE, *options)
    assert line == expected
    assert "no GPU on this machine" in text
    assert "strace is not on this machine" in text


def test_a_module_that_skips_itself_fails_too(tmp_path: Path) -> None:
    module = "import pytest\npytest.skip('lmod is not on this machine', allow_module_level=True)\n"
    assert outcome(tmp_path, "1", module)[0] == "1 error"
    assert outcome(tmp_path, "", module)[0] == "1 skipped"


def test_the_list_names_things_that_cannot_be_had_and_no_programs() -> None:
    assert allowed().search("no GPU here")
    assert not allowed().search("strace is not on this machine")
