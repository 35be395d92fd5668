"""One site with two staff accounts and two users, all of them real: who can do what, who may read and write what."""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from stackyard.core.errors import MissingError
from support import testbed
from support.accounts import Account, Accounts, common_directory
from support.channel import Package, make_channel
from support.cli import Done

pytestmark = pytest.mark.slow  # eight deploys, each as another account would make it

BIG = 4_000_000
DIRECTORIES, FILES = {0o2775, 0o2555}, {0o664, 0o775, 0o444, 0o555}  # what is published is read-only for all
DROPS = ("uses", "children")
"""The directories of the site's yard in which users leave notes (docs/design/021-life-cycle.md)."""

ACCEPT = ("--accept-licence", "Tool")
WRITABLE = """
import os, sys
for folder, names, files in os.walk(sys.argv[1]):
    for name in [folder, *(os.path.join(folder, f) for f in files)]:
        if os.access(name, os.W_OK) and not os.path.islink(name):
            print(name)
"""


@dataclass(frozen=True)
class Site:
    """A site whose yard belongs to the group of its staff, and what all deploy from."""

    accounts: Accounts
    place: Path
    channel: Path
    file: Path
    yard: Path
    anna: Account
    bert: Account
    carl: Account
    dora: Account
    refused: str = ""

    def stack(self, account: Account, name: str, version: str = "1") -> Path:
        """A stack's file in the account's home, written with its umask: a large conda package and a wheel."""
        wheels = self.accounts.readable(testbed.wheels(testbed.HERE / "wheels.txt"))
        text = (
            f"name: {name}\nversion: '{version}'\ninterpreter: {{source: host, path: {self.accounts.bin}/python}}\n"
            f"environment:\n  channels: ['{self.channel.as_uri()}']\n  dependencies:\n    - tool\n"
            f"    - pip: [--no-index, '--find-links={wheels}', idna]\n"
            "checks: [{name: it runs, run: [tool]}]\n"
            f"licences: [{{name: Tool, text: {self.place}/licence.txt, variable: TOOL_ACCEPT}}]\n"
        )
        account.run("sh", "-c", 'printf %s "$1" > "$2"', "sh", text, f"{name}.yaml")
        return account.home / f"{name}.yaml"

    def run(self, account: Account, *words: str | Path, shared: bool = False, expect: int = 0) -> Done:
        """Run ``stackyard WORDS...``, in the site's yard if `shared`, else in the account's own."""
        given = ("--yard", self.yard) if shared else ()
        return account.stackyard("--site", self.file, *given, *words, expect=expect)


@pytest.fixture(scope="module")
def site(accounts: Accounts) -> Iterator[Site]:
    """After a day: both admins deployed to the site's yard, both users to their own."""
    try:
        testbed.wheels(testbed.HERE / "wheels.txt")
    except MissingError as error:
        pytest.skip(f"{error}; {error.hint}")
    with common_directory() as place:
        tool = {"bin/tool": ("#!/bin/sh\necho tool\n", 0o775), "share/big": (os.urandom(BIG), 0o664)}
        channel = make_channel(place / "ch", [Package("tool", "1.0", files={**tool, "share/own": ("x", 0o600)})])
        anna, bert = accounts.user("anna", "staff", umask=0o022), accounts.user("bert", "staff", umask=0o077)
        carl, dora = accounts.user("carl", "staff", umask=0o002), accounts.user("dora", umask=0o022)
        yard = place / "sw" / "yard"
        yard.parent.mkdir()
        os.chown(yard.parent, -1, anna.groups[0])
        yard.parent.chmod(0o2775)
        file = place / "site.yaml"
        file.write_text(f"yard: {yard}\npermissions: {{group: {accounts.group('staff')}, umask: '0002'}}\n")
        (place / "licence.txt").write_text("You may.\n")
        made = Site(accounts, place, channel, file, yard, anna, bert, carl, dora)
        made.run(bert, "lock", made.stack(bert, "base"), shared=True)
        made.run(bert, "deploy", made.stack(bert, "base"), *ACCEPT, shared=True)
        made.run(anna, "deploy", made.stack(anna, "more"), shared=True)  # staff accepted for the site's yard
        refused = made.run(dora, "deploy", made.stack(dora, "mine"), expect=4)
        for user in (carl, dora):
            made.run(user, "deploy", made.stack(user, "mine"), *ACCEPT)
        made.run(dora, "deploy", made.stack(dora, "mine", "2"))
        yield replace(made, refused=refused.err)


def _own_yard(account: Account) -> Path:
    return account.home / ".local/share/stackyard"


def _disk(yard: Path, revision: str) -> dict[str, Any]:
    path = max(yard.glob(f"stacks/{revision}/record.json"))
    value: dict[str, Any] = json.loads(path.read_text())["disk"]
    return value


def _found(root: Path) -> Iterator[tuple[Path, os.stat_result]]:
    """Every file and directory of a yard, apart from symbolic links and the caches' lock files, which hold nothing."""
    for path in (root, *root.rglob("*")):
        if not path.is_symlink() and not (path.name.endswith(".lock") and "cache" in path.parts):
            yield path, path.lstat()


