"""gc: what goes, what stays and why; killed at many points it ends as if nobody had killed it."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from stackyard.host.run.identity import this_process
from stackyard.inputs.models import Site
from stackyard.inputs.sites.sitemodels import CachePolicy
from stackyard.inputs.workspace import Workspace
from stackyard.upkeep.gc import garbage
from stackyard.yard.cache import notes
from stackyard.yard.cache.audit import audit
from stackyard.yard.cache.caches import CONDA
from stackyard.yard.generation import generations
from stackyard.yard.kinds.extension import BaseRevision
from stackyard.yard.layout import Yard
from stackyard.yard.others import children
from stackyard.yard.revision import revisions
from stackyard.yard.revision.record import PackageRecord
from stackyard.yard.write import atomic, trash
from support import smallyard, stackrecords
from support.accounts import Accounts
from support.cli import STACKYARD, inside

OLD = "tool/1.0-py311-1"
NOW = "removal: {grace_days: 0, keep: 1, failed_days: 0}\ncache: {max_age_days: 0}"


@pytest.fixture
def yard(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Yard:
    monkeypatch.setenv("STACKYARD_SITE", str(smallyard.give_site(tmp_path)))
    monkeypatch.setenv("STACKYARD_HOME", str(tmp_path / "yard"))
    return littered(smallyard.make(tmp_path / "yard", "1.0", "2.0", "3.0"))


def littered(yard: Yard) -> Yard:
    """The yard with one of each: a withdrawn revision, builds that ended early, leftovers, cache entries."""
    inside("withdraw", OLD)
    for version in ("4.0", "5.0", "6.0"):
        smallyard.publish(yard, [smallyard.build(yard, "tool", version)])
    smallyard.build(yard, "tool", "7.0")  # never published
    interrupted = yard.revision("tool", "8.0-py311-1")
    (interrupted.prefix / "lib").mkdir(parents=True)
    claim = interrupted.building / "1"
    claim.mkdir(parents=True)
    (claim / "owner.json").write_text(json.dumps({**this_process().to_json(), "pid": 4_000_000}))
    entry(yard, "unused-1.0-0")
    shared = entry(yard, "shared-1.0-0") / "file"
    os.link(shared, interrupted.root.parent / "2.0-py311-1" / "linked")
    (yard.conda / ".half").mkdir()
    (yard.stacks / "tool" / "mine").mkdir()
    (yard.stacks / "tool" / "mine" / "notes.txt").write_text("not made by stackyard")
    (yard.conda / "link-1.0-0").symlink_to("/etc")
    return yard


def entry(yard: Yard, stem: str) -> Path:
    directory = yard.package(stem)
    directory.mkdir(parents=True)
    (directory / "file").write_text("x" * 5000)
    notes.write(yard, CONDA, directory)
    return directory


def site(directory: Path, text: str) -> dict[str, str]:
    directory.mkdir(exist_ok=True)
    return {"STACKYARD_SITE": str(smallyard.give_site(directory, text=text))}


def planned(words: dict[str, str]) -> dict[str, Any]:
    value: dict[str, Any] = inside("gc", "--dry-run", "--json", **words).value
    return value


def test_what_goes_and_what_stays(yard: Yard, tmp_path: Path) -> None:
    words, before = site(tmp_path / "now", NOW), smallyard.files(yard.root)
    plan = planned(words)
    assert [r["entry"] for r in plan["revisions"]] == [OLD, "tool/7.0-py311-1"]
    assert [(r["bytes"] > 0, r["inodes"]) for r in plan["revisions"]] == [(True, 4), (True, 4)]
    found = {Path(g["path"]).relative_to(yard.root).as_posix(): g["sort"] for g in plan["garbage"]}
    assert found == {
        "stacks/tool/8.0-py311-1": "build", "cache/conda/.half": "leftover", "cache/conda/unused-1.0-0": "cache",
        **{f"generations/{n}/modules": "modules" for n in (1, 2, 3, 4, 5)},
    }  # fmt: skip
    assert smallyard.files(yard.root) == before, "a dry run writes nothing"
    done = inside("gc", "--json", **words).value
    assert {w["path"] for w in done["removed"]} == found.keys() | {"stacks/tool/1.0-py311-1", "stacks/tool/7.0-py311-1"}
    assert not smallyard.revision(yard, "1.0").root.exists() and yard.package("shared-1.0-0").exists()
    assert (yard.stacks / "tool/mine/notes.txt").read_text() == "not made by stackyard"
    assert {e.version: e.state for e in generations.entries(yard)} == {
        "1.0": "removed", **dict.fromkeys(("2.0", "3.0", "4.0", "5.0", "6.0"), "published"),
    }  # fmt: skip
    again = inside("gc", "--json", **words).value
    assert {w["path"] for w in again["deleted"]} == {w["path"] for w in done["removed"]}
    assert {i.what.sort for i in trash.items(yard)} <= {"modules"}, "those of before the first collection"
    assert (yard.conda / "link-1.0-0").is_symlink()
    assert {e.version: e.state for e in generations.entries(yard)}["1.0"] == "removed"
    smallyard.publish(yard, [smallyard.build(yard, "tool", "9.0")])
    inside("withdraw", "tool/9.0")
    assert {e.version: e.state for e in generations.entries(yard)}["1.0"] == "missing"


def test_it_waits_for_the_grace_time_and_can_be_undone(yard: Yard, tmp_path: Path) -> None:
    words = site(tmp_path / "week", "removal: {keep: 1, failed_days: 0}\ncache: {max_age_days: 0}")
    before = smallyard.files(yard.stacks)
    inside("gc", **words)
    assert planned(words)["delete"] == [] and len(planned(words)["waiting"]) == 10
    inside("gc", "--undo", **words)
    assert smallyard.files(yard.stacks) == before and trash.items(yard) == []
    assert {e.state for e in generations.entries(yard) if e.module == OLD} == {"withdrawn"}
    assert "nothing was put aside" in inside("gc", "--undo", expect=2, **words).err


def test_what_the_last_generations_showed_stays(yard: Yard, tmp_path: Path) -> None:
    words = site(tmp_path / "many", "removal: {failed_days: 999}")
    assert [r["entry"] for r in planned(words)["revisions"]] == [OLD]
    keeping = inside("gc", "--dry-run", "--json", "--keep", "5", **words).value
    assert keeping["revisions"] == [] and keeping["hide"] == []


def test_what_is_in_use_is_kept_and_named(yard: Yard, tmp_path: Path) -> None:
    words = site(tmp_path / "now", NOW)
    with subprocess.Popen([STACKYARD, "run", OLD, "--", "hello", "60"], stdout=subprocess.PIPE, text=True) as run:
        assert run.stdout and run.stdout.readline()
        assert any(f"process {run.pid}" in user for user in planned(words)["kept"][OLD])
        assert f"kept {OLD}: " in inside("gc", **words).out
        run.kill()
    assert smallyard.revision(yard, "1.0").prefix.exists()


def test_a_base_of_anothers_extension_is_kept(yard: Yard, tmp_path: Path) -> None:
    own = Yard(tmp_path / "own")
    old = smallyard.revision(yard, "1.0")
    record = smallyard.build(own, "mine", "1.0")
    base = BaseRevision(str(yard.root), OLD, "0", str(old.prefix))
    smallyard.revision(own, "1.0", "mine").record.unlink()
    revisions.mark(replace(record, base=base))
    smallyard.publish(own, [record])
    assert children.register(yard, own)
    words = site(tmp_path / "now", NOW)
    kept = {OLD: [f"base of mine/1.0-py311-1 in {own.root}"]}
    assert planned(words)["kept"] == kept
    inside("--yard", own.root, "remove", "mine")
    assert planned(words)["kept"] == kept, "it can be brought back"
    assert inside("--yard", own.root, "gc", **site(tmp_path / "zero", "removal: {grace_days: 0}")).out
    assert planned(words)["kept"] == {}


def test_a_retired_revision_is_hidden_and_then_removed(yard: Yard, tmp_path: Path) -> None:
    inside("retire", "tool/6.0", "--on", "2026-01-01", "--use", "tool/5.0")
    module = "tool/6.0-py311-1"
    hiding = site(tmp_path / "hide", "removal: {remove_days: 99999, keep: 99}")
    assert planned(hiding)["hide"] == [module]
    inside("gc", **hiding)
    assert {e.state for e in generations.entries(yard) if e.module == module} == {"withdrawn"}
    assert next(e.version for e in generations.entries(yard) if e.default) == "5.0"
    removing = site(tmp_path / "remove", "removal: {keep: 99}")
    inside("gc", **removing)
    assert {e.state for e in generations.entries(yard) if e.module == module} == {"removed"}
    assert "use tool/5.0" in (yard.modules / module).read_text()


def test_a_cache_keeps_its_size(yard: Yard, tmp_path: Path) -> None:
    for number in range(4):
        path = entry(yard, f"big-{number}-0")
        (path / "more").write_bytes(b"x" * 50_000)
    words = site(tmp_path / "size", "cache: {max_bytes: 130000}")
    gone = sorted(Path(g["path"]).name for g in planned(words)["garbage"] if g["sort"] == "cache")
    assert set(gone) >= {"big-0-0"} and "big-3-0" not in gone and "shared-1.0-0" not in gone


def test_indexes_of_channels_are_a_cache_too(yard: Yard, tmp_path: Path) -> None:
    yard.repodata.mkdir(parents=True)
    for name in ("6d78b7fe.json", "6d78b7fe.info.json", "6d78b7fe.lock", "be8a3ec7.shards-cache-v1"):
        (yard.repodata / name).write_text("{}")
    words = site(tmp_path / "now", NOW)
    gone = {Path(g["path"]).name for g in planned(words)["garbage"] if g["sort"] == "cache"}
    assert {"6d78b7fe.json", "be8a3ec7.shards-cache-v1"} <= gone and "6d78b7fe.lock" not in gone
    inside("gc", **words)
    assert sorted(os.listdir(yard.repodata)) == ["6d78b7fe.lock"]


def test_nothing_of_a_cache_goes_while_a_build_may_be_running(yard: Yard, tmp_path: Path) -> None:
    from stackyard.yard.write.lease import lease

    with lease(yard.lease("stack other"), "the stack other"):
        child = os.fork()  # a lease of this process is its own; another one sees it
        if not child:
            plan = planned(site(tmp_path / "now", NOW))
            os._exit(int(any(g["sort"] == "cache" for g in plan["garbage"]) or "caches" not in str(plan["unseen"])))
        assert os.waitpid(child, 0)[1] == 0


POINTS = [
    *(f"trash-noted:{n}" for n in range(1, 10)), *(f"trash-moved:{n}" for n in range(1, 10)),
    *(f"trash-delete:{n}" for n in range(1, 10)), *(f"trash-doomed:{n}" for n in range(1, 10)),
    *(f"write:{n}" for n in range(1, 18)), "remove-published:1", "before-flip:1", "flip:1", "after-flip:1",
]  # fmt: skip


def state(yard: Yard) -> tuple[object, ...]:
    """What is in the yard: its entries, what is in place, what is in the trash."""
    entries = {e.module: (e.state, e.default, e.aliases) for e in generations.entries(yard)}
    stacks = sorted(str(path.relative_to(yard.root)) for path in yard.stacks.glob("*/*"))
    return entries, stacks, sorted(os.listdir(yard.conda))


@pytest.mark.parametrize("points", [POINTS[::7], pytest.param(POINTS, marks=pytest.mark.rare)], ids=["some", "all"])
def test_killed_at_fifty_points(yard: Yard, tmp_path: Path, points: list[str]) -> None:
    """Killed in a collection that also deletes; whatever was visible works after it; the next ones finish the work."""
    words = site(tmp_path / "now", NOW)
    kept = tmp_path / "kept"
    subprocess.run(["cp", "-a", yard.root, kept], check=True)
    inside("gc", **words)
    inside("gc", **words)
    wanted, killed = state(yard), 0
    for point in points:
        shutil.rmtree(yard.root)
        subprocess.run(["cp", "-a", kept, yard.root], check=True)
        if point.startswith(("trash-delete", "trash-doomed")):
            inside("gc", **words)
        child = os.fork()
        if not child:
            inside("gc", STACKYARD_FAULT=point, **words)
            os._exit(0)
        killed += os.waitpid(child, 0)[1] == signal.SIGKILL
        for e in generations.entries(yard):
            assert not e.is_visible or smallyard.revision(yard, e.version).prefix.exists(), (point, e)
        for _ in range(3):
            inside("gc", **words)
        assert state(yard) == wanted, point
        assert trash.items(yard) == [] and trash.interrupted(yard) == [], point
    assert killed == len(points), "points that are not passed test nothing"


def test_a_compiled_wheel_stays_while_a_revision_has_it(tmp_path: Path) -> None:
    """Also the one for other prefixes, from which the next revision's is made."""
    yard = Yard(tmp_path / "yard")
    key, unused = "0123456789abcdef" * 4, "fedcba9876543210" * 4
    for name in (key, f"{key}-0123456789ab", unused, f"{unused}-0123456789ab"):
        directory = yard.wheels / name[:2] / name
        directory.mkdir(parents=True)
        (directory / "meta.json").write_text("{}")
    packages = (PackageRecord("horovod", "0.28.1", "pip", build=key[:12]),)
    record = stackrecords.record(yard, "hvd", "1", packages=packages)
    site = Site(cache=CachePolicy(max_age_days=0))
    plan = garbage.unshared(Workspace(site, yard), [record], children.Children())
    assert sorted(item.path.name for item in plan) == [unused, f"{unused}-0123456789ab"]


