"""The names that shells complete: which a generation has, and that they flip and go with its modules."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from stackyard.deploy import generation
from stackyard.deploy.generation import Step
from stackyard.inputs.workspace import Workspace
from stackyard.yard.layout import Yard
from support import smallyard
from support.cli import inside
from support.smallyard import TCL


def test_the_names_are_those_of_the_current_generation(tmp_path: Path) -> None:
    yard = Yard(tmp_path / "yard")
    smallyard.publish(yard, [smallyard.build(yard, "tool", "1.0")])
    first = yard.modules.readlink()
    smallyard.publish(yard, [smallyard.build(yard, "other", "2.0")])
    assert yard.completed.read_text() == "r other/2.0-py311-1\nr tool/1.0-py311-1\ns other\ns tool\n"
    yard.modules.unlink()
    yard.modules.symlink_to(first)
    assert yard.completed.read_text() == "r tool/1.0-py311-1\ns tool\n"
    assert (
        yard.completed.stat().st_mode & 0o777
        == (yard.generation(1).modules / "tool/1.0-py311-1").stat().st_mode & 0o777
    )


def test_what_users_do_not_see_has_no_name(tmp_path: Path) -> None:
    yard = Yard(tmp_path / "yard")
    smallyard.publish(yard, [smallyard.build(yard, "tool", version) for version in ("1.0", "2.0", "3.0")])
    changes = {"tool/1.0-py311-1": {"hidden": True}, "tool/2.0-py311-1": {"state": "withdrawn"}}

    def step(base: generation.Base) -> Step:
        return Step(tuple(replace(e, **changes.get(e.module, {})) for e in base.entries), "changed")  # type: ignore[arg-type]

    with generation.draft(Workspace(TCL, yard)) as draft:
        draft.publish(step)
    assert yard.completed.read_text() == "r tool/3.0-py311-1\ns tool\n"


def test_the_names_of_old_generations_go_with_their_modules(tmp_path: Path) -> None:
    yard = Yard(tmp_path / "yard")
    for version in ("1.0", "2.0", "3.0"):
        smallyard.publish(yard, [smallyard.build(yard, "tool", version)])
    inside("--yard", yard.root, "gc", "--keep", "1")
    assert [number for number in (1, 2, 3) if yard.generation(number).names.exists()] == [2, 3]
    inside("--yard", yard.root, "rollback", "1")
    assert yard.completed.read_text() == "r tool/1.0-py311-1\ns tool\n"
