"""The directories of leases that nobody holds go, and nobody who takes one in that moment notices."""

from __future__ import annotations

import json
import os
import shutil
import signal
import threading
import time
from pathlib import Path

import pytest

from stackyard.deploy.writing import DeployLeases
from stackyard.host.run.identity import this_process
from stackyard.yard.layout import Yard
from stackyard.yard.write import idleleases, within
from stackyard.yard.write import lease as lease_module
from stackyard.yard.write.claim import claim
from stackyard.yard.write.lease import Pace, latest, lease, take

QUICK = Pace(beat_s=0.05, stale_s=60)
LONG_AGO = time.time() - 40 * 86400


@pytest.fixture
def yard(tmp_path: Path) -> Yard:
    return Yard(tmp_path / "yard")


def used(yard: Yard, name: str, times: int = 1) -> Path:
    directory = yard.lease(name)
    for _ in range(times):
        with lease(directory, name):
            pass
    return directory


def aged(directory: Path) -> Path:
    for path in (*directory.rglob("*"), directory):
        os.utime(path, (LONG_AGO, LONG_AGO))
    return directory


def test_only_what_nobody_holds_and_held_for_long_is_idle(yard: Yard) -> None:
    used(yard, "stack young")
    old = aged(used(yard, "stack old", 3))
    crashed = used(yard, "stack crashed")
    (crashed / "1" / "owner.json").write_text(json.dumps({**this_process().to_json(), "pid": 4_000_000}))
    with lease(yard.lease("stack held"), "it"):
        for each in (crashed, yard.lease("stack held")):
            aged(each)
        assert sorted(idleleases.idle(yard)) == sorted([old, crashed])
        assert not idleleases.remove(yard.lease("stack held")) and not idleleases.remove(yard.lease("stack young"))
        assert idleleases.remove(old) and idleleases.remove(crashed)
    assert sorted(os.listdir(yard.leases)) == ["stack%20held", "stack%20young"]
    assert latest(used(yard, "stack old")).number == 1


def test_who_looked_before_it_was_removed_does_not_claim_a_number_of_the_past(yard: Yard) -> None:
    directory = aged(used(yard, "stack it", 3))
    seen = latest(directory)
    assert idleleases.remove(directory)
    with lease(directory, "it") as held:
        assert take(directory, "it", seen) is None
        held.check()
        assert os.listdir(directory) == ["1"]


def test_who_prepares_a_claim_while_it_is_removed_begins_again(yard: Yard, monkeypatch: pytest.MonkeyPatch) -> None:
    directory, removed = aged(used(yard, "stack it", 3)), []
    claim = lease_module.claim

    def late(made: Path, name: Path) -> bool:
        if not removed:
            removed.append(name)
            directory.rename(directory.with_name(".gone"))
        return claim(made, name)

    monkeypatch.setattr(lease_module, "claim", late)
    with lease(directory, "it", pace=QUICK) as held:
        held.check()
        assert held.number == 1 and removed


def test_a_claim_that_was_lost_is_lost_also_where_the_winner_is_gone_by_then(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made, name, rename = tmp_path / "leases" / "made", tmp_path / "leases" / "1", os.rename
    for directory in (made, name):
        directory.mkdir(parents=True)
        (directory / "beat").touch()

    def late(old: Path, new: Path) -> None:
        try:
            rename(old, new)
        finally:
            shutil.rmtree(new)

    monkeypatch.setattr("stackyard.yard.write.claim.os.rename", late)
    assert not claim(made, name)


def test_who_was_taken_over_while_it_slept_puts_it_back(yard: Yard, monkeypatch: pytest.MonkeyPatch) -> None:
    directory, rename = aged(used(yard, "stack it")), within.rename

    def late(top: Path, old: Path, new: Path) -> None:
        if old == directory:
            monkeypatch.undo()
            assert take(directory, "it", latest(directory))
        rename(top, old, new)

    monkeypatch.setattr(within, "rename", late)
    assert not idleleases.remove(directory)
    assert latest(directory).number == 3 and not latest(directory).is_free


def test_threads_that_take_it_while_it_is_removed_hold_it_alone(yard: Yard, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(idleleases, "DAYS", -1)
    directory, inside, most, failures, over = yard.lease("stack it"), [0], [0], [], threading.Event()

    def hold() -> None:
        try:
            for _ in range(25):
                with lease(directory, "it", pace=QUICK) as held:
                    inside[0] += 1
                    most[0] = max(most[0], inside[0])
                    held.check()
                    inside[0] -= 1
        except Exception as error:
            failures.append(error)

    def remove() -> None:
        while not over.is_set():
            removals.append(idleleases.remove(directory))

    removals: list[bool] = []
    threads, remover = [threading.Thread(target=hold) for _ in range(3)], threading.Thread(target=remove)
    for each in (*threads, remover):
        each.start()
    for each in threads:
        each.join()
    over.set()
    remover.join()
    assert failures == [] and most == [1] and any(removals)


@pytest.mark.parametrize("error", [FileNotFoundError, FileExistsError])
def test_a_directory_that_is_removed_while_it_is_made_is_made_again(
    yard: Yard, monkeypatch: pytest.MonkeyPatch, error: type[OSError]
) -> None:
    """Path.mkdir says that it exists where it is gone again when it is looked at."""
    mkdir, raised = Path.mkdir, [error()]

    def once(path: Path, *words: object, **options: object) -> None:
        if raised:
            raise raised.pop()
        mkdir(path, *words, **options)  # type: ignore[arg-type]

    yard.leases.mkdir(parents=True, exist_ok=True)
    monkeypatch.setattr(Path, "mkdir", once)
    with lease(yard.lease("stack it"), "it", pace=QUICK) as held:
        held.check()
    assert not raised


@pytest.mark.parametrize("point", ["lease-taken", "lease-aside"])
def test_killed_while_it_is_removed(yard: Yard, point: str) -> None:
    directory = aged(used(yard, "stack it"))
    child = os.fork()
    if not child:
        os.environ["STACKYARD_FAULT"] = point
        idleleases.remove(directory)
        os._exit(0)
    assert os.waitpid(child, 0)[1] == signal.SIGKILL
    assert DeployLeases(yard, ()).is_alone
    with lease(directory, "it", pace=QUICK) as held:
        held.check()
    for each in yard.leases.iterdir():
        aged(each)
    idleleases.sweep(yard)
    assert os.listdir(yard.leases) == ["stack%20it"]