def test_at_once_if_asked_for(yard: Yard, tmp_path: Path) -> None:
    """Without a grace time, and without an age of what no revision shares; killed, the next one finishes it."""
    words = site(tmp_path / "late", "removal: {grace_days: 7, keep: 1, failed_days: 0}\ncache: {max_age_days: 30}")
    kept, kept_solution = tmp_path / "kept", yard.kept_lock("f" * 64)
    kept_solution.parent.mkdir(exist_ok=True)
    kept_solution.write_text("of no age")
    subprocess.run(["cp", "-a", yard.root, kept], check=True)
    told = inside("gc", "--dry-run", "--now", **words).out
    assert "unused-1.0-0" in told and "put aside, and deleted at once: " in told
    for point in ("", "trash-moved:2", "trash-doomed:1", "trash-doomed:3"):
        shutil.rmtree(yard.root)
        subprocess.run(["cp", "-a", kept, yard.root], check=True)
        if point:
            child = os.fork()
            if not child:
                inside("gc", "--now", STACKYARD_FAULT=point, **words)
                os._exit(0)
            assert os.waitpid(child, 0)[1] == signal.SIGKILL, point
        inside("gc", "--now", **words)
        assert not trash.items(yard) and not trash.interrupted(yard) and not list(yard.stacks.glob("*/1.0-*"))
        assert set(os.listdir(yard.conda)) == {"shared-1.0-0", "link-1.0-0"} and kept_solution.exists()
        assert {"2.0-py311-1", "6.0-py311-1", "mine"} <= set(os.listdir(yard.stacks / "tool"))
    assert "exclude each other" in inside("gc", "--now", "--undo", expect=2, **words).err


