"""What years leave behind does not slow what comes after them: generations and the trash are read as far as needed."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from stackyard.deploy import entries
from stackyard.inputs.models import Site
from stackyard.yard.generation import generations
from stackyard.yard.layout import Yard
from stackyard.yard.revision.directories import RevisionPaths
from stackyard.yard.write import trash
from support import smallyard
from support.cli import inside


@pytest.fixture
def yard(tmp_path: Path) -> Yard:
    return smallyard.make(tmp_path / "yard", *(f"{n}.0" for n in range(1, 7)))


def read(yard: Yard) -> list[int]:
    return [manifest.number for manifest in generations.complete(yard)]


def names(yard: Yard) -> set[str]:
    return {e.module for manifest in generations.complete(yard) for e in manifest.entries}


def test_the_newest_generation_lists_all_that_were_published(yard: Yard) -> None:
    assert read(yard) == [6]
    assert names(yard) == {e.module for m in generations.readable(yard) for e in m.entries}


def test_what_a_link_set_by_hand_left_out_is_read_too(yard: Yard) -> None:
    """The line of generations that went on from an older one does not list what came after that."""
    yard.modules.unlink()
    yard.modules.symlink_to("generations/3/modules")
    smallyard.publish(yard, [smallyard.build(yard, "tool", "9.0")])
    assert read(yard) == [7, 6]
    assert {f"tool/{n}.0-py311-1" for n in (1, 2, 3, 4, 5, 6, 9)} == names(yard)


@pytest.mark.parametrize("damaged", [6, 5, 4])
def test_a_damaged_manifest_hides_none_that_another_lists(yard: Yard, damaged: int) -> None:
    file = yard.generation(damaged).manifest
    file.write_text("{}")
    assert read(yard) == {6: [5], 5: [6, 4], 4: [6, 3]}[damaged]
    assert {f"tool/{n}.0-py311-1" for n in range(1, 6)} <= names(yard)


def test_a_format_that_does_not_name_the_generation_before_ends_a_line(yard: Yard, data: Path) -> None:
    yard.generation(2).manifest.write_bytes((data / "formats/manifest-1.json").read_bytes())
    assert read(yard) == [6, 1]


def test_the_trash_is_read_once_whatever_is_missing(yard: Yard, monkeypatch: pytest.MonkeyPatch) -> None:
    site = {"STACKYARD_SITE": str(smallyard.give_site(yard.root.parent))}
    for n in (1, 2, 3):
        inside("--yard", yard.root, "remove", f"tool/{n}.0", **site)
    (yard.stacks / "tool/4.0-py311-1").rename(yard.root.parent / "away")
    calls: list[Yard] = []

    def counted(of: Yard) -> dict[str, RevisionPaths]:
        calls.append(of)
        return removed(of)

    removed = trash.removed
    monkeypatch.setattr(trash, "removed", counted)
    found = entries.present(generations.entries(yard))
    states = [found[f"tool/{n}.0-py311-1"].state for n in range(1, 7)]
    assert states == ["removed"] * 3 + ["missing"] + ["published"] * 2
    assert calls == [yard]
    assert entries.entries_after(generations.entries(yard), Site(), []) and os.path.lexists(yard.modules)
