"""share: what a group gets, what it keeps, and what nobody else loses by it; real accounts."""

from __future__ import annotations

import os
import re
import stat
from dataclasses import replace
from pathlib import Path

import pytest

from stackyard.deploy.published.share import Group, shut_out
from stackyard.yard.kinds.extension import BaseRevision
from stackyard.yard.layout import Yard
from stackyard.yard.revision import revisions
from support import modules, programs, smallyard
from support.accounts import Account, Accounts
from support.cli import Done, inside

ONE, TWO = "tool/1.0-py311-1", "tool/2.0-py311-1"


@pytest.fixture
def yard(common: Path, monkeypatch: pytest.MonkeyPatch) -> Yard:
    monkeypatch.setenv("STACKYARD_SITE", str(smallyard.give_site(common)))
    yard = smallyard.make(common / "yard", "1.0", "2.0")
    for directory in (yard.root, yard.stacks, yard.stack("tool"), *(p.root for p in revisions.directories(yard))):
        directory.chmod(0o700)
    return yard


def run(yard: Yard, *words: str | Path, expect: int = 0) -> Done:
    return inside("--yard", yard.root, *words, expect=expect)


def says(user: Account, yard: Yard, program: Path, group: str, module: str) -> str:
    """What a member gets who loads the module that is shared with the group, and runs `hello`."""
    lines = (
        f"{modules.initialise('lmod', 'bash')}\nmodule use {yard.shared(group)} && module load {module} && {program}"
    )
    done = user.run("bash", "-c", lines, expect=None)
    return done.out + done.err


def test_the_groups_modules_follow_what_becomes_of_a_revision(accounts: Accounts, yard: Yard) -> None:
    programs.need("lmod")
    gerd, group = accounts.user("gerd", "astro"), accounts.group("astro")
    given = ("--with", f"group:{group}")
    hello = Path("hello")
    run(yard, "share", ONE, *given)
    run(yard, "share", TWO, *given)
    assert "hello tool 1.0" in says(gerd, yard, hello, group, ONE)
    run(yard, "remove", ONE)
    assert "was removed" in says(gerd, yard, hello, group, ONE)
    assert "hello tool 2.0" in says(gerd, yard, hello, group, "tool")
    run(yard, "remove", ONE, "--undo")
    assert "hello tool 1.0" in says(gerd, yard, hello, group, ONE)
    run(yard, "retire", TWO, "--on", "2026-01-01", "--use", ONE)
    assert f"use {ONE}" in says(gerd, yard, hello, group, TWO)
    run(yard, "share", TWO, *given, "--undo", "--dry-run")
    run(yard, "share", TWO, *given, "--undo")
    assert "hello tool" not in says(gerd, yard, smallyard.revision(yard, "2.0").prefix / "bin/hello", group, ONE)
    assert "hello tool 1.0" in says(gerd, yard, hello, group, ONE)
    assert f"{TWO} is not shared with {group}" in run(yard, "share", TWO, *given, "--undo", expect=2).err
    run(yard, "share", ONE, *given, "--undo")
    assert not os.path.lexists(yard.shared(group).parent)
    gerd.run("cat", smallyard.revision(yard, "1.0").record, expect=1)


def test_a_file_of_two_revisions_stays_shared_with_one_of_them(accounts: Accounts, yard: Yard) -> None:
    gerd, group = accounts.user("gerd", "astro"), accounts.group("astro")
    given = ("--with", f"group:{group}")
    one, two = (smallyard.revision(yard, version).prefix / "share" for version in ("1.0", "2.0"))
    for directory in (one, two):
        directory.chmod(0o755)
    (one / "same").write_text("same")
    os.link(one / "same", two / "same")
    run(yard, "share", ONE, *given)
    run(yard, "share", TWO, *given)
    run(yard, "share", ONE, *given, "--undo")
    assert gerd.run("cat", two / "same").out == "same"
    gerd.run("cat", one / "same", expect=1)