def test_two_collections_at_once(yard: Yard, tmp_path: Path) -> None:
    """Both end well, whoever gets what; together they do what one does."""
    words = site(tmp_path / "now", NOW)
    kept = tmp_path / "kept"
    subprocess.run(["cp", "-a", yard.root, kept], check=True)
    inside("gc", **words)
    wanted = state(yard)
    shutil.rmtree(yard.root)
    subprocess.run(["cp", "-a", kept, yard.root], check=True)
    both = [subprocess.Popen([STACKYARD, "gc"], env={**os.environ, **words}, stdout=-3, stderr=-1) for _ in range(2)]
    said = [process.communicate(timeout=240)[1].decode() for process in both]
    assert [process.returncode for process in both] == [0, 0], said
    inside("gc", **words)
    assert state(yard) == wanted


def test_a_collection_may_delete_what_another_one_puts_aside(yard: Yard) -> None:
    """In the moment before it notes that nothing uses it."""
    path = yard.package("unused-1.0-0")
    item = trash.put(yard, path, trash.note_of("leftover", yard, path, "batch"))
    trash.delete(item)
    assert not item.directory.exists()
    trash.settle(item)


def test_a_link_to_what_another_account_had_is_no_damage(yard: Yard, tmp_path: Path) -> None:
    """Of a package in a colleague's part of the cache, which was collected there: the next build replaces the link."""
    part = Yard(yard.root, account="4711")
    part.conda.mkdir(parents=True)
    part.package("unused-1.0-0").symlink_to(yard.package("unused-1.0-0"))
    inside("gc", **site(tmp_path / "now", NOW))
    assert not yard.package("unused-1.0-0").exists() and part.package("unused-1.0-0").is_symlink()
    assert not [text for text in audit(yard) if "unused" in text]


