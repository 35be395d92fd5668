"""The first deploys to a new yard, by several real accounts at the same moment: each has its part of the cache."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from support.accounts import Account, Accounts
from support.channel import Package, make_channel

NAMES = ("one", "two", "three")
UMASKS = {"anna": 0o022, "bert": 0o077, "carl": 0o002}


def wrongly_owned(cache: Path) -> list[str]:
    """Files of a cache that are not of the account whose part they are in."""
    accounts = cache / "accounts"
    wrong = []
    for path in cache.rglob("*"):
        inner = path.relative_to(accounts).parts if path.is_relative_to(accounts) else None
        if inner != ():  # whoever comes second makes that directory
            owner = int(inner[0]) if inner else cache.stat().st_uid
            wrong += [str(path)] if path.lstat().st_uid != owner else []
    return wrong


def deploys_at_once(users: list[Account], common: Path, permissions: str) -> Path:
    """Each of them deploys a stack of the same packages to the site's yard, which does not exist; the yard."""
    yard, site = common / "sw/yard", common / "site.yaml"
    channel = make_channel(common / "ch", [Package(name, "1.0", files={f"share/{name}": "x"}) for name in NAMES])
    site.write_text(f"yard: {yard}\nmodules: {{formats: [tcl]}}\npermissions: {permissions}\n")
    started = []
    for number, user in enumerate(users):
        text = f"{{channels: ['{channel.as_uri()}'], dependencies: [{', '.join(NAMES)}]}}"
        file = user.home / "stack.yaml"
        file.write_text(f"name: s{number}\nversion: '1'\nenvironment: {text}\n")
        os.chown(user.home / "stack.yaml", user.uid, user.gid)
        words = (user.bin / "stackyard", "--site", site, "--yard", yard, "deploy", file)
        started.append(user.popen(*words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT))
    said = [process.communicate(timeout=120)[0] for process in started]
    assert not any(process.returncode for process in started), said
    return yard


@pytest.mark.parametrize("group", ["staff", ""])
def test_each_account_has_its_part_of_the_cache(accounts: Accounts, common: Path, group: str) -> None:
    """Whatever their umasks, in a common group and without one: no file of another account is written to or linked."""
    users = [accounts.user(word, *filter(None, [group]), umask=umask) for word, umask in UMASKS.items()]
    (common / "sw").mkdir()
    (common / "sw").chmod(0o777)
    permissions = f"{{group: {accounts.group(group)}, umask: '0002'}}" if group else "{umask: '0000'}"
    cache = deploys_at_once(users, common, permissions) / "cache"
    assert not wrongly_owned(cache)
    first = cache.stat().st_uid
    assert {int(path.name) for path in (cache / "accounts").iterdir()} == {user.uid for user in users} - {first}
    for user in users:
        (linked,) = cache.parent.glob(f"stacks/s{users.index(user)}/*/prefix/share/one")
        assert (linked.stat().st_uid, linked.stat().st_nlink) == (user.uid, 2)
