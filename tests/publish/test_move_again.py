"""A yard that is built again where it lies, and once more: what was there before never takes the place of what is."""

from __future__ import annotations

from pathlib import Path

import pytest

from stackyard.yard import generations, trash
from stackyard.yard.layout import Yard
from support import programs
from support.cli import inside

pytestmark = pytest.mark.real


@pytest.fixture
def moved(tmp_path: Path) -> Yard:
    """A yard that was renamed and built again there."""
    programs.need("lmod")
    deploy(tmp_path, Yard(tmp_path / "yard"), "1.0")
    return renamed(Yard(tmp_path / "yard"), "moved")


def deploy(folder: Path, yard: Yard, version: str) -> None:
    file = folder / "stack.yaml"
    file.write_text(f"name: tools\nversion: '{version}'\nmodules: {{variables: {{WORD: a}}}}\n")
    inside("--yard", yard.root, "deploy", file)


def renamed(yard: Yard, name: str) -> Yard:
    place = Yard(yard.root.rename(yard.root.with_name(name)))
    inside("--yard", place.root, "move", "--here")
    return place


def test_what_was_there_before_is_not_brought_back(moved: Yard, tmp_path: Path) -> None:
    before = generations.entries(moved)
    for words in ((), ("--dry-run",)):
        refused = inside("--yard", moved.root, "gc", "--undo", *words, expect=1).err
        assert "cannot bring back former/" in refused and "hint: look at it in " in refused
    assert not moved.former().root.exists() and generations.entries(moved) == before
    deploy(tmp_path, moved, "2.0")
    place = renamed(moved, "again")
    versions = {entry.version for entry in generations.entries(place) if entry.is_visible}
    assert versions == {"1.0", "2.0"}
    inside("--yard", place.root, "fsck")


def test_a_rest_of_an_earlier_move_stops_the_next_one_before_it_changes_anything(moved: Yard, tmp_path: Path) -> None:
    (item,) = (each for each in trash.items(moved) if each.origin.name == "generations")
    deploy(tmp_path, moved, "2.0")
    place = Yard(moved.root.rename(tmp_path / "again"))
    former = place.former()
    former.root.mkdir()
    content = place.thrown(item.folder.name) / item.content.name
    content.rename(former.generations)
    number = generations.current_number(place)
    refused = inside("--yard", place.root, "move", "--here", expect=1).err
    assert f"{former.generations} exists, from before an earlier move" in refused and "hint: " in refused
    assert generations.current_number(place) == number and not place.move_note.exists()
    former.root.rename(tmp_path / "looked at")
    inside("--yard", place.root, "move", "--here")
    assert {entry.version for entry in generations.entries(place) if entry.is_visible} == {"1.0", "2.0"}
