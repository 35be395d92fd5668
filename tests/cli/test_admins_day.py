"""A day at a site: two of its staff with different umasks, two users, real accounts; every step as it should work.

Deploy, verify each other's, extend the policy, revert a file, renew a lock, roll back during a long build, damage and
repair. The steps build on each other, so they are one test.
"""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from support.accounts import Account, Accounts, common_directory
from support.channel import Package, make_channel
from support.cli import Done

pytestmark = pytest.mark.long  # some twenty commands, each a process of another account

BASE = """name: base
version: '1'
environment:
  channels: ['{channel}']
  dependencies: [{packages}]
checks: [{{name: it runs, run: [tool]}}]
"""
SLOW = """name: slow
version: '1'
environment: {{channels: ['{channel}'], dependencies: [tool]}}
post: wait.sh
"""


@dataclass
class Site:
    """The site's files: a channel, site.yaml, the yard of its staff, and the stacks' files in a common directory."""

    place: Path
    accounts: Accounts
    anna: Account
    bert: Account

    @property
    def yard(self) -> Path:
        return self.place / "sw" / "yard"

    def channel(self, *versions: str) -> None:
        """Put these versions of the package `tool` into the channel, and an `extra`."""
        tools = [Package("tool", v, files={"bin/tool": (f"#!/bin/sh\necho tool {v}\n", 0o755)}) for v in versions]
        make_channel(self.place / "ch", [*tools, Package("extra", "1.0", files={"share/extra": "x"})])

    def policy(self, **more: str) -> None:
        """Write site.yaml."""
        lines = {"yard": f"{self.yard}", "permissions": f"{{group: {self.accounts.group('staff')}, umask: '0002'}}"}
        text = "".join(f"{key}: {value}\n" for key, value in {**lines, **more}.items())
        (self.place / "site.yaml").write_text(text)

    def write(self, account: Account, name: str, text: str) -> Path:
        """A file in the staff's common directory, as this account writes it."""
        path = self.place / "stacks" / name
        account.run("sh", "-c", 'umask 002; printf %s "$1" > "$2"', "sh", text, path)
        return path

    def base(self, *packages: str) -> str:
        return BASE.format(channel=(self.place / "ch").as_uri(), packages=", ".join(packages))

    def run(self, account: Account, *words: str | Path, expect: int = 0, own: bool = False) -> Done:
        """Run ``stackyard WORDS...`` in the site's yard, or in the account's own below it."""
        given = () if own else ("--yard", self.yard)
        return account.stackyard("--site", self.place / "site.yaml", *given, *words, expect=expect)

    def shown(self, account: Account) -> dict[str, Any]:
        """What users see: the revisions by name."""
        rows: list[dict[str, Any]] = json.loads(self.run(account, "list", "--json").out)
        return {row["module"]: row for row in rows}

    def default(self, account: Account, stack: str) -> str:
        """The revision that ``module load STACK`` loads."""
        return next(name for name, row in self.shown(account).items() if row["stack"] == stack and row["default"])


@pytest.fixture
def site(accounts: Accounts) -> Iterator[Site]:
    with common_directory() as place:
        anna, bert = accounts.user("anna", "staff", umask=0o022), accounts.user("bert", "staff", umask=0o077)
        made = Site(place, accounts, anna, bert)
        for directory in (place / "sw", place / "stacks"):
            directory.mkdir()
            os.chown(directory, -1, anna.groups[0])
            directory.chmod(0o2775)
        made.channel("1.0")
        made.policy()
        yield made


def test_a_day(site: Site, accounts: Accounts) -> None:
    anna, bert = site.anna, site.bert
    carl, dora = accounts.user("carl", "staff", umask=0o002), accounts.user("dora", umask=0o022)

    # Deploy, and verify each other's.
    base = site.write(bert, "base.yaml", site.base("tool"))
    site.run(bert, "deploy", base)
    site.run(anna, "verify", "base")
    more = site.write(anna, "more.yaml", site.base("tool").replace("name: base", "name: more"))
    site.run(anna, "deploy", more)
    site.run(bert, "verify")
    assert site.run(dora, "run", "base", "--", "tool").out == "tool 1.0\n"

    # Users deploy to their own yards below the site's.
    for user in (carl, dora):
        own = user.home / "own.yaml"
        user.run("sh", "-c", 'printf %s "$1" > own.yaml', "sh", site.base("tool").replace("name: base", "name: own"))
        site.run(user, "deploy", own, own=True)

    # A policy that concerns nothing of what is locked builds nothing and publishes nothing.
    before = site.shown(anna)
    site.policy(pins="['unrelated >=1']")
    site.run(anna, "deploy", "--locked", base, more)
    assert site.shown(anna) == before

    # A changed file, and the file as it was.
    site.write(anna, "base.yaml", site.base("tool", "extra"))
    site.run(anna, "deploy", base)
    first, second = sorted(name for name in site.shown(anna) if name.startswith("base/"))
    assert site.default(dora, "base") == second
    site.write(bert, "base.yaml", site.base("tool"))
    site.run(bert, "deploy", base)
    assert site.default(dora, "base") == first

    # A lock is renewed by the other admin.
    site.channel("1.0", "1.1")
    site.run(anna, "deploy", "--locked", base)
    assert "tool 1.0 0 -> 1.1 0" in site.run(anna, "lock", base, "--update", "tool").out
    site.run(bert, "deploy", "--locked", base)
    assert site.run(dora, "run", "base", "--", "tool").out == "tool 1.1\n"

    # A rollback does not wait for a long build, and the build's result contains it.
    gate, started = site.place / "gate", site.place / "stacks" / "started"
    site.write(anna, "wait.sh", f"#!/bin/sh\n: > {started}\nwhile [ ! -e {gate} ]; do sleep 0.1; done\n")
    slow = site.write(anna, "slow.yaml", SLOW.format(channel=(site.place / "ch").as_uri()))
    words = [anna.bin / "stackyard", "--site", site.place / "site.yaml", "--yard", site.yard, "deploy", slow]
    build = anna.popen(*words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    while not started.exists():
        assert build.poll() is None
        time.sleep(0.1)
    site.run(bert, "rollback")
    assert build.poll() is None, "the rollback waited for the build"
    assert site.run(dora, "run", "base", "--", "tool").out == "tool 1.0\n"
    gate.touch()
    assert build.wait(120) == 0
    assert any(name.startswith("slow/") for name in site.shown(dora))
    assert site.run(dora, "run", "base", "--", "tool").out == "tool 1.0\n", "the build undid the rollback"
    who = [row["origin"]["user"] for row in json.loads(site.run(dora, "history", "--json").out)[:2]]
    assert who == [anna.name, bert.name]

    # Damage is found, also by those who may only read, and repaired.
    damaged = next((site.yard / "stacks" / "base").glob("*/prefix/bin/tool"))
    mode = damaged.stat().st_mode
    damaged.chmod(0o755)
    with damaged.open("r+b") as stream:
        stream.seek(12)
        stream.write(b"X")
    damaged.chmod(mode)
    found = site.run(dora, "verify", "--deep", expect=3)
    assert "bin/tool" in found.out + found.err
    owner = anna if damaged.stat().st_uid == anna.uid else bert
    site.run(owner, "verify", "--repair")
    site.run(carl, "verify", "--deep")
    assert site.run(dora, "run", "base", "--", "tool").out == "tool 1.0\n"
