"""What users put into their own yards keeps nobody from removing: pipes, links to devices, a disk that hangs, words."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from stackyard.host.run.identity import whoami
from stackyard.yard import disk
from stackyard.yard.generation import generations
from stackyard.yard.layout import Yard
from stackyard.yard.others import children
from support import programs, smallyard
from support.accounts import Accounts
from support.bindfs import UNCACHED, bindfs
from support.cli import inside, stackyard

OLD = "tool/1.0-py311-1"
REMOVED_WHEN_LISTED = """
import os, shutil, sys
from stackyard.cli.main import main

folder, passes = sys.argv.pop(1), [None] * int(sys.argv.pop(1))

def remove(event, args):
    listed = args[0] if event in ("os.listdir", "os.scandir") else ""
    if isinstance(listed, int):
        listed = os.readlink(f"/proc/self/fd/{listed}")
    if str(listed) == folder and passes:
        passes.pop()
        if not passes:
            shutil.rmtree(folder)

sys.addaudithook(remove)
main()
"""
FORGED = json.dumps({"base": {"yard": "{yard}", "id": OLD}, "module": "x\x1b[2J"}).replace("{yard}", "$1")


def test_what_a_user_puts_in_the_place_of_records_is_not_waited_for(accounts: Accounts, common: Path) -> None:
    user = accounts.user("bert")
    yard = smallyard.make(common / "yard", "1.0", "2.0")
    site = smallyard.give_site(common, yard.root)
    words = ("--site", site, "--yard", yard.root)
    inside(*words, "default", "tool/2.0")
    own = user.home / "own"
    lines = (
        "set -e; mkdir -p $2/generations $2/stacks/a/1 $2/stacks/b/1 $2/stacks/c/1 $2/trash/t/content",
        "mkfifo $2/stacks/a/1/record.json $2/trash/t/content/record.json $2/trash/t/what.json",
        f"ln -s /dev/zero $2/stacks/b/1/record.json; printf '%s' '{FORGED}' > $2/stacks/c/1/record.json",
        'sed -i "s|[$]1|$1|" $2/stacks/c/1/record.json',
        f"""printf '{{"yard": "%s"}}' "$2" > $1/children/{"0" * 32}.json""",
        f"""printf '{{"yard": "/\\\\u001b[2J"}}' > $1/children/{"1" * 32}.json; mkfifo $1/children/{"2" * 32}.json""",
    )
    user.run("sh", "-c", "\n".join(lines), "sh", yard.root, own)
    refused = stackyard(*words, "remove", OLD, expect=1, timeout_s=240)
    assert f"kept {OLD}: base of an extension in {own}" in refused.out and "\x1b" not in refused.out + refused.err
    user.run("rm", own / "stacks/c/1/record.json")
    assert f"removed {OLD}" in stackyard(*words, "remove", OLD, timeout_s=240).out
    assert [e.state for e in generations.entries(yard)] == ["removed", "published"]


def test_a_users_disk_that_hangs_is_named_and_not_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    programs.need("bindfs")
    monkeypatch.setattr(disk.looked_into, "__defaults__", (1.0,))
    yard = smallyard.make(tmp_path / "yard", "1.0", "2.0")
    below = smallyard.make(tmp_path / "anna" / "below", "3.0")
    with bindfs(below.root, tmp_path / "anna" / "own", *UNCACHED) as server:
        hanging = [tmp_path / "anna" / "own", *(tmp_path / "anna" / "own" / name for name in ("stacks", "cache"))]
        yard.children.mkdir()
        for number, root in enumerate([*hanging, below.root, tmp_path / "none"]):
            (yard.children / f"{number:032}.json").write_text(json.dumps({"yard": str(root)}))
        server.send_signal(signal.SIGSTOP)
        try:
            found = children.known(yard, "")
        finally:
            server.send_signal(signal.SIGCONT)
    assert [each.root for each in found.yards] == [below.root]
    assert [text.partition(": ")[2] for text in found.unseen] == [
        f"{root} does not answer: timed out after 1 s" for root in hanging
    ]


def test_a_directory_of_users_that_hangs_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    programs.need("bindfs")
    monkeypatch.setattr(disk.look_into, "__defaults__", (1.0,))
    with bindfs(tmp_path / "below", tmp_path / "users", *UNCACHED) as server:
        server.send_signal(signal.SIGSTOP)
        try:
            found = children.known(Yard(tmp_path / "yard"), f"{tmp_path}/users/{whoami()}/yard")
        finally:
            server.send_signal(signal.SIGCONT)
    assert len(found.unseen) == 1 and "users does not answer" in found.unseen[0]


BLIND = """
import json, sys
from pathlib import Path
from stackyard.yard.others import children
from stackyard.yard.layout import Yard

found = children.known(Yard(Path(sys.argv[1])), sys.argv[2])
print(json.dumps([[each.account, each.why] for each in found.blind]))
"""


def test_a_closed_home_is_not_looked_into_and_one_that_does_not_exist_needs_not_be(
    accounts: Accounts, common: Path
) -> None:
    """By the homes of accounts, and beside one's own where the directory of all cannot be listed."""
    anna, bert, carl, hilda = (accounts.user(name) for name in ("anna", "bert", "carl", "hilda"))
    yard = smallyard.make(common / "yard", "1.0")
    carl.home.rmdir()
    hilda.home.chmod(0o711)
    (common / "users" / anna.name).mkdir(parents=True)
    (common / "users" / anna.name).chmod(0o700)
    os.chown(common / "users" / anna.name, anna.uid, anna.gid)
    (common / "users").chmod(0o711)
    for template in ("~/.local/share/stackyard", f"{common}/users/$USER/yard"):
        blind = json.loads(bert.python(BLIND, yard.root, template).out)
        assert [anna.name, "permission denied"] in blind, template
        assert not {bert.name, carl.name, hilda.name} & {account for account, _ in blind}, template
    accounts.user("carl")


@pytest.mark.parametrize(
    ("directory", "passes"), [("stacks", 1), ("stacks/b", 1), ("stacks/b", 2), ("trash", 1), ("trash", 2)]
)
def test_what_a_user_removes_while_it_is_looked_at_is_left_out(tmp_path: Path, directory: str, passes: int) -> None:
    yard, own = smallyard.make(tmp_path / "yard", "1.0"), tmp_path / "own"
    for place in ("generations", "stacks/a/1", "stacks/b/1", "stacks/c/1", "trash/t/content"):
        (own / place).mkdir(parents=True)
    for note, text in (
        (yard.children / f"{0:032}.json", json.dumps({"yard": str(own)})),
        (yard.locks / "old.lock", ""),
    ):
        note.parent.mkdir(exist_ok=True)
        note.write_text(text)
        os.utime(note, (0, 0))  # the locks of other yards are read where one is old
    words = ("--site", smallyard.give_site(tmp_path), "--yard", yard.root, "gc")
    argv = [sys.executable, "-c", REMOVED_WHEN_LISTED, own / directory, str(passes), *words]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert not (own / directory).exists()
    assert not (yard.locks / "old.lock").exists(), "all of the collection was done"
