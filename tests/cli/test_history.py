"""What was published is never lost or rewritten: names, order, roll back, states, and who did it."""

from __future__ import annotations

import os
import pwd
import shutil
import socket
import subprocess
from pathlib import Path
from typing import Any, BinaryIO
from urllib.parse import urlsplit

import pytest

from stackyard.host.files import at
from stackyard.verify import verify
from stackyard.yard.generation import generations
from stackyard.yard.revision.manifest import Manifest, read_manifest
from support import smallyard
from support.accounts import Accounts
from support.channel import Package, make_channel
from support.cli import Done, imported, inside, stackyard
from support.failing import stale


@pytest.fixture(scope="module")
def channel(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A channel with three versions of a program; nothing needs Python, so a deploy takes a second or two."""
    tools = [Package("tool", v, files={"bin/tool": (f"#!/bin/sh\necho {v}\n", 0o755)}) for v in "123"]
    return make_channel(tmp_path_factory.mktemp("channel"), tools).as_uri()


class Desk:
    """A person with a yard, a site and a directory with stack files."""

    def __init__(self, directory: Path, channel: str, yard: Path | None = None, site: str = "") -> None:
        directory.mkdir(exist_ok=True)
        self.directory, self.channel, self.yard = directory, channel, yard or directory / "yard"
        (directory / "site.yaml").write_text(f"modules: {{formats: [tcl]}}\n{site}")

    def __call__(self, *words: str | Path, expect: int | None = 0) -> Done:
        run = stackyard if words[0] == "run" else inside
        return run("--yard", self.yard, "--site", self.directory / "site.yaml", *words, expect=expect)

    def stack(self, tool: str, more: str = "", version: str = "1.0", name: str = "stack.yaml") -> Path:
        """A stack file, and no lock of other contents beside it."""
        (self.directory / f"{name}.lock").unlink(missing_ok=True)
        (self.directory / name).write_text(
            f'name: demo\nversion: "{version}"\n'
            f"environment: {{channels: [{self.channel}], dependencies: [tool={tool}]}}\n{more}"
        )
        return self.directory / name

    def deploy(self, tool: str, more: str = "", expect: int = 0, **given: str) -> dict[str, str]:
        """Deploy such a file; the status of each module."""
        told = self("deploy", "--json", self.stack(tool, more, **given), expect=expect).value
        return {r["module"]: r["status"] for r in told["revisions"]}

    def default(self) -> str:
        return next((r["module"] for r in self("list", "--json").value if r["default"]), "")

    def states(self) -> dict[str, str]:
        return {r["module"]: r["state"] for r in self("list", "--all", "--json").value}

    def says(self, name: str) -> str:
        return self("run", name, "--", "tool").out.strip()


@pytest.fixture(autouse=True)
def _without_module_system(monkeypatch: pytest.MonkeyPatch) -> None:
    """Loading modules, which takes half of a deploy, is tested elsewhere."""
    monkeypatch.setattr(verify, "_FINDERS", ())


@pytest.fixture
def desk(tmp_path: Path, channel: str) -> Desk:
    return Desk(tmp_path / "desk", channel)


ONE, TWO, THREE = (f"demo/1.0-default-{n}" for n in (1, 2, 3))


def test_what_the_file_says_is_what_users_see(desk: Desk) -> None:
    assert desk.deploy("1") == {ONE: "published"} and desk.deploy("2") == {TWO: "published"}
    desk.stack("1")
    planned = desk("deploy", "--dry-run", desk.directory / "stack.yaml").out
    assert "would make it the newest again" in planned and f"D demo  loads {ONE} (before: {TWO})" in planned
    told = desk("deploy", desk.directory / "stack.yaml").out
    assert "the newest again, as its file describes it" in told
    assert (desk.default(), desk.says("demo"), desk.says("demo/1.0"), desk.says(TWO)) == (ONE, "1", "1", "2")
    assert desk("deploy", "--json", desk.directory / "stack.yaml").value["generation"] == 0, "declared once is enough"
    assert desk.deploy("2") == {TWO: "reinstated"} and desk.default() == TWO
    *_, said, undo = desk("rollback").out.splitlines()
    assert said == f"    D demo  loads {ONE} (before: {TWO})", "and that once"
    assert undo.startswith("to undo it: stackyard") and undo.split()[-2] == "rollback"
    assert desk.default() == ONE
    desk("rollback", TWO)
    assert (desk.default(), desk.states()) == (TWO, {ONE: "published", TWO: "published"})


def test_read_commands_parse_no_site_and_no_stack(desk: Desk) -> None:
    desk.deploy("1")
    run = ("run", "--dry-run", ONE, "--", "tool")
    for words in (("list",), ("history",), ("show", ONE), ("diff", ONE, ONE), ("why", ONE, "tool"), run):
        where = ("--yard", desk.yard, "--site", desk.directory / "site.yaml")
        assert imported(*where, *words, among=("pydantic", "ruamel.yaml", "rattler", "rich", "ssl")) == [], words


def test_two_staff_with_a_clone_each_see_what_was_deployed_last(tmp_path: Path, channel: str) -> None:
    mine = Desk(tmp_path / "mine", channel)
    theirs = Desk(tmp_path / "theirs", channel, mine.yard)
    for each in (mine, theirs):
        (each.directory / ".git").mkdir()
    assert mine.deploy("1") == {ONE: "published"}
    assert mine.deploy("1") == {ONE: "unchanged"}, "remembered"
    theirs.deploy("2", version="2.0")
    assert mine.default() == "demo/2.0-default-1"
    assert mine.deploy("1") == {ONE: "reinstated"}, "the same file in another clone of it"
    assert mine.default() == ONE
    other = mine.stack("2", version="2.0", name="other.yaml")
    assert mine("deploy", "--json", other).value["revisions"][0]["status"] == "reinstated"
    mine.deploy("1")
    assert mine.default() == "demo/2.0-default-1", "files of their own: the highest version"


def test_a_variant_that_the_file_no_longer_has_is_not_the_default(desk: Desk) -> None:
    desk.deploy("1", "matrix: {letter: [a, b]}\n")
    assert desk.default() == "demo/1.0-b-1"
    desk.deploy("1", "matrix: {letter: [a]}\n")
    assert desk.default() == "demo/1.0-a-1" and desk.says("demo/1.0-b") == "1"


def test_a_file_without_a_version_is_declarative_too(desk: Desk) -> None:
    file = desk.directory / "environment.yml"
    lock = desk.directory / "environment.yml.lock"

    def deploy(tool: str, day: str) -> str:
        file.write_text(f"name: demo\nchannels: [{desk.channel}]\ndependencies: [tool={tool}]\n")
        if not lock.exists():
            desk("lock", file)
            lines = lock.read_text().splitlines()
            today = next(line.split('"')[1] for line in lines if line.startswith("version = "))
            lock.write_text(lock.read_text().replace(f'version = "{today}"', f'version = "{day}"'))
        desk("deploy", "--locked", file)
        return lock.read_text()

    first = deploy("1", "2026.01.05")
    lock.unlink()
    deploy("2", "2026.03.01")
    assert desk.says("demo") == "2"
    lock.write_text(first)
    deploy("1", "")
    assert desk.says("demo") == "1"


def test_a_user_who_gives_up_an_own_build_gets_the_sites(desk: Desk, tmp_path: Path) -> None:
    desk.deploy("1")
    user = Desk(tmp_path / "user", desk.channel, site=f"yard: {desk.yard}\n")
    assert user.deploy("2") == {TWO: "published"}, "a name of the site is not used for something else"
    assert user.says("demo") == "2"
    assert user.deploy("1") == {ONE: "inherited"}
    assert (user.says("demo"), user.states()[TWO]) == ("1", "withdrawn")
    assert f"withdraw {TWO}" in user("history").out
    assert user("rollback", "²", expect=2).err.startswith("error: no such revision")


def test_a_name_is_never_given_to_other_content(desk: Desk) -> None:
    desk.deploy("1")
    shutil.rmtree(desk.yard / "stacks/demo/1.0-default-1")
    assert desk.states() == {ONE: "missing"} and f"{ONE} is missing: " in desk("list").out
    told = desk("deploy", "--json", desk.stack("2"))
    assert [r["module"] for r in told.value["revisions"]] == [TWO]
    assert f"{ONE} is no longer published: " in told.err
    assert desk.states() == {ONE: "missing", TWO: "published"} and not (desk.yard / "modules" / ONE).exists()
    assert [r["module"] for r in desk("list", "--json").value] == [TWO]
    shutil.rmtree(desk.yard / "stacks/demo/1.0-default-2")
    assert desk.deploy("3") == {THREE: "published"}
    assert desk.deploy("1") == {ONE: "published"}, "the same inputs: the same name"
    assert (desk.says(ONE), desk.default()) == ("1", ONE)


def test_a_name_in_a_yard_of_the_former_format_is_not_used_again(desk: Desk) -> None:
    """Manifests of format 1 have no input hash: what a lost name stood for is not known."""
    desk.deploy("1")
    manifest = desk.yard / "generations/1/manifest.json"
    old = """{"format": 1, "number": 1, "created": "2026-01-01T00:00:00+00:00", "reason": "deploy", "content": 0,
      "entries": [{"stack": "demo", "version": "1.0", "variant": "default", "revision": 1,
      "module": "demo/1.0-default-1",
      "folder": "FOLDER", "created": "2026-01-01T00:00:00+00:00", "state": "published", "default": true, "rank": 0,
      "aliases": [], "hidden": false, "deprecated": "", "notice": "", "help": ""}]}"""
    manifest.write_text(old.replace("FOLDER", str(desk.yard / "stacks/demo/1.0-default-1")))
    assert desk.deploy("1") == {ONE: "unchanged"}
    shutil.rmtree(desk.yard / "stacks/demo/1.0-default-1")
    assert desk.deploy("1") == {TWO: "published"}


def test_rollback_refuses_to_publish_what_is_missing(desk: Desk) -> None:
    desk.deploy("1")
    desk.deploy("2")
    shutil.rmtree(desk.yard / "stacks/demo/1.0-default-1")
    link = os.readlink(desk.yard / "modules")
    refused = desk("rollback", "1", expect=1)
    assert f"cannot publish {ONE}: its files no longer exist" in refused.err and "--without-missing" in refused.err
    assert os.readlink(desk.yard / "modules") == link
    told = desk("rollback", "1", "--without-missing").out
    assert f"- {TWO}  withdrawn" in told and f"- {ONE}  missing" in told


def test_verify_reports_what_is_missing_and_goes_on(desk: Desk) -> None:
    desk.deploy("1")
    desk.deploy("2")
    shutil.rmtree(desk.yard / "stacks/demo/1.0-default-1")
    told = desk("verify", "--json", expect=3).value
    assert {module: told[module]["state"] for module in (ONE, TWO)} == {ONE: "failed", TWO: "passed"}
    assert "record.json" in desk("verify", expect=3).out
    assert not (desk.yard / "stacks/demo/1.0-default-1").exists(), "no report without its revision"


@pytest.mark.parametrize("content", ["", "garbage", '{"format": 1, "cut'])
def test_a_damaged_record_is_listed_and_not_taken_for_published(desk: Desk, content: str) -> None:
    desk.deploy("1")
    (desk.yard / "stacks/demo/1.0-default-1/record.json").write_text(content)
    assert desk.states() == {ONE: "damaged"} and f"{ONE} has a damaged record: " in desk("list").out
    told = desk("verify", "--json", expect=3).value
    assert told[ONE]["state"] == "failed"
    done = desk("deploy", desk.directory / "stack.yaml")
    assert f"{ONE} is published from the copy of its record: " in done.err and "`stackyard verify --repair`" in done.err
    assert TWO in done.out, "nothing is built where a record is"
    assert f"{ONE}: restored record.json" in desk("verify", "--repair", ONE).err
    assert desk.states() == {ONE: "published", TWO: "published"}


def test_an_error_of_the_file_system_is_not_a_missing_revision(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    desk.deploy("1")
    plain = at.open_regular

    def opened(path: Path) -> BinaryIO:
        if path.name == "record.json":
            stale(path)
        return plain(path)

    with monkeypatch.context() as patched:
        patched.setattr(at, "open_regular", opened)
        assert "Stale file handle" in desk("deploy", desk.stack("2"), expect=1).err
        assert [(r["module"], r["state"]) for r in desk("list", "--json").value] == [(ONE, "published")]
    assert [r["number"] for r in desk("history", "--json").value] == [1]


def test_a_second_person_verifies_and_rolls_back_and_history_tells(
    accounts: Accounts, common: Path, channel: str
) -> None:
    """What that account cannot read is reported, and says nothing about the revision."""
    anna, bert = accounts.user("anna", "staff"), accounts.user("bert", "staff", umask=0o077)
    staff = accounts.group("staff")
    policy = f"yard: {common}/desk/yard\npermissions: {{group: {staff}, umask: '0002'}}\n"
    desk = Desk(common / "desk", channel, site=policy)
    subprocess.run(["cp", "-r", urlsplit(channel).path, common / "channel"], check=True)
    desk.channel = (common / "channel").as_uri()
    subprocess.run(["chmod", "-R", "g+rwX,o+rX", common], check=True)
    subprocess.run(["chgrp", "-R", staff, desk.directory], check=True)
    words = ("--yard", desk.yard, "--site", desk.directory / "site.yaml")
    desk.deploy("1")
    anna.stackyard(*words, "deploy", desk.stack("2"))
    for module, mode in ((ONE, "600"), (TWO, "644")):
        notes = (desk.yard / "stacks" / module / "prefix/conda-meta").glob("*.json")
        subprocess.run(["chmod", mode, *notes], check=True)
    told = bert.stackyard(*words, "verify", "--json", expect=3).value
    assert {module: told[module]["state"] for module in (ONE, TWO)} == {ONE: "unverified", TWO: "passed"}
    assert "permission denied" in told[ONE]["checks"][0]["detail"]
    assert desk.states() == {ONE: "published", TWO: "published"}
    bert.stackyard(*words, "rollback", SUDO_UID=str(anna.uid))
    rows = desk("history", "--json").value
    assert [(r["origin"]["user"], r["origin"]["uid"], r["reason"]) for r in rows] == [
        (bert.name, bert.uid, "rollback to 1"),
        (anna.name, anna.uid, f"deploy {TWO}"),
        ("root", 0, f"deploy {ONE}"),
    ]
    assert rows[0]["origin"]["sudo"] == anna.name, "who called sudo -u"


def test_a_failed_build_is_listed_as_failed_with_the_place_of_the_reason(desk: Desk) -> None:
    check = "checks: [{{name: answer, run: [tool], expect: {0}{1}}}]\n"
    assert desk.deploy("1", check.format("2", ""), expect=3) == {ONE: "failed"}
    assert desk.deploy("2", check.format("2", ", needs: {arch: m68k}"), expect=3) == {TWO: "held"}
    assert desk.states() == {ONE: "failed", TWO: "held"}
    text = desk("list", "--all").out
    assert "failed, not published" in text and f"{desk.yard}/stacks/demo/1.0-default-1/report.json" in text
    assert "failed, not published" in desk("show", ONE).out and desk("list", "--json").value == []


def test_a_revision_that_fails_its_verification_is_listed_as_failed_until_it_passes(desk: Desk) -> None:
    on = "checks: [{name: file, run: [test, -e, %s]}]\n" % (desk.directory / "there")
    (desk.directory / "there").write_text("")
    desk.deploy("1", on)
    (desk.directory / "there").unlink()
    assert f"{ONE} is now listed as failed" in desk("verify", expect=3).out
    assert desk.states() == {ONE: "failed"} and desk.says("demo") == "1"
    assert desk.deploy("1", on, expect=3) == {ONE: "failed"}, "a deploy verifies it again"
    (desk.directory / "there").write_text("")
    assert f"{ONE} is now verified" in desk("verify").out
    assert desk.states() == {ONE: "published"} and desk.default() == ONE


def test_rollback_keeps_what_was_verified_and_undoes_deploys_not_verifications(desk: Desk) -> None:
    kind = "nodes: {big: {platform: linux-64, gpu: {count: %s}}}\nmodules: {formats: [tcl]}\n"
    (desk.directory / "site.yaml").write_text(kind % 4000)
    file = desk.stack("1", "checks: [{name: big, run: ['true'], needs: {node_kind: big}}]\n")
    desk("deploy", file, "--allow-unverified")
    desk.deploy("2")
    (desk.directory / "site.yaml").write_text(kind % 0)
    desk("verify", ONE)
    assert desk.states()[ONE] == "published"
    desk("rollback")
    assert desk.states() == {ONE: "published", TWO: "withdrawn"} and desk.default() == ONE


def test_a_dry_run_tells_that_labels_would_change(desk: Desk) -> None:
    desk.deploy("1")
    desk.stack("1", "modules: {deprecated: 2027-01-31 use demo/2}\n")
    told = desk("deploy", "--dry-run", desk.directory / "stack.yaml").out
    assert "would update its labels" in told and f"~ {ONE}  deprecated: 2027-01-31 use demo/2" in told
    value = desk("deploy", "--dry-run", "--json", desk.directory / "stack.yaml").value
    assert value["revisions"][0]["action"] == "updated" and ONE in value["changes"]["relabelled"]
    assert value["policy"] is False
    desk.stack("1")
    assert "nothing to do" in desk("deploy", "--dry-run", desk.directory / "stack.yaml").out


def test_a_new_policy_for_modules_reaches_what_is_published(desk: Desk) -> None:
    desk.deploy("1")
    file, site = desk.directory / "stack.yaml", desk.directory / "site.yaml"
    site.write_text("modules: {formats: [tcl], aliases: {tool: hammer}}\n")
    assert "would write all modules again" in desk("deploy", "--dry-run", file).out
    value = desk("deploy", "--json", file).value
    assert (value["generation"], value["revisions"][0]["status"]) == (2, "unchanged")
    assert 'module-alias "hammer/1"' in (desk.yard / "modules/.modulerc").read_text()
    assert desk("deploy", "--json", file).value["generation"] == 0
    assert desk("history", "--json").value[0]["reason"] == "policy of the site"


def test_history_tells_who_published_what_from_which_files(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    desk.deploy("1")
    desk.deploy("2")
    desk("rollback", "1")
    rows = desk("history", "--json").value
    assert [(r["number"], r["current"], r["content"], r["reason"]) for r in rows] == [
        (3, True, 1, "rollback to 1"),
        (2, False, 0, f"deploy {TWO}"),
        (1, False, 0, f"deploy {ONE}"),
    ]
    origin: dict[str, Any] = rows[1]["origin"]
    me = pwd.getpwuid(os.getuid()).pw_name
    assert (origin["user"], origin["uid"], origin["host"]) == (me, os.getuid(), socket.gethostname())
    assert origin["command"][-2:] == ["--json", str(desk.directory / "stack.yaml")] and origin["program"]
    names = {Path(f["path"]).name: f["sha256"] for f in origin["files"]}
    assert set(names) == {"site.yaml", "stack.yaml", "stack.yaml.lock"}
    sums = subprocess.run(["sha256sum", desk.directory / "stack.yaml"], capture_output=True, text=True, check=True)
    assert names["stack.yaml"] == sums.stdout.split()[0]
    assert rows[0]["changes"]["withdrawn"] == [TWO] and rows[0]["changes"]["defaults"] == {"demo": [TWO, ONE]}
    read: list[str] = []

    def counted(path: Path) -> Manifest:
        read.append(path.parent.name)
        return read_manifest(path)

    with monkeypatch.context() as patched:
        patched.setattr(generations, "read_manifest", counted)
        text = desk("history", "-n", "1").out
    assert read == ["3", "2"], "what is shown, and what that is compared with"
    assert f"{me}@{socket.gethostname()}  rollback to 1  (current)" in text and f"- {TWO}  withdrawn" in text
    assert f"deploy {TWO}" not in text
    one = desk("history", "2").out
    assert "stack.yaml.lock" in one and f"uid {os.getuid()}" in one and f"    {TWO}  (D)" in one
    assert "no such generation: 9" in desk("history", "9", expect=2).err


def test_history_lists_the_last_and_says_how_many_more(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STACKYARD_SITE", str(smallyard.give_site(tmp_path)))
    monkeypatch.setenv("STACKYARD_HOME", str(tmp_path / "yard"))
    smallyard.make(tmp_path / "yard", *(f"{n}.0" for n in range(1, 24)))
    lines = inside("history").out.splitlines()
    listed = [line.split()[0] for line in lines if line[:2].strip().isdecimal() and "  deploy " in line]
    assert listed == [str(n) for n in range(23, 3, -1)]
    assert lines[-1] == "3 earlier generations not listed: stackyard history -n 23, or --all"
    assert "1 earlier generation not listed: stackyard history -n 23, or --all" in inside("history", "-n", "22").out
    for words in (("-n", "23"), ("--all",)):
        whole = inside("history", *words).out
        assert " 1  " in whole and "earlier" not in whole
    assert len(inside("history", "--json").value) == 23 and len(inside("history", "--json", "-n", "2").value) == 2
    assert "-n and --all exclude each other" in inside("history", "--all", "-n", "2", expect=2).err


def test_history_of_an_empty_and_of_a_damaged_yard(desk: Desk) -> None:
    assert "no generations in" in desk("history").out and desk("history", "--json").value == []
    assert "nothing is published in" in desk("history", "3", expect=2).err
    assert "    1 package; " in desk("deploy", desk.stack("1")).out
    desk.deploy("2")
    (desk.yard / "generations/1/manifest.json").write_text("{")
    text = desk("history").out
    assert "1  damaged: cannot read" in text and "compared with generation 1: not known" in text
    (desk.yard / "modules").unlink()
    for words in (("history",), ("list",), ("deploy", desk.stack("3")), ("rollback",), ("verify",)):
        refused = desk(*words, expect=1)
        assert "missing link" in refused.err and "ln -sfn generations/2/modules" in refused.err
    assert sorted(p.name for p in (desk.yard / "generations").iterdir()) == ["0", "1", "2"]
