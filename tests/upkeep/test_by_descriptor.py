"""Root works by descriptors where users may write: a system call trace shows no path of theirs, and nothing waits."""

from __future__ import annotations

import json
import os
import re
import stat
import subprocess
from pathlib import Path

import pytest

from stackyard.upkeep.transfer import carry as carrying
from stackyard.upkeep.transfer.rebuilding import Ways
from stackyard.yard.generation import generations
from stackyard.yard.layout import Yard
from stackyard.yard.write import trash
from support import programs, smallyard
from support.accounts import Account, Accounts
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


@pytest.fixture
def hostile(yard: Yard, common: Path, accounts: Accounts) -> tuple[Account, Path]:
    """A user who has put what is no note where notes belong, and what only root may read."""
    user, secret = accounts.user("user"), common / "secret"
    secret.write_text("only root reads this\n")
    secret.chmod(0o600)
    code = (
        "import os, sys\n"
        "place, secret, name = sys.argv[1:]\n"
        "os.mkfifo(f'{place}/pipe-{name}')\n"
        "os.symlink(secret, f'{place}/link-{name}')\n"
        "os.makedirs(f'{place}/folder-{name}/below')\n"
        "os.symlink(os.path.dirname(secret), f'{place}/away-{name}')\n"
        "open(f'{place}/big-{name}', 'w').truncate(1 << 34)\n"
    )
    for place, name in (
        (yard.usage, f"h.{user.uid}.{OLD}.log"),
        (yard.uses, "tool~3.0-py311-1@h.1.b.json"),
        (yard.children, "1" * 32 + ".json"),
    ):
        user.python(code, place, secret, name)
        os.mknod(place / f"device-{name}", stat.S_IFCHR | 0o666, os.makedev(1, 5))  # /dev/zero: it has no end
        os.link(secret, place / f"hard-{name}")  # as where fs.protected_hardlinks is off
    return user, secret


VERBS = [
    ("list", "--all"), ("fsck",), ("fsck", "--repair"), ("gc", "--dry-run"), ("gc",), ("gc", "--now"),
    ("remove", "tool/3.0-py311-1", "--dry-run"), ("share", "tool/3.0-py311-1", "--with", "group:root"), ("usage",),
]  # fmt: skip


@pytest.mark.timeout(120)
def test_no_verb_waits_for_what_users_left_or_changes_what_it_leads_to(
    yard: Yard, hostile: tuple[Account, Path]
) -> None:
    _, secret = hostile
    before = secret.stat()
    for words in VERBS:
        done = inside(*words, expect=None)
        assert done.code in (0, 1, 3), (words, done.out, done.err)
        assert "Traceback" not in done.err and "only root reads this" not in done.out + done.err, words
        now = secret.stat()
        assert (now.st_mode, now.st_uid, now.st_size) == (before.st_mode, before.st_uid, before.st_size), words
        assert secret.read_text() == "only root reads this\n"
    assert [e.module for e in generations.entries(yard) if e.is_visible] == ["tool/3.0-py311-1"]


@pytest.mark.timeout(120)
def test_a_move_takes_the_counts_of_users_and_nothing_else(
    yard: Yard, hostile: tuple[Account, Path], common: Path
) -> None:
    """Root copied the files of root to which they linked, and waited for their pipes."""
    user, _ = hostile
    new = Yard(common / "new")
    new.usage.mkdir(parents=True)
    said = list(carrying.beside(Ways(yard, yard.root, new)))
    name = f"h.{user.uid}.{OLD}.log"
    mine = f"host.{user.uid}.{OLD}.log"
    assert sorted(os.listdir(new.usage)) == sorted([mine, "since"])
    assert (new.usage / mine).stat().st_uid == user.uid
    assert (new.usage / mine).read_text() == f"{OLD}-01 run tool/1.0-py311-1\n"
    left = {f"{what}-{name}" for what in ("pipe", "link", "folder", "away", "big", "device", "hard")}
    assert {each.split(": ")[1].rpartition("/")[2] for each in said} == left
    assert (yard.usage / mine).exists() and (yard.usage / f"pipe-{name}").exists()


@pytest.mark.timeout(60)
@pytest.mark.parametrize("what", ["pipe", "foreign"])
def test_a_move_names_what_is_not_the_yards(yard: Yard, common: Path, accounts: Accounts, what: str) -> None:
    file = yard.locks / f"{'a' * 64}.lock"
    file.parent.mkdir(exist_ok=True)
    if what == "pipe":
        os.mkfifo(file)
    else:
        file.touch()
        os.chown(file, accounts.user("user").uid, -1)
    with pytest.raises(OSError) as error:
        list(carrying.beside(Ways(yard, yard.root, Yard(common / "new"))))
    assert error.value.filename == str(file)
