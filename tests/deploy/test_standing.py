"""default, withdraw and retire: what users get by which name, through the command line and both module systems."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from stackyard.yard.generation import generations
from stackyard.yard.layout import Yard
from support import modules, smallyard
from support.cli import inside


@pytest.fixture
def yard(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Yard:
    monkeypatch.setenv("STACKYARD_SITE", str(smallyard.give_site(tmp_path)))
    monkeypatch.setenv("STACKYARD_HOME", str(tmp_path / "yard"))
    return smallyard.make(tmp_path / "yard", "1.0", "2.0", "3.0")


def default(yard: Yard) -> str:
    return next((e.module for e in generations.entries(yard) if e.default), "")


def state(yard: Yard, version: str) -> str:
    return next(e.state for e in generations.entries(yard) if e.version == version)


def test_a_default_stays_through_deploys_until_it_is_taken_back(yard: Yard) -> None:
    assert default(yard) == "tool/3.0-py311-1"
    assert "loads tool/1.0-py311-1 (before: tool/3.0-py311-1)" in inside("default", "tool/1.0").out
    smallyard.publish(yard, [smallyard.build(yard, "tool", "4.0")])
    assert default(yard) == "tool/1.0-py311-1"
    assert [e.aliases for e in generations.entries(yard) if e.version == "4.0"] == [("4.0-py311", "4.0")]
    inside("default", "tool/2.0")
    assert default(yard) == "tool/2.0-py311-1"
    inside("default", "tool", "--undo")
    assert default(yard) == "tool/4.0-py311-1"


def test_a_step_that_changes_nothing_publishes_nothing(yard: Yard) -> None:
    inside("default", "tool/1.0")
    number = generations.current_number(yard)
    assert "is the default already" in inside("default", "tool/1.0").out
    assert "is not withdrawn" in inside("withdraw", "tool/1.0", "--undo").out
    assert json.loads(inside("withdraw", "tool/1.0", "--dry-run", "--json").out)["dry_run"] is True
    assert generations.current_number(yard) == number


def test_a_withdrawn_revision_is_hidden_and_comes_back_either_way(yard: Yard) -> None:
    inside("withdraw", "tool/3.0")
    assert (default(yard), state(yard, "3.0")) == ("tool/2.0-py311-1", "withdrawn")
    assert (yard.modules / "tool/3.0-py311-1").exists(), "a shell that has it loaded unloads it"
    assert "no such revision" in inside("withdraw", "tool/3.0", "--undo", expect=2).err, "it has no short name"
    inside("withdraw", "tool/3.0-py311-1", "--undo")
    assert (default(yard), state(yard, "3.0")) == ("tool/3.0-py311-1", "published")
    inside("withdraw", "tool/1.0")
    inside("default", "tool/1.0-py311-1")
    assert (default(yard), state(yard, "1.0")) == ("tool/1.0-py311-1", "published")


def test_a_rollback_to_a_revision_takes_the_default_with_it(yard: Yard) -> None:
    inside("default", "tool/1.0")
    inside("rollback", "tool/2.0-py311-1")
    assert default(yard) == "tool/2.0-py311-1"


@pytest.mark.parametrize("words", ["--on tomorrow", "", "--on 2027-03-01 --undo", "--on 2027-03-01 --use tool/2.0",
                                   "--on 2027-03-01 --use x/1"])  # fmt: skip
def test_a_retirement_needs_a_day_and_another_module(yard: Yard, words: str) -> None:
    number = generations.current_number(yard)
    inside("retire", "tool/2.0", *words.split(), expect=2)
    assert generations.current_number(yard) == number


@pytest.mark.real
@pytest.mark.parametrize("system", modules.SYSTEMS)
@pytest.mark.parametrize("day", ["2020-02-29", "2999-12-31"])
def test_a_retired_module_warns_from_its_day_on(system: str, day: str, yard: Yard, tmp_path: Path) -> None:
    if reason := modules.missing(system, "bash"):
        pytest.skip(reason)
    with_lua = tmp_path / "site.yaml"
    with_lua.write_text("modules: {formats: [lua, tcl]}\n")
    inside("retire", "tool/1.0", "--on", day, "--use", "tool/3.0", STACKYARD_SITE=str(with_lua))
    assert f"retired {day}: use tool/3.0" in inside("list").out
    lines = (modules.initialise(system, "bash"), f"module use {yard.modules}", "module load tool/1.0; hello")
    environ = {"PATH": "/usr/bin:/bin", "HOME": str(tmp_path), "LANG": "C.UTF-8"}
    said = modules.run("bash", "\n".join(lines) + "\n", environ, tmp_path)
    assert "hello tool 1.0" in said
    assert ("tool/1.0-py311-1 is retired since 2020-02-29: use tool/3.0" in said) == (day < "2026")
    inside("retire", "tool/1.0", "--undo", STACKYARD_SITE=str(with_lua))
    assert "retired" not in modules.run("bash", "\n".join(lines) + "\n", environ, tmp_path)


def pinned(yard: Yard) -> list[str]:
    return [e.version for e in generations.entries(yard) if e.pinned]


def test_a_default_that_comes_back_does_not_replace_the_one_that_was_set_meanwhile(yard: Yard) -> None:
    inside("default", "tool/2.0")
    inside("remove", "tool/2.0")
    inside("default", "tool/1.0")
    told = inside("remove", "tool/2.0-py311-1", "--undo").err
    assert "tool loads tool/1.0-py311-1, not tool/2.0-py311-1, which was its default when it was removed" in told
    assert pinned(yard) == ["1.0"]
    inside("remove", "tool/1.0")
    assert "loads" not in inside("remove", "tool/1.0-py311-1", "--undo").err
    assert pinned(yard) == ["1.0"]


def test_a_default_that_a_rollback_withdraws_is_none_any_more(yard: Yard) -> None:
    smallyard.publish(yard, [smallyard.build(yard, "tool", "4.0")])
    inside("default", "tool/4.0")
    inside("rollback", "3")
    assert (state(yard, "4.0"), pinned(yard)) == ("withdrawn", [])
    smallyard.publish(yard, [smallyard.build(yard, "tool", "7.0")])
    inside("withdraw", "tool/4.0-py311-1", "--undo")
    assert default(yard) == "tool/7.0-py311-1"