def test_everything_in_the_sites_yard_has_its_group_and_modes(site: Site) -> None:
    wrong = {
        str(path): oct(status.st_mode)
        for path, status in _found(site.yard)
        if status.st_gid != site.anna.groups[0]
        or (
            path.name not in DROPS
            and stat.S_IMODE(status.st_mode) not in (DIRECTORIES if stat.S_ISDIR(status.st_mode) else FILES)
        )
    }
    assert not wrong
    assert {status.st_uid for _, status in _found(site.yard)} == {site.anna.uid, site.bert.uid}


def test_a_user_can_write_nothing_there_and_read_everything(site: Site) -> None:
    locks = {line for line in site.dora.python(WRITABLE, site.yard).out.splitlines() if not line.endswith(".lock")}
    assert not locks
    assert {stat.S_IMODE((site.yard / name).stat().st_mode) for name in DROPS} == {0o3773}
    shown = (
        r'find "$1" \( -name uses -o -name children \) -prune -o -type f ! -name "*.lock" -exec cat {} + > /dev/null'
    )
    site.dora.run("sh", "-c", shown, "sh", site.yard)
    refused = site.run(site.dora, "deploy", site.stack(site.dora, "theirs"), shared=True, expect=1)
    assert "permission denied" in refused.err


@pytest.mark.parametrize(("who", "revision"), [("anna", "base"), ("dora", "more")])
def test_everyone_can_verify_what_another_built(site: Site, who: str, revision: str) -> None:
    done = site.run(getattr(site, who), "verify", revision, shared=True)
    assert "0 failed" in done.out or "passed" in done.out
    for shared in (True, False):
        if shared or who == "dora":
            assert "nothing is wrong" in site.run(getattr(site, who), "fsck", "--deep", shared=shared).out


@pytest.mark.parametrize("who", ["carl", "dora"])
def test_a_users_own_yard_is_for_its_owner_to_write_and_for_the_group_to_read_at_most(site: Site, who: str) -> None:
    user: Account = getattr(site, who)
    wide = {
        str(path): oct(status.st_mode)
        for path, status in _found(_own_yard(user))
        if status.st_mode & 0o027 or (status.st_uid, status.st_gid) != (user.uid, user.gid)
    }
    modules = {path for path in wide if "/generations/" in path}  # hidden by the yard's own directory
    assert not set(wide) - modules
    user.home.chmod(0o755)
    for other in (site.anna, site.carl, site.dora):
        if other is not user:
            assert not other.python(WRITABLE, user.home).out


@pytest.mark.parametrize("who", ["carl", "dora", "anna"])
def test_an_unlinkable_package_is_on_disk_once_for_each_account(site: Site, who: str) -> None:
    user: Account = getattr(site, who)
    if user is site.anna:
        cache, disk = site.yard / "cache/accounts" / str(user.uid), _disk(site.yard, "more/1-*")
    else:
        cache, disk = _own_yard(user) / "cache", _disk(_own_yard(user), "mine/*")
    assert disk["link_mode"] == "hardlink" and disk["bytes_shared"] >= BIG > disk["bytes_new"]
    (big,) = cache.glob("conda/tool-*/share/big")
    revisions = 2 if user is site.dora else 1
    assert big.stat().st_uid == user.uid and big.stat().st_nlink == 1 + revisions
    (source,) = cache.glob("uv/archive-v*/*/idna/core.py")
    assert source.stat().st_nlink == 1 + revisions
    (compiled,) = cache.glob("bytecode/*/??/*/**/core.*.pyc")
    assert compiled.stat().st_nlink == 1 + revisions


def test_a_user_locks_with_the_sites_yard_that_only_staff_write(site: Site) -> None:
    before = sorted(map(str, site.yard.rglob("*")))
    file = site.stack(site.dora, "locked")
    assert "wrote" in site.run(site.dora, "lock", file, shared=True).out
    assert file.with_name("locked.yaml.lock").stat().st_mode & 0o777 == 0o644
    assert sorted(map(str, site.yard.rglob("*"))) == before


def test_a_lock_is_as_readable_as_its_file_whatever_the_sites_umask(site: Site) -> None:
    assert (site.bert.home / "base.yaml.lock").stat().st_mode & 0o777 == 0o600
    assert (site.anna.home / "more.yaml.lock").stat().st_mode & 0o777 == 0o644


def test_what_staff_accepted_is_no_users_acceptance(site: Site) -> None:
    assert f"licence not accepted by {site.dora.name}" in site.refused
    accepted = json.loads((site.yard / "licences.json").read_text())["acceptances"]
    assert [(entry["who"], entry["uid"]) for entry in accepted] == [(site.bert.name, site.bert.uid)]
    theirs = list((site.yard / "modules/base").glob("1-*.lua"))
    assert all("or set TOOL_ACCEPT=yes" in path.read_text() for path in theirs)
    assert not any('("TOOL_ACCEPT", "yes")' in path.read_text() for path in theirs)
    own = max((_own_yard(site.dora) / "modules/mine").glob("1-*.lua")).read_text()
    assert '("TOOL_ACCEPT", "yes")' in own


def test_a_site_that_keeps_its_yard_from_a_user_does_not_keep_them_from_their_own(site: Site) -> None:
    site.yard.chmod(0o2770)
    try:
        done = site.run(site.dora, "list")
    finally:
        site.yard.chmod(0o2775)
    assert "mine/2" in done.out and "base" not in done.out
    assert f"permission denied: {site.yard}" in done.err
