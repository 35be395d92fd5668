"""Two hosts whose clocks differ by ten minutes, and one whose clock was set back: what was done last counts as last."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest

from stackyard.host.run import clock
from stackyard.yard.generation import generations
from stackyard.yard.layout import Yard
from stackyard.yard.write import trash
from support import smallyard
from support.accounts import Accounts
from support.cli import inside

OnHost = Callable[[timedelta], None]
BEHIND = [timedelta(minutes=-10), timedelta(days=-1)]


@pytest.fixture
def host(monkeypatch: pytest.MonkeyPatch) -> OnHost:
    """Go on as a host whose clock differs by so much."""

    def go(difference: timedelta) -> None:
        monkeypatch.setattr(clock, "_shown", lambda timestamp: timestamp + difference.total_seconds())

    return go


@pytest.fixture
def yard(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Yard:
    monkeypatch.setenv("STACKYARD_SITE", str(smallyard.give_site(tmp_path)))
    monkeypatch.setenv("STACKYARD_HOME", str(tmp_path / "yard"))
    return smallyard.make(tmp_path / "yard", "1.0", "2.0", "3.0")


def states(yard: Yard) -> dict[str, str]:
    return {entry.version: entry.state for entry in generations.entries(yard)}


@pytest.mark.parametrize("behind", BEHIND, ids=str)
def test_the_last_removal_is_undone_whatever_the_clocks_say(yard: Yard, host: OnHost, behind: timedelta) -> None:
    inside("remove", "tool/1.0")
    host(behind)
    inside("remove", "tool/2.0")
    assert [item.what.module for item in trash.items(yard)] == ["tool/1.0-py311-1", "tool/2.0-py311-1"]
    inside("gc", "--undo")
    assert states(yard) == {"1.0": "removed", "2.0": "published", "3.0": "published"}


@pytest.mark.parametrize("behind", BEHIND, ids=str)
def test_a_grace_time_does_not_become_shorter_by_a_clock_that_is_behind(
    yard: Yard, host: OnHost, behind: timedelta, tmp_path: Path
) -> None:
    (tmp_path / "one").mkdir()
    site = {"STACKYARD_SITE": str(smallyard.give_site(tmp_path / "one", text="removal: {grace_days: 2}"))}
    inside("remove", "tool/1.0")
    host(behind)
    for _ in range(3):
        inside("gc", **site)
    assert trash.removed(yard)
    host(timedelta(days=2, minutes=1))
    inside("gc", **site)
    assert not trash.removed(yard)


FILE = "name: own\nversion: '{}'\nmodules: {{variables: {{WORD: a}}}}\n"


@pytest.mark.parametrize("behind", BEHIND, ids=str)
def test_what_is_rebuilt_by_a_host_that_is_behind_stays_the_newest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, host: OnHost, behind: timedelta
) -> None:
    yard, file = Yard(tmp_path / "yard"), tmp_path / "stack.yaml"
    monkeypatch.setenv("STACKYARD_SITE", str(smallyard.give_site(tmp_path)))
    file.write_text(FILE.format("1"))
    inside("--yard", yard.root, "deploy", file)
    host(behind)
    inside("--yard", yard.root, "deploy", file, "--rebuild")
    host(timedelta(0))
    inside("--yard", yard.root, "deploy", file)
    assert [e.module for e in generations.entries(yard) if e.default] == ["own/1-py3-2"]
    inside("--yard", yard.root, "deploy", file, "--accept-licence", "none")  # not from a memo
    assert [e.module for e in generations.entries(yard) if e.default] == ["own/1-py3-2"]


def test_what_a_host_that_is_behind_builds_later_is_shared(
    accounts: Accounts, common: Path, monkeypatch: pytest.MonkeyPatch, host: OnHost
) -> None:
    group, file, yard = accounts.group("astro"), common / "stack.yaml", Yard(common / "yard")
    monkeypatch.setenv("STACKYARD_SITE", str(smallyard.give_site(common)))
    file.write_text(FILE.format("1"))
    inside("--yard", yard.root, "deploy", file)
    inside("--yard", yard.root, "share", "own", "--with", f"group:{group}", "--later")
    host(timedelta(minutes=-10))
    file.write_text(FILE.format("2"))
    done = inside("--yard", yard.root, "deploy", file)
    assert f"own/2-py3-1 is shared with the group {group}" in done.out + done.err
