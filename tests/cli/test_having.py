"""A job that does not find a module is told which published stacks have it."""

from __future__ import annotations

from pathlib import Path

from support import smallyard
from support.cli import stackyard


def test_stacks_with_the_module_are_named_and_hidden_ones_are_not(tmp_path: Path) -> None:
    yard = smallyard.make(tmp_path / "yard", "1.0", "2.0", "3.0")
    for version, module in (("1.0", "sigmoid"), ("3.0", "sigmoid"), ("2.0", "sigmoidal")):
        place = smallyard.revision(yard, version).prefix / "lib/python3.12/site-packages" / module
        place.mkdir(parents=True)
    stackyard("--yard", yard.root, "withdraw", "tool/3.0", cwd=tmp_path)
    words = ("--yard", yard.root, "launch", "-r", "1", "python3", "-S", "-c", "import sigmoid.layers")
    told = stackyard(*words, cwd=tmp_path, expect=1).err
    assert "cause: module sigmoid not found" in told
    assert " has it: --with tool/1.0" in told.partition("hint:")[2]
    assert "3.0" not in told.partition("hint:")[2] and "2.0" not in told.partition("hint:")[2]


def test_without_such_a_stack_the_usual_hint_stays(tmp_path: Path) -> None:
    yard = smallyard.make(tmp_path / "yard", "1.0")
    told = stackyard(
        "--yard", yard.root, "launch", "-r", "1", "python3", "-S", "-c", "import sigmoid", cwd=tmp_path, expect=1
    ).err
    assert "hint: use a stack that contains it" in told
