"""Root works by descriptors where users may write: a system call trace shows no path of theirs, and nothing waits."""

from __future__ import annotations

import json
import os
import re
import subprocess
from pathlib import Path

import pytest

from stackyard.yard import generations, trash
from stackyard.yard.layout import Yard
from support import programs, smallyard
from support.accounts import Accounts
from support.cli import STACKYARD, inside

NOW = "removal: {grace_days: 0, keep: 0, failed_days: 0}\ncache: {max_age_days: 0}\nusage: {count: true, keep_days: 31}"
CALLS = (
    "open openat creat chmod fchmodat fchmodat2 chown lchown fchownat rename renameat renameat2 unlink unlinkat rmdir "
    "mkdir mkdirat link linkat symlink symlinkat truncate utime utimes utimensat execve"
)
OLD = "2020-01"


@pytest.fixture
def yard(common: Path, accounts: Accounts, monkeypatch: pytest.MonkeyPatch) -> Yard:
    """A yard of root's with revisions, one of them put aside before, in which a user has left what is old and new."""
    site = smallyard.give_site(common, common / "yard", NOW)
    monkeypatch.setenv("STACKYARD_SITE", str(site))
    monkeypatch.setenv("STACKYARD_HOME", str(common / "yard"))
    yard = smallyard.make(common / "yard", "1.0", "2.0", "3.0")
    inside("default", "tool/3.0")
    inside("remove", "tool/1.0-py311-1")
    inside("withdraw", "tool/2.0-py311-1")
    user = accounts.user("user")
    for place, name, text in (
        (yard.usage, f"host.{user.uid}.{OLD}.log", f"{OLD}-01 run tool/1.0-py311-1\n"),
        (yard.uses, "tool~9@host.1.a.json", json.dumps({"revision": "/nowhere"})),
        (yard.children, "0" * 32 + ".json", json.dumps({"yard": str(common / "nowhere")})),
    ):
        user.python("import sys; open(sys.argv[1], 'w').write(sys.argv[2])", place / name, text)
    return yard


def traced(yard: Yard, *words: str) -> list[str]:
    """The calls of a command, and of what it starts, that name something below these directories by its path."""
    programs.need("strace")
    log = yard.root.parent / "calls"
    calls = "trace=" + ",".join(f"?{call}" for call in CALLS.split())  # no machine has all of them
    argv = ["strace", "-f", "-qq", "-s", "4096", "-e", calls, "-o", str(log), str(STACKYARD), *words]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    places = "|".join(re.escape(str(each)) for each in (yard.trash, yard.usage, yard.uses, yard.children))
    lines = log.read_text(errors="replace").splitlines()
    assert any(str(yard.root) in line for line in lines), "a trace without a call shows nothing"
    return [line for line in lines if re.search(rf'"(?:{places})/', line)]


def test_nothing_of_users_is_opened_or_changed_by_its_path(yard: Yard, common: Path) -> None:
    """First with a grace time, so that what is put aside is read and not deleted; then all of it goes."""
    waiting = smallyard.give_site(common / "yard", yard.root, NOW.replace("grace_days: 0", "grace_days: 9"))
    for words in (["--site", str(waiting), "gc"], ["fsck", "--repair"], ["gc", "--now"]):
        found = traced(yard, *words)
        assert not found, "\n".join(["", *found])
    assert trash.items(yard) == []
    assert [e.module for e in generations.entries(yard) if e.is_visible] == ["tool/3.0-py311-1"]
    assert os.listdir(yard.stacks / "tool") == ["3.0-py311-1"]
    assert [name for name in os.listdir(yard.usage) if OLD in name] == []