def test_a_full_disk_stops_it_and_breaks_nothing(yard: Yard, tmp_path: Path) -> None:
    words = site(tmp_path / "now", NOW)
    planned(words)  # the site is kept in a cache of its own
    for number in (1, 2, 4, 7, 11):
        atomic._hits.clear()
        done = inside("gc", STACKYARD_FAULT=f"write:{number}:enospc", expect=None, **words)
        assert "no space left" in (done.out + done.err).lower(), number
        for e in generations.entries(yard):
            assert not e.is_visible or smallyard.revision(yard, e.version).prefix.exists(), number
        inside("gc", "--undo", expect=None, **words)
    inside("gc", **words)
    assert {e.version: e.state for e in generations.entries(yard)}["1.0"] == "removed"


def test_what_another_account_owns_stays(accounts: Accounts, common: Path) -> None:
    """A shared yard: staff can move a colleague's revision aside, and only its owner or root can delete its files."""
    anna, bert = accounts.user("anna", "staff", umask=0o002), accounts.user("bert", "staff", umask=0o002)
    place = common / "sw"
    place.mkdir()
    yard = smallyard.make(place / "yard", "1.0", "2.0")
    subprocess.run(["chown", "-R", f"{anna.uid}:{anna.groups[0]}", place], check=True)
    subprocess.run(["find", place, "-type", "d", "-exec", "chmod", "g+s", "{}", "+"], check=True)
    subprocess.run(["chmod", "-R", "g+w", place], check=True)
    policy = f"permissions: {{group: {accounts.group('staff')}, umask: '0002'}}\nremoval: {{grace_days: 0}}"
    policy += f"\nuser_yard: {common}/users/$USER/yard"  # none of these is closed
    given = ("--site", smallyard.give_site(common, yard.root, policy), "--yard", yard.root)
    prefix = smallyard.revision(yard, "1.0").prefix
    for directory in (prefix / "bin", prefix / "share", prefix):
        directory.chmod(0o2555)
    assert f"removed {OLD}" in bert.stackyard(*given, "remove", OLD).out
    told = bert.stackyard(*given, "gc")
    assert "cannot delete" in told.out and f"belongs to {anna.name}" in told.out, told
    assert "other processes of this host" in told.err
    assert len(trash.items(yard)) == 1
    assert "deleted" in anna.stackyard(*given, "gc").out
    assert trash.items(yard) == []


def test_the_defaults_keep_what_was_published_a_moment_ago(yard: Yard) -> None:
    assert Site().removal.keep == 3 and Site().removal.grace_days == 7
    assert {g["sort"] for g in planned({})["garbage"]} == {"build", "leftover", "modules"}