def test_nobody_loses_what_another_group_has(accounts: Accounts, yard: Yard) -> None:
    """The yard's own group is the caller's: what its members were given or may write stays theirs."""
    gerd, group, own = accounts.user("gerd", "astro"), accounts.group("astro"), os.getegid()
    given = ("--with", f"group:{group}")
    yard.root.chmod(0o2770)
    refused = run(yard, "share", ONE, *given, expect=1)
    assert f"{yard.root} is shared with the group" in refused.err and yard.root.stat().st_gid == own
    assert stat.S_IMODE(yard.root.stat().st_mode) == 0o2770
    yard.root.chmod(0o755)
    run(yard, "share", ONE, *given)
    assert stat.S_IMODE(yard.root.stat().st_mode) == 0o755, "what everybody may list, the group may too"
    accounts.user("hans", "geo")
    other = accounts.group("geo")
    assert shut_out(yard, Group.named(f"group:{group}")) == ""
    yard.root.chmod(0o750)
    assert shut_out(yard, Group.named(f"group:{other}")) == group
    refused = run(yard, "share", TWO, "--with", f"group:{other}", expect=1)
    assert f"is shared with the group {group} already" in refused.err
    gerd.run("cat", smallyard.revision(yard, "1.0").record)


def test_what_a_revision_runs_on_is_opened_with_it(accounts: Accounts, yard: Yard) -> None:
    """An extension whose base and whose interpreter are in the same yard, both closed so far."""
    gerd, group = accounts.user("gerd", "astro"), accounts.group("astro")
    python = yard.interpreter("cpython-3.11.7-linux") / "bin" / "python3.11"
    python.parent.mkdir(parents=True)
    python.write_text("#!/bin/sh\n")
    (yard.interpreter("cpython-3.11-linux")).symlink_to("cpython-3.11.7-linux")
    for directory in (yard.cache, yard.pythons, yard.interpreter("cpython-3.11.7-linux"), python.parent, python):
        directory.chmod(0o700)
    base = smallyard.revision(yard, "1.0")
    record = smallyard.build(yard, "mine", "1.0")
    smallyard.revision(yard, "1.0", "mine").record.unlink()
    named = str(yard.interpreter("cpython-3.11-linux") / "bin" / "python3.11")
    record = replace(record, base=BaseRevision(str(yard.root), ONE, "0", str(base.prefix)),
                     interpreter={"source": "uv", "version": "3.11.7", "path": named})  # fmt: skip
    revisions.mark(record)
    smallyard.publish(yard, [record])
    (yard.stack("mine")).chmod(0o700)
    run(yard, "share", "mine", "--with", f"group:{group}")
    for file in (record.prefix + "/share/data", base.prefix / "share/data", named):
        gerd.run("cat", file)
    gerd.run("cat", smallyard.revision(yard, "2.0").record, expect=1)
    run(yard, "share", "mine", "--with", f"group:{group}", "--undo")
    for file in (record.prefix + "/share/data", base.prefix / "share/data", named):
        gerd.run("cat", file, expect=1)


def test_what_is_published_later_is_shared_until_that_is_ended(accounts: Accounts, yard: Yard, common: Path) -> None:
    gerd, group = accounts.user("gerd", "astro"), accounts.group("astro")
    given = ("--with", f"group:{group}")

    def deploy(version: str) -> tuple[Done, Path]:
        file = common / "stack.yaml"
        file.write_text(f"name: own\nversion: '{version}'\nmodules: {{variables: {{WORD: a}}}}\n")
        done = run(yard, "deploy", file)
        (root,) = yard.stack("own").glob(f"{version}-*")
        return done, root / "record.json"

    _, first = deploy("1.0")
    _, second = deploy("2.0")
    run(yard, "share", "own/2.0", *given, "--later")
    done, third = deploy("3.0")
    assert f"own/3.0-py3-1 is shared with the group {group}" in done.out + done.err
    for record in (second, third):
        gerd.run("cat", record)
    gerd.run("cat", first, expect=1)
    assert (yard.shared(group) / "own").is_dir() and len(list((yard.shared(group) / "own").glob("3.0-*"))) == 1
    assert "exclude each other" in run(yard, "share", "own/2.0", *given, "--later", "--undo", expect=2).err
    run(yard, "share", "own/2.0", *given, "--undo", "--dry-run")
    assert yard.shared_later(group, "own").exists()
    new = common / "new"
    run(yard, "move", new, "--without", ONE, "--without", TWO)
    assert Yard(new).shared_later(group, "own").read_bytes() == yard.shared_later(group, "own").read_bytes()
    run(yard, "share", "own/2.0", *given, "--undo")
    done, fourth = deploy("4.0")
    assert "is shared with" not in done.out + done.err
    gerd.run("cat", third)
    for record in (second, fourth):
        gerd.run("cat", record, expect=1)


