"""gc: what people do between the plan and the collection counts; a walk through large caches takes minutes."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from stackyard.inputs.sites.sitemodels import RemovalPolicy
from stackyard.upkeep.gc import collect
from stackyard.upkeep.gc.inuse import Watch
from stackyard.upkeep.gc.remove import Outcome
from stackyard.yard.generation import generations
from stackyard.yard.generation.origin import origin
from stackyard.yard.layout import Yard
from stackyard.yard.write import trash
from support import smallyard
from support.cli import inside

OLD = "tool/1.0-py311-1"
SITE = smallyard.TCL.model_copy(update={"removal": RemovalPolicy(grace_days=0, keep=0, failed_days=0)})


@pytest.fixture
def yard(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Yard:
    monkeypatch.setenv("STACKYARD_SITE", str(smallyard.give_site(tmp_path)))
    monkeypatch.setenv("STACKYARD_HOME", str(tmp_path / "yard"))
    return smallyard.make(tmp_path / "yard", "1.0", "2.0")


def planned(yard: Yard, keep: int = 0) -> collect.Plan:
    return collect.plan(Watch(SITE, yard), collect.Rules(keep))


def collected(yard: Yard, plan: collect.Plan) -> Outcome:
    return collect.collect(Watch(SITE, yard), plan, origin())


def states(yard: Yard) -> dict[str, str]:
    return {e.version: e.state for e in generations.entries(yard)}


def test_what_was_shown_again_after_the_plan_stays(yard: Yard) -> None:
    inside("withdraw", OLD)
    plan = planned(yard)
    assert [doomed.entry.module for doomed in plan.revisions] == [OLD]
    inside("withdraw", "--undo", OLD)
    inside("default", OLD)
    assert collected(yard, plan).kept == {OLD: ("what is published of it was changed meanwhile",)}
    assert smallyard.revision(yard, "1.0").prefix.exists()
    assert [e.module for e in generations.entries(yard) if e.default and e.pinned] == [OLD]


def test_what_was_published_after_the_plan_stays(yard: Yard) -> None:
    record = smallyard.build(yard, "tool", "7.0")
    plan = planned(yard)
    assert [doomed.entry.module for doomed in plan.revisions] == [record.module]
    smallyard.publish(yard, [record])
    assert record.module in collected(yard, plan).kept
    assert states(yard)["7.0"] == "published" and smallyard.revision(yard, "7.0").prefix.exists()


def test_what_is_not_retired_any_more_is_not_hidden(yard: Yard) -> None:
    inside("retire", OLD, "--on", "2026-01-01", "--use", "tool/2.0")
    hiding = SITE.removal.model_copy(update={"remove_days": 99_999})
    watch = Watch(SITE.model_copy(update={"removal": hiding}), yard)
    plan = collect.plan(watch, collect.Rules(0))
    assert plan.hide == [OLD]
    inside("retire", OLD, "--undo")
    collect.collect(watch, plan, origin())
    assert states(yard)["1.0"] == "published"


def test_what_is_shown_again_while_it_is_removed_stays(yard: Yard, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the moment between the last look at what is published and the generation without it."""
    inside("withdraw", OLD)
    plan, begin = planned(yard), trash.begin

    def late(yard: Yard, path: Path, what: trash.TrashNote) -> trash.Item:
        monkeypatch.setattr(trash, "begin", begin)
        inside("default", OLD)
        return begin(yard, path, what)

    monkeypatch.setattr(trash, "begin", late)
    revisions_only = replace(plan, garbage=[])
    assert OLD in collected(yard, revisions_only).kept
    assert states(yard)["1.0"] == "published" and smallyard.revision(yard, "1.0").prefix.exists()
    assert trash.items(yard) == [] and trash.interrupted(yard) == []
