"""A yard that is built again where it lies, and once more: what was there before never takes the place of what is."""

from __future__ import annotations

from pathlib import Path

import pytest

from stackyard.host.run.identity import whoami
from stackyard.yard.generation import generations
from stackyard.yard.layout import Yard
from stackyard.yard.write import trash
from support import programs
from support.cli import inside

pytestmark = pytest.mark.real


@pytest.fixture
def moved(tmp_path: Path) -> Yard:
    """A yard that was renamed and built again there."""
    programs.need("lmod")
    deploy(tmp_path, Yard(tmp_path / "yard"), "1.0")
    return renamed(Yard(tmp_path / "yard"), "moved")


def deploy(directory: Path, yard: Yard, version: str) -> None:
    file = directory / "stack.yaml"
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
    content = place.thrown(item.directory.name) / item.content.name
    content.rename(former.generations)
    number = generations.current_number(place)
    refused = inside("--yard", place.root, "move", "--here", expect=1).err
    assert f"{former.generations} exists, from before an earlier move" in refused and "hint: " in refused
    assert generations.current_number(place) == number and not place.move_note.exists()
    former.root.rename(tmp_path / "looked at")
    inside("--yard", place.root, "move", "--here")
    assert {entry.version for entry in generations.entries(place) if entry.is_visible} == {"1.0", "2.0"}


def test_a_move_that_is_done_is_called_done(tmp_path: Path) -> None:
    """From where, when and by whom; what the old yard published since is not forgotten, and its path may be gone."""
    programs.need("lmod")
    old, new = Yard(tmp_path / "old"), Yard(tmp_path / "new")
    deploy(tmp_path, old, "1.0")
    inside("--yard", old.root, "move", new.root)
    done = generations.current(new)
    assert done is not None and done.reason == f"move from {old.root}"
    when = f"its move from {old.root} on {done.created[:16].replace('T', ' ')} by {whoami()} (generation {done.number})"

    def refused(*words: str | Path, yard: Yard = old) -> str:
        return inside("--yard", yard.root, "move", *words, expect=2).err

    for words in ((new.root,), (new.root, "--dry-run")):
        said = refused(*words)
        assert f"error: {old.root} was moved to {new.root} already: {when}\n" in said
        assert f"hint: use it: stackyard --yard {new.root} list; remove {old.root} once it is no longer used" in said
    for place in (new.root, "--here"):
        assert f"{new.root} is where it was built, since {when}: nothing to do" in refused(place, yard=new)
    for version in ("2.0", "3.0"):
        deploy(tmp_path, old, version)
    said = refused(new.root)
    assert f"{old.root} has published generation {generations.current_number(old)} since: do the same in " in said
    old.root.rename(tmp_path / "away")
    assert f"already: {when}\n  hint: use it: stackyard --yard {new.root} list\n" in refused(new.root)
    old.root.symlink_to(new.root)
    assert f"already: {when}\n  hint: use it: stackyard --yard {new.root} list\n" in refused(new.root)
    old.root.unlink()
    assert f"{tmp_path}/away was moved to {new.root} already" in refused(new.root, yard=Yard(tmp_path / "away"))
    deploy(tmp_path, Yard(tmp_path / "other"), "1.0")
    assert "it holds " in refused(new.root, yard=Yard(tmp_path / "other")), "which was not moved there"
