"""The accounts of the tests are what they claim: other people, with a `stackyard` that they can run."""

from __future__ import annotations

import pwd
import subprocess
from pathlib import Path

from support.accounts import Accounts


def test_an_account_is_another_person(accounts: Accounts, common: Path) -> None:
    anna, bert = accounts.user("anna", "staff", umask=0o027), accounts.user("bert")
    staff = accounts.group("staff")
    assert staff in anna.run("id", "-Gn").out.split()
    assert staff not in bert.run("id", "-Gn").out.split()
    (common / "drop").mkdir()
    (common / "drop").chmod(0o777)
    anna.run("touch", common / "drop/hers", anna.home / "hers")
    assert (common / "drop/hers").stat().st_mode & 0o777 == 0o640
    assert bert.run("cat", common / "drop/hers", expect=1).err
    assert bert.run("ls", anna.home, expect=2).err
    assert set(anna.run("env").out.split()) == {f"{k}={v}" for k, v in anna.environment().items()}


def test_an_account_runs_stackyard(accounts: Accounts, real_channel: Path) -> None:
    anna = accounts.user("anna")
    assert anna.stackyard("--version").out.startswith("stackyard, version")
    anna.run("test", "-r", accounts.readable(real_channel) / "noarch/repodata.json")
    assert anna.run("uv", "--version").out.startswith("uv ")


def test_a_directory_that_keeps_accounts_out_is_copied(accounts: Accounts, tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data/x").write_text("1\n")
    anna = accounts.user("anna")
    anna.run("cat", tmp_path / "data/x", expect=1)
    assert anna.run("cat", accounts.readable(tmp_path / "data") / "x").out == "1\n"


def test_accounts_are_removed_with_what_they_run(accounts: Accounts) -> None:
    assert accounts.bin.is_dir()
    made = Accounts()
    short = made.user("short", "crew")
    process = short.popen("sleep", "60", stdout=subprocess.DEVNULL)
    made.remove()
    assert process.wait(timeout=10) == -9
    assert short.name not in {entry.pw_name for entry in pwd.getpwall()}
    assert not made.place.exists()