def test_what_is_pulled_later_is_shared_though_it_was_built_before(
    accounts: Accounts, yard: Yard, common: Path
) -> None:
    gerd, group = accounts.user("gerd", "astro"), accounts.group("astro")
    file, source = common / "stack.yaml", f"oci:{common}/layout:own"

    def deploy(version: str) -> None:
        file.write_text(f"name: own\nversion: '{version}'\nmodules: {{variables: {{WORD: a}}}}\n")
        run(yard, "deploy", file)

    deploy("2.0")
    run(yard, "push", "own", source)
    yard.root.rename(common / "away")
    deploy("1.0")
    run(yard, "share", "own", "--with", f"group:{group}", "--later")
    done = run(yard, "pull", source)
    assert f"own/2.0-py3-1 is shared with the group {group}" in done.out + done.err
    gerd.run("cat", yard.stack("own") / "2.0-py3-1" / "record.json")
    run(yard, "share", "own/2.0", "--with", f"group:{group}", "--undo")
    run(yard, "share", "own/1.0", "--with", f"group:{group}", "--later")
    assert "is shared" not in run(yard, "pull", source).err, "it was there already, and was taken back"


def test_a_whole_yard_is_opened_by_the_lines_of_the_help(accounts: Accounts, common: Path) -> None:
    """What is there and what is published later, of an owner whose umask keeps everybody out."""
    anna, gerd, group = (
        accounts.user("anna", "astro", umask=0o077),
        accounts.user("gerd", "astro"),
        accounts.group("astro"),
    )
    yard, file = common / "anna" / "yard", anna.home / "stack.yaml"
    yard.parent.mkdir(mode=0o711)
    os.chown(yard.parent, anna.uid, anna.gid)

    def deploy(version: str) -> None:
        text = f"name: own\nversion: '{version}'\nmodules: {{variables: {{WORD: a}}}}\n"
        anna.run("sh", "-c", 'printf "%s" "$1" > "$2"', "-", text, file)
        anna.stackyard("--yard", yard, "deploy", file)

    deploy("1.0")
    refused = gerd.stackyard("--yard", yard, "list", expect=None)
    assert "own/1.0" not in refused.out
    shown = " ".join(inside("share", "--help").out.split())
    lines = re.search(r"(chgrp -R .*?), (chmod -R .*?), and (find .*? \+)\.", shown)
    assert lines
    words = " && ".join(lines.groups()).replace("NAME", group).replace("YARD", str(yard))
    anna.run("sh", "-c", words)
    deploy("2.0")
    for version in ("1.0", "2.0"):
        assert gerd.stackyard("--yard", yard, "run", f"own/{version}", "--", "echo", "ran").out == "ran\n"
        gerd.run("touch", yard / f"stacks/own/{version}-py3-1/x", expect=1)
    assert "nothing is wrong" in anna.stackyard("--yard", yard, "fsck", "--deep").out


def test_a_manifest_that_may_not_be_read_is_not_called_damaged(accounts: Accounts, yard: Yard, common: Path) -> None:
    for directory in (yard.root, yard.generations):
        directory.chmod(0o755)
    (yard.modules.resolve().parent / "manifest.json").chmod(0o600)
    said = accounts.user("gerd").stackyard("--yard", yard.root, "list", expect=1).err
    assert "manifest.json: Permission denied\n  hint: ask its owner to let you read it" in said


def test_what_cannot_be_shared_is_published_and_said(accounts: Accounts, yard: Yard, common: Path) -> None:
    """The group was removed, or its members cannot reach the yard any more."""
    group = accounts.group("astro")
    file = common / "stack.yaml"
    for version in ("1.0", "2.0"):
        file.write_text(f"name: own\nversion: '{version}'\nmodules: {{variables: {{WORD: a}}}}\n")
        done = run(yard, "deploy", file)
        run(yard, "share", "own", "--with", f"group:{group}", "--later") if version == "1.0" else None
        common.chmod(0o700)
    common.chmod(0o755)
    assert f"own/2.0-py3-1 is not shared with the group {group}: members of {group} cannot enter" in done.out + done.err
    assert {row["version"]: row["state"] for row in run(yard, "list", "--json").value}["2.0"] == "published"
    done = run(yard, "deploy", file, "--rebuild")
    assert f"own/2.0-py3-1 is shared with the group {group}" in done.out + done.err, "the next deploy does it"
