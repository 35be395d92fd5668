"""The names under which users' conda finds the prefixes of a generation: which, where, and that they flip with it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from stackyard.deploy import generation
from stackyard.deploy.generation import Step
from stackyard.expose.environments import names, write_environments
from stackyard.inputs.workspace import Workspace
from stackyard.yard.generation import generations
from stackyard.yard.kinds.adopted import AdoptedPrefix
from stackyard.yard.kinds.extension import BaseRevision
from stackyard.yard.kinds.payload import Form
from stackyard.yard.layout import Yard
from stackyard.yard.revision.manifest import State
from stackyard.yard.revision.record import BuildRecord
from support import smallyard, stackrecords
from support.cli import inside
from support.smallyard import TCL


def found(yard: Yard) -> dict[str, Path]:
    """What conda finds: the names in ``<yard>/envs``, and what is behind each."""
    return {path.name: path.resolve() for path in yard.envs.iterdir()} if yard.envs.is_dir() else {}


def change(yard: Yard, module: str, **values: object) -> None:
    """The next generation, with one entry changed."""

    def step(base: generation.Base) -> Step:
        entries = [replace(e, **values) if e.module == module else e for e in base.entries]  # type: ignore[arg-type]
        return Step(tuple(entries), "changed")

    with generation.draft(Workspace(TCL, yard)) as draft:
        draft.publish(step)


def written(yard: Yard, record: BuildRecord) -> dict[str, Path]:
    """The names and prefixes of a generation with one revision."""
    directory = yard.generation(1).envs
    write_environments(directory, [stackrecords.entry(record)], {record.module: record}, yard)
    return {path.name: path.resolve() for path in directory.iterdir()} if directory.is_dir() else {}


def test_conda_prefixes_have_names(tmp_path: Path) -> None:
    yard = Yard(tmp_path / "yard")
    record = stackrecords.record(yard, "tool", "1.0")
    assert written(yard, record) == {"tool-1.0-py311-1": Path(record.prefix)}


def test_an_adopted_conda_prefix_is_found_where_it_is(tmp_path: Path) -> None:
    yard = Yard(tmp_path / "yard")
    prefix = str(tmp_path / "opt" / "conda")
    record = stackrecords.record(yard, "tool", "1.0", adopted=AdoptedPrefix("conda", prefix, "0" * 64))
    assert written(yard, replace(record, prefix=prefix)) == {"tool-1.0-py311-1": Path(prefix)}


BASE = BaseRevision("/y", "base/1.0-py311-1", "0" * 64, "/y/stacks/base/1.0-py311-1/prefix")


@pytest.mark.parametrize(
    "values",
    [
        {"packages": stackrecords.PYTORCH[3:]},
        {"adopted": AdoptedPrefix("venv", "/opt/venv", "0" * 64)},
        {"base": BASE},
        {"form": Form("squashfs", file="image.sqsh")},
    ],
    ids=["pip alone", "a venv", "a layer", "an image"],
)
def test_what_conda_cannot_use_has_no_name(tmp_path: Path, values: dict[str, Any]) -> None:
    yard = Yard(tmp_path / "yard")
    assert written(yard, replace(stackrecords.record(yard, "tool", "1.0"), **values)) == {}


@pytest.mark.parametrize("values", [{"state": "withdrawn"}, {"hidden": True}])
def test_what_users_do_not_see_has_no_name(tmp_path: Path, values: dict[str, State | bool]) -> None:
    yard = Yard(tmp_path / "yard")
    smallyard.publish(yard, [smallyard.build(yard, "tool", "1.0"), smallyard.build(yard, "tool", "2.0")])
    change(yard, "tool/1.0-py311-1", **values)
    assert set(found(yard)) == {"tool-2.0-py311-1"}


def test_the_names_are_those_of_the_current_generation(tmp_path: Path) -> None:
    """One flip of `modules` publishes both: a reader never sees the names of one generation with modules of another."""
    yard = Yard(tmp_path / "yard")
    smallyard.publish(yard, [smallyard.build(yard, "tool", "1.0")])
    first = yard.modules.readlink()
    smallyard.publish(yard, [smallyard.build(yard, "tool", "2.0")])
    assert set(found(yard)) == {"tool-1.0-py311-1", "tool-2.0-py311-1"}
    yard.modules.unlink()
    yard.modules.symlink_to(first)
    assert set(found(yard)) == {"tool-1.0-py311-1"}


def test_the_next_publication_makes_the_link_where_a_killed_one_did_not(tmp_path: Path) -> None:
    yard = Yard(tmp_path / "yard")
    smallyard.publish(yard, [smallyard.build(yard, "tool", "1.0")])
    yard.envs.unlink()
    change(yard, "tool/1.0-py311-1", notice="changed")
    assert set(found(yard)) == {"tool-1.0-py311-1"}


def test_a_renamed_yard_keeps_the_names(tmp_path: Path) -> None:
    yard = Yard(tmp_path / "yard")
    smallyard.publish(yard, [smallyard.build(yard, "tool", "1.0")])
    moved = Yard(yard.root.rename(tmp_path / "moved"))
    assert found(moved) == {"tool-1.0-py311-1": moved.revision("tool", "1.0-py311-1").prefix}


def test_a_directory_in_the_place_of_the_link_is_kept(tmp_path: Path) -> None:
    yard = Yard(tmp_path / "yard")
    (yard.envs / "mine").mkdir(parents=True)
    smallyard.publish(yard, [smallyard.build(yard, "tool", "1.0")])
    assert [path.name for path in yard.envs.iterdir()] == ["mine"]
    assert generations.current_number(yard) == 1


def test_the_names_of_old_generations_go_with_their_modules(tmp_path: Path) -> None:
    yard = Yard(tmp_path / "yard")
    for version in ("1.0", "2.0", "3.0"):
        smallyard.publish(yard, [smallyard.build(yard, "tool", version)])
    inside("--yard", yard.root, "gc", "--keep", "1")
    assert [number for number in (1, 2, 3) if yard.generation(number).envs.is_dir()] == [2, 3]
    assert set(found(yard)) == {f"tool-{version}-py311-1" for version in ("1.0", "2.0", "3.0")}


def test_names_are_unique() -> None:
    prefixes = {"a/b-c": Path("/1"), "a-b/c": Path("/2")}
    assert names(prefixes) == {"a-b-c": Path("/2"), "a-b-c-": Path("/1")}


def test_an_entry_without_a_record_has_no_name(tmp_path: Path) -> None:
    yard = Yard(tmp_path / "yard")
    record = smallyard.build(yard, "tool", "1.0")
    smallyard.publish(yard, [record, smallyard.build(yard, "tool", "2.0")])
    for file in (yard.revision("tool", "1.0-py311-1").record, yard.revision("tool", "1.0-py311-1").spare):
        file.unlink(missing_ok=True)
    change(yard, "tool/2.0-py311-1", notice="changed")
    assert set(found(yard)) == {"tool-2.0-py311-1"}
