"""Renewing a lock as users type it: what is deleted, what is kept in a yard, what a merge leaves."""

from __future__ import annotations

from pathlib import Path

import pytest

from stackyard.host.machine.platforms import this_platform
from support.accounts import Accounts
from support.channel import Package, make_channel
from support.cli import stackyard

HERE = this_platform()
FIRST = (Package("lib", "1.0", subdir=HERE), Package("tool", "1.0", subdir=HERE, depends=("lib",)))
SECOND = (*FIRST, Package("lib", "1.1", subdir=HERE), Package("other", "1.0", subdir=HERE, depends=("lib",)))


@pytest.fixture
def channel(common: Path) -> Path:
    return make_channel(common / "channel", FIRST)


@pytest.fixture
def file(common: Path, channel: Path) -> Path:
    (common / "project").mkdir()
    return write(common / "project" / "environment.yml", channel, "tool")


def write(file: Path, channel: Path, *specs: str) -> Path:
    file.write_text(f"name: demo\nchannels: [{channel.as_uri()}]\ndependencies: [{', '.join(specs)}]\n")
    return file


def lines(text: str) -> list[str]:
    return [line.strip() for line in text.splitlines()]


def test_a_deleted_lock_is_solved_again_and_update_renews(file: Path, channel: Path, common: Path) -> None:
    words = ("--yard", common / "yard", "lock", file)
    stackyard(*words)
    lock = Path(f"{file}.lock")
    first = lock.read_text()
    make_channel(channel, SECOND)
    assert "is fresh" in stackyard(*words).out
    told = stackyard(*words, "--update", "--check", expect=1)
    assert f"would write {lock}: --update" in told.out and lock.read_text() == first
    assert "~ lib 1.0 0 -> 1.1 0 (conda)" in lines(told.out)
    assert "cannot update libs: not in the lock" in stackyard(*words, "--update", "libs", expect=2).err
    assert "~ lib 1.0 0 -> 1.1 0 (conda)" in stackyard(*words[:3], "--update", "lib", file).out
    renewed = lock.read_text()
    assert "is fresh" in stackyard(*words, "--update", "--check").out and lock.read_text() == renewed
    lock.write_text(first)
    write(file, channel, "tool", "other")
    told = stackyard(*words, "--dry-run")
    assert "+ other 1.0 0 (conda): requested other" in lines(told.out) and "lib 1.0" not in told.out
    lock.unlink()
    stackyard(*words)
    assert '"lib 1.1 0' in lock.read_text()


def test_dry_run_and_deploy_agree_about_a_deleted_lock(file: Path, channel: Path, common: Path) -> None:
    yard = ("--yard", common / "yard")
    stackyard(*yard, "deploy", file, "--version", "1")
    assert "nothing to do" in stackyard(*yard, "deploy", file, "--version", "1", "--dry-run").out
    make_channel(channel, SECOND)
    Path(f"{file}.lock").unlink()
    told = stackyard(*yard, "deploy", file, "--version", "1", "--dry-run").out
    assert "no lock yet" in told and "would build demo/1-default-2" in told


def test_the_yard_keeps_the_lock_of_a_read_only_directory(
    file: Path, channel: Path, common: Path, accounts: Accounts
) -> None:
    anna = accounts.user("anna")
    yard = anna.home / "yard"
    words = ("--yard", yard, "lock", file)
    told = anna.stackyard(*words)
    (kept,) = (yard / "locks" / "files").iterdir()
    assert f"{file.parent} is read-only: its lock is kept in {kept}" in told.err
    assert f"wrote {kept}: " in told.out
    make_channel(channel, SECOND)
    assert "is fresh" in anna.stackyard(*words).out
    assert "~ lib 1.0 0 -> 1.1 0" in anna.stackyard(*words, "--update").out
    write(file, channel, "tool", "other")
    told = anna.stackyard(*words)
    assert "+ other" in told.out and "lib 1" not in told.out  # what the yard keeps is preferred as well
    assert "is fresh" in anna.stackyard(*words, "--locked").out
    stackyard("--yard", common / "yard", "lock", file)  # beside the file again: it is the truth
    make_channel(channel, (*SECOND, Package("lib", "1.2", subdir=HERE)))
    assert "lib 1.1 0 -> 1.2 0" in anna.stackyard(*words, "--update", "--dry-run").out
    assert f"cannot renew {file}.lock: permission denied" in anna.stackyard(*words, "--update", expect=1).err


def test_a_deploy_notices_that_the_lock_in_the_yard_was_renewed(
    file: Path, channel: Path, common: Path, accounts: Accounts
) -> None:
    anna = accounts.user("anna")
    yard = ("--yard", anna.home / "yard")
    for _ in range(2):
        anna.stackyard(*yard, "deploy", file, "--version", "1")
    make_channel(channel, SECOND)
    anna.stackyard(*yard, "lock", file, "--version", "1", "--update")
    assert "demo/1-default-2" in anna.stackyard(*yard, "deploy", file, "--version", "1").out


def test_users_take_what_the_site_solved_and_can_renew_it(file: Path, channel: Path, common: Path) -> None:
    site = common / "site.yaml"
    site.write_text(f"yard: {common / 'site-yard'}\n")
    stackyard("--yard", common / "site-yard", "--site", site, "lock", file)
    make_channel(channel, SECOND)
    own = common / "own"
    own.mkdir()
    copy = write(own / "environment.yml", channel, "tool")
    words = ("--yard", common / "yard", "--site", site, "lock", copy)
    told = stackyard(*words)
    assert f"solved before, as kept in {common / 'site-yard' / 'locks'}" in told.err
    assert '"lib 1.0 0' in Path(f"{copy}.lock").read_text()
    assert "lib 1.0 0 -> 1.1 0" in stackyard(*words, "--update").out


def test_a_merge_conflict_is_named_with_what_to_do(file: Path, common: Path) -> None:
    words = ("--yard", common / "yard", "lock", file)
    stackyard(*words)
    lock = Path(f"{file}.lock")
    text = lock.read_text()
    head, tail = text.split("[[conda]]", 1)
    lock.write_text(f"{head}<<<<<<< ours\n[[conda]]{tail}=======\n[[conda]]{tail}>>>>>>> theirs\n")
    line = head.count("\n") + 1
    told = stackyard(*words, expect=2)
    assert f"{lock}:{line}: the lock has an unresolved merge conflict" in told.err
    assert "git checkout --ours" in told.err


def test_words_after_update_are_files_or_packages(file: Path, common: Path) -> None:
    yard = ("--yard", common / "yard", "lock")
    assert "missing argument FILE" in stackyard(*yard, "--update", "tool", expect=2).err
    assert "'tool>1' is not the name of a package" in stackyard(*yard, file, "--update", "tool>1", expect=2).err
    assert "cannot read nowhere.yml" in stackyard(*yard, "--update", "nowhere.yml", expect=2).err
    both = stackyard(*yard, file, "--update", "--locked", expect=2)
    assert "--update and --locked exclude each other" in both.err
