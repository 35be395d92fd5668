"""Generations become visible in one step, and interrupted ones never do."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from stackyard.yard import generations
from stackyard.yard.layout import Yard
from stackyard.yard.record import Entry


def entry(module: str) -> Entry:
    return Entry("s", "1", "", 1, module, "/nowhere", "2026-01-01T00:00:00+00:00")


def publish(yard: Yard, module: str) -> None:
    made = generations.begin(yard)
    made.modules.mkdir()
    (made.modules / "file").write_text(module)
    generations.flip(yard, made, "now", module, (entry(module),))


def test_the_first_and_the_next(tmp_path: Path) -> None:
    yard = Yard(tmp_path)
    assert generations.current(yard) is None
    publish(yard, "a")
    publish(yard, "b")
    manifest = generations.current(yard)
    assert manifest is not None and (manifest.number, manifest.entries[0].module) == (2, "b")
    assert (yard.modules / "file").read_text() == "b"
    assert [m.number for m in generations.history(yard)] == [1, 2]


def test_what_was_not_flipped_is_removed(tmp_path: Path) -> None:
    yard = Yard(tmp_path)
    publish(yard, "a")
    (generations.begin(yard).root / "half").write_text("")
    assert generations.current_number(yard) == 1
    assert not (generations.begin(yard).root / "half").exists()


@pytest.mark.parametrize("point", ["write", "before-flip", "flip"])
def test_killed_before_the_flip_nothing_has_changed(tmp_path: Path, point: str) -> None:
    yard = Yard(tmp_path)
    publish(yard, "a")
    code = f"""
from pathlib import Path
from stackyard.yard import generations
from stackyard.yard.layout import Yard
yard = Yard(Path({str(tmp_path)!r}))
made = generations.begin(yard)
made.modules.mkdir()
generations.flip(yard, made, "now", "b", ())
"""
    killed = subprocess.run(
        [sys.executable, "-c", code], env={**os.environ, "STACKYARD_FAULT": f"{point}:1"}, check=False
    )
    assert killed.returncode == -9
    assert generations.current_number(yard) == 1
    assert (yard.modules / "file").read_text() == "a"
    publish(yard, "c")
    assert generations.current_number(yard) == 2
