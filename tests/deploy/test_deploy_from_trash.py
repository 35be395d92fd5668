"""What was removed and is deployed again comes back from the trash; it is not built a second time."""

from __future__ import annotations

from pathlib import Path

import pytest

from stackyard.yard.layout import Yard
from stackyard.yard.revision import revisions
from stackyard.yard.revision.directories import RevisionPaths
from stackyard.yard.write import trash
from support import programs
from support.cli import inside, stackyard

pytestmark = pytest.mark.real


def _write(directory: Path, version: str, word: str = "a") -> Path:
    file = directory / "stack.yaml"
    file.write_text(f"name: tools\nversion: '{version}'\nmodules: {{variables: {{WORD: {word}}}}}\n")
    return file


@pytest.fixture
def yard(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Yard:
    """Two versions, of which the older one was removed."""
    programs.need("lmod")
    monkeypatch.setenv("STACKYARD_HOME", str(tmp_path / "yard"))
    for version in ("1.0", "2.0"):
        inside("deploy", _write(tmp_path, version))
    inside("remove", "tools/1.0")
    return Yard(tmp_path / "yard")


def _root(yard: Yard) -> Path:
    (directory,) = (each for each in yard.stack("tools").iterdir() if each.name.startswith("1.0"))
    return directory


def test_the_same_inputs_are_brought_back(yard: Yard, tmp_path: Path) -> None:
    (item,) = trash.items(yard)
    made = (item.content / "record.json").stat()
    (told,) = inside("deploy", _write(tmp_path, "1.0"), "--dry-run", "--json").value["revisions"]
    assert told["action"] == "publish" and trash.items(yard) == [item]
    done = inside("deploy", _write(tmp_path, "1.0"))
    assert f"{item.what.module} was in the trash, and is verified and published again" in done.out + done.err
    assert (_root(yard) / "record.json").stat().st_ino == made.st_ino and trash.items(yard) == []
    rows = {row["module"]: row["state"] for row in inside("list", "--json").value}
    assert rows[item.what.module] == "published"
    (again,) = inside("deploy", _write(tmp_path, "1.0"), "--json").value["revisions"]
    assert again["status"] == "unchanged"


def test_other_inputs_are_built_and_leave_the_trash_alone(yard: Yard, tmp_path: Path) -> None:
    inside("deploy", _write(tmp_path, "1.0", "b"))
    assert [item.what.module for item in trash.items(yard)] != [] and _root(yard).is_dir()


def test_what_was_removed_before_the_yard_was_moved_is_built_again(yard: Yard, tmp_path: Path) -> None:
    """Its files name the former path, so that it cannot be brought back."""
    (item,) = trash.items(yard)
    place = Yard(yard.root.rename(tmp_path / "moved"))
    inside("--yard", place.root, "move", "--here")
    refused = inside("--yard", place.root, "remove", item.what.module, "--undo", expect=1)
    assert f"its files name {yard.root}/" in refused.err and "deploy its file again" in refused.err
    inside("--yard", place.root, "deploy", _write(tmp_path, "1.0"))
    record = revisions.readable(RevisionPaths(_root(place)))
    assert record is not None and record.path == str(_root(place))
    stackyard("--yard", place.root, "run", record.module, "--", "true")


def test_a_deploy_that_was_killed_after_the_move_is_finished_by_the_next(yard: Yard, tmp_path: Path) -> None:
    (item,) = trash.items(yard)
    trash.bring_back(item, again=True)  # and killed here
    (done,) = inside("deploy", _write(tmp_path, "1.0"), "--json").value["revisions"]
    assert (done["module"], done["status"]) == (item.what.module, "published")
    inside("gc", "--dry-run")
    assert {row["state"] for row in inside("list", "--json").value} == {"published"}


def test_what_is_being_deleted_is_built_again(yard: Yard, tmp_path: Path) -> None:
    (item,) = trash.items(yard)
    item.content.rename(item.doomed)
    (done,) = inside("deploy", _write(tmp_path, "1.0"), "--json").value["revisions"]
    assert done["status"] == "published" and item.doomed.exists()


def test_what_a_killed_deploy_brought_back_is_not_published_without_a_verification(yard: Yard, tmp_path: Path) -> None:
    (item,) = trash.items(yard)
    trash.bring_back(item, again=True)  # and killed here
    inside("remove", "tools/2.0")  # which finishes what others began
    assert trash.interrupted(yard) == []
    rows = {row["module"]: row["state"] for row in inside("list", "--all", "--json").value}
    assert rows[item.what.module] != "published"
    (done,) = inside("deploy", _write(tmp_path, "1.0"), "--json").value["revisions"]
    assert (done["module"], done["status"]) == (item.what.module, "published")


def test_undo_after_a_deploy_that_was_killed_before_the_move_brings_it_back_as_it_was(yard: Yard) -> None:
    (item,) = trash.items(yard)
    (item.directory / trash.AGAIN).touch()  # and killed here
    inside("remove", item.what.module, "--undo")
    assert {row["state"] for row in inside("list", "--json").value} == {"published"}


def test_rebuild_builds_the_next_revision_whatever_is_there_or_in_the_trash(yard: Yard, tmp_path: Path) -> None:
    file = _write(tmp_path, "1.0")
    (told,) = inside("deploy", "--rebuild", file, "--dry-run", "--json").value["revisions"]
    (made,) = inside("deploy", "--rebuild", file, "--json").value["revisions"]
    assert (told["action"], made["status"], made["module"]) == ("build", "published", "tools/1.0-py3-2")
    assert [item.what.module for item in trash.items(yard)] == ["tools/1.0-py3-1"]
    (after,) = inside("deploy", file, "--json").value["revisions"]
    assert (after["status"], after["module"]) == ("unchanged", "tools/1.0-py3-2")
    (again,) = inside("deploy", "--rebuild", file, "--json").value["revisions"]
    assert again["module"] == "tools/1.0-py3-3"
