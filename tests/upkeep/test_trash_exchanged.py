"""What is exchanged with a link between two steps of a removal leads none of them elsewhere."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from stackyard.core.errors import StackyardError
from stackyard.yard import disk
from stackyard.yard.layout import Yard
from stackyard.yard.write import atomic, idleleases, trash
from support import smallyard


@pytest.fixture
def yard(tmp_path: Path) -> Yard:
    return smallyard.make(tmp_path / "yard", "1.0")


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    """What nothing may touch: a closed directory that looks like an entry of the trash."""
    place = tmp_path / "outside"
    for name in (trash.CONTENT, trash.DOOMED, "1.0-py311-1"):
        (place / name).mkdir(parents=True)
        (place / name / "file").write_text("kept")
    place.chmod(0o500)
    return place


def kept(outside: Path) -> bool:
    places = (trash.CONTENT, trash.DOOMED, "1.0-py311-1")
    files = [outside / name / "file" for name in places]
    return sorted(os.listdir(outside)) == sorted(places) and all(file.read_text() == "kept" for file in files)


def noted(yard: Yard) -> trash.Item:
    path = smallyard.revision(yard, "1.0").root
    return trash.begin(yard, path, trash.note_of("revision", yard, path, "b", module="tool/1.0-py311-1"))


def exchange(path: Path, outside: Path) -> None:
    path.rename(path.with_name(f"{path.name}-away"))
    path.symlink_to(outside)


def at_point(monkeypatch: pytest.MonkeyPatch, wanted: str, act: Callable[[], None]) -> None:
    def passed(name: str) -> None:
        if name == wanted:
            monkeypatch.undo()
            act()

    monkeypatch.setattr(atomic, "fault_point", passed)


def test_an_entry_before_the_move(yard: Yard, outside: Path) -> None:
    item = noted(yard)
    exchange(item.directory, outside)
    with pytest.raises(StackyardError, match=f"cannot remove .*: {item.directory} is a symbolic link"):
        trash.move(item)
    assert item.origin.is_dir() and kept(outside)
    trash.forget(item)
    assert not item.directory.is_symlink() and kept(outside)


@pytest.mark.parametrize("above", ["stacks", "stacks/tool"])
def test_a_directory_above_what_is_removed(yard: Yard, outside: Path, above: str) -> None:
    item = noted(yard)
    if above == "stacks":
        (outside.parent / "tool").symlink_to(outside)
    exchange(yard.inner(above), outside if above != "stacks" else outside.parent)
    with pytest.raises(StackyardError, match="is a symbolic link"):
        trash.move(item)
    assert kept(outside) and not item.content.exists()


def test_an_entry_before_the_deletion(yard: Yard, outside: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    item = noted(yard)
    trash.move(item)
    at_point(monkeypatch, "trash-doomed", lambda: exchange(item.directory, outside))
    trash.delete(item)
    assert kept(outside)
    assert not item.directory.is_symlink()
    assert not (item.directory.with_name(f"{item.directory.name}-away") / trash.DOOMED).exists()


def test_content_that_is_a_link(yard: Yard, outside: Path) -> None:
    item = noted(yard)
    trash.move(item)
    exchange(item.content, outside)
    trash.delete(item)
    assert kept(outside) and not item.directory.exists()


@pytest.mark.parametrize("above", ["stacks/tool", "trash"])
def test_what_is_on_the_way_back(yard: Yard, outside: Path, above: str) -> None:
    item = noted(yard)
    trash.move(item)
    exchange(yard.inner(above), outside)
    if above == "trash":
        (outside.parent / item.directory.name).symlink_to(outside)
    with pytest.raises(StackyardError, match=r"cannot bring back|being deleted"):
        trash.bring_back(item)
    assert kept(outside)


def test_a_name_that_leads_back_is_no_path(yard: Yard) -> None:
    for path in ("stacks/../../x", "stacks/tool/..", "stacks//tool", "stacks/./tool", "/etc/passwd"):
        with pytest.raises(ValueError, match="not in this yard"):
            trash._checked(trash.TrashNote("revision", path, "2026-01-01T00:00:00+00:00", "me", "b"))


def test_a_directory_of_a_cache_and_of_leases(yard: Yard, outside: Path) -> None:
    (yard.cache / "wheels").mkdir(parents=True)
    exchange(yard.cache / "wheels", outside)
    with pytest.raises(OSError):
        disk.remove_tree(yard.cache / "wheels" / trash.CONTENT, yard.root)
    disk.remove_tree(yard.cache / "wheels", yard.root)
    gone = yard.leases / ".x.0123456789ab"
    yard.leases.mkdir(exist_ok=True)
    gone.symlink_to(outside)
    os.utime(gone, (1, 1), follow_symlinks=False)
    os.utime(outside, (1, 1))
    idleleases.sweep(yard)
    assert kept(outside)
