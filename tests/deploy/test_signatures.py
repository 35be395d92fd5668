"""Signed revisions: who signed what, and what is refused without, with the real ssh-keygen and ssh-agent."""

from __future__ import annotations

import json
import os
import shutil
import struct
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from stackyard.host.account import supervisor
from stackyard.host.files import acl
from stackyard.host.run import command
from stackyard.lock.base import extension as onbase
from stackyard.verify import expectations
from stackyard.yard import checksum
from stackyard.yard.generation import generations
from stackyard.yard.layout import Yard
from stackyard.yard.revision import revisions, signatures
from stackyard.yard.revision.directories import RevisionPaths
from stackyard.yard.revision.record import read_record
from stackyard.yard.write import atomic
from support import modules, programs, smallyard, sshkeys
from support.accounts import Accounts
from support.cli import STACKYARD, Done, inside

pytestmark = pytest.mark.real
EVERY = "[load, extend, pull, launch]"
USES = {
    "load": ("run", "--dry-run", "tool/1.0"),
    "extend": ("extend", "--base", "tool/1.0", "--name", "mine", "--pip", "idna", "--dry-run"),
    "launch": ("launch", "--with", "tool/1.0", "--dry-run", "--", "hello"),
}


@dataclass
class Bed:
    """A site with a yard of two revisions, the key of anna, who may sign, and that of a stranger."""

    directory: Path
    yard: Yard
    formats: str = "[tcl]"

    def write_site(self, more: str = "", key: str = "keys/anna") -> None:
        """The site's file; `more` are lines of its `signatures`."""
        named = f", key: {key}" if key else ""
        text = f"signatures: {{allowed_signers: signers{named}{more}}}"
        file = smallyard.give_site(self.directory, self.yard.root, text)
        file.write_text(file.read_text().replace("[tcl]", self.formats))

    def demand(self, what: str = EVERY, more: str = "") -> None:
        """From now on the yard demands signatures: any write command of its staff notes it."""
        self.write_site(f", require: {what}{more}")
        inside("withdraw", "tool/2.0")
        inside("withdraw", "tool/2.0-py311-1", "--undo")

    def paths(self, version: str = "1.0") -> RevisionPaths:
        return smallyard.revision(self.yard, version)

    def use(self, what: str, expect: int = 3) -> Done:
        """One use of tool/1.0 that does not become its program."""
        return inside(*USES[what], expect=expect)


@pytest.fixture
def bed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Bed:
    monkeypatch.setenv("STACKYARD_SITE", str(tmp_path / "site.yaml"))
    monkeypatch.setenv("STACKYARD_HOME", str(tmp_path / "yard"))
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)
    anna = sshkeys.key(tmp_path / "keys", "anna")
    sshkeys.key(tmp_path / "keys", "stranger")
    sshkeys.allow(tmp_path / "signers", anna=anna)
    made = Bed(tmp_path, smallyard.make(tmp_path / "yard", "1.0", "2.0"))
    made.write_site()
    signatures._judged.cache_clear()
    return made


def test_a_signature_names_its_signer_everywhere(bed: Bed) -> None:
    assert inside("sign", "tool/1.0", "--dry-run").out == "tool/1.0-py311-1: no signature\n"
    assert not bed.paths().signatures.exists()
    said = inside("sign", "tool/1.0").out
    assert said.startswith("tool/1.0-py311-1: anna@site (SHA256:")
    assert "anna@site" in inside("show", "tool/1.0").out
    assert [s["signer"] for s in inside("show", "tool/1.0", "--json").value["signatures"]] == ["anna@site"]
    rows = {row["module"]: row["signatures"] for row in inside("list", "--signed", "--json").value}
    assert rows == {"tool/1.0-py311-1": [said.split(": ", 1)[1].strip()], "tool/2.0-py311-1": []}
    assert "unsigned" in inside("list", "--signed").out
    report = inside("verify", "tool/1.0", "--json", expect=None).value["tool/1.0-py311-1"]
    assert [c["status"] for c in report["checks"] if c["name"] == "signatures"] == ["passed"]


def test_the_signature_can_be_checked_without_stackyard(bed: Bed) -> None:
    """What is signed is text that anybody can write from the two files."""
    import hashlib
    import subprocess

    inside("sign", "tool/1.0")
    (file,) = bed.paths().signatures.iterdir()
    hashes = [hashlib.sha256(path.read_bytes()).hexdigest() for path in (bed.paths().record, bed.paths().module)]
    text = f"stackyard-revision 1\nrecord {hashes[0]}\nmodule {hashes[1]}\n"
    words = ["ssh-keygen", "-Y", "verify", "-f", bed.directory / "signers", "-I", "anna@site", "-n",
             "revision@stackyard.io", "-s", file]  # fmt: skip
    subprocess.run(words, input=text, text=True, check=True)


@pytest.mark.parametrize("what", USES)
def test_what_has_no_signature_is_refused(bed: Bed, what: str) -> None:
    if what == "load":
        bed.use("load", expect=0)
    bed.demand(f"[{what}]")
    said = bed.use(what).err
    needed = f"cannot {what} tool/1.0-py311-1: it has no signature, and {bed.yard.root} demands a valid signature"
    assert needed in said and "stackyard sign tool/1.0-py311-1" in said
    inside("sign", "tool/1.0")
    assert "valid signature" not in bed.use(what, expect=None).err
    if what != "extend":  # which then fails, because this yard has no Python to extend
        bed.use(what, expect=0)


def changed_record(bed: Bed) -> None:
    """Somebody who can write changes what the module does, with a checksum that fits."""
    text = checksum.read(bed.paths().record).replace("HELLO_HOME", "HELLO_HOLE")
    atomic.write_text(bed.paths().record, checksum.add(text))


def changed_module(bed: Bed) -> None:
    text = checksum.read(bed.paths().module).replace("HELLO_HOME", "HELLO_HOLE")
    atomic.write_text(bed.paths().module, checksum.add(text))


def removed_module(bed: Bed) -> None:
    bed.paths().module.unlink()


def by_a_stranger(bed: Bed) -> None:
    shutil.rmtree(bed.paths().signatures)
    stranger = bed.directory / "keys/stranger"
    said = inside("sign", "tool/1.0", "--key", stranger, expect=1).err
    assert f"{stranger} is not an accepted signing key" in said and not bed.paths().signatures.exists()
    sshkeys.allow(bed.directory / "signers", stranger=stranger)
    inside("sign", "tool/1.0", "--key", stranger)
    sshkeys.allow(bed.directory / "signers", anna=bed.directory / "keys/anna")


def test_a_list_of_revoked_keys_that_is_missing(bed: Bed) -> None:
    bed.write_site(", require: [load], revoked: revoked")
    refused = inside("sign", "--all", expect=2).err
    assert f"cannot read the revoked keys in {bed.directory}/revoked: No such file" in refused
    assert command.run(refused.split("`")[1].split()).returncode == 0
    inside("sign", "--all")


def revoked(bed: Bed) -> None:
    sshkeys.keygen("-q", "-k", "-f", bed.directory / "revoked", bed.directory / "keys/anna.pub")
    bed.demand("[load]", ", revoked: revoked")


def expired(bed: Bed) -> None:
    with_options(bed, 'valid-before="20200101"')


def not_yet(bed: Bed) -> None:
    with_options(bed, 'valid-after="29990101"')


def for_mail_only(bed: Bed) -> None:
    with_options(bed, 'namespaces="file"')


def with_options(bed: Bed, options: str) -> None:
    (bed.directory / "signers").write_text(f"anna@site {options} {sshkeys.public(bed.directory / 'keys/anna')}\n")


def no_longer_listed(bed: Bed) -> None:
    (bed.directory / "signers").write_text("# nobody\n")


def garbled(bed: Bed) -> None:
    (file,) = bed.paths().signatures.iterdir()
    file.write_text(file.read_text().replace("BEGIN", "BEGUN"))


def of_another_revision(bed: Bed) -> None:
    inside("sign", "tool/2.0")
    (file,) = bed.paths().signatures.iterdir()
    shutil.copy(bed.paths("2.0").signatures / file.name, file)


def record_of_another_place(bed: Bed) -> None:
    """A record that names the directory of a signed revision, and other files."""
    record = replace(read_record(bed.paths("2.0").record), prefix="/tmp/elsewhere")
    atomic.write_json(bed.paths().record, record.to_json(), checked=True)


HARMS = {
    record_of_another_place: "its record is not the one in",
    changed_record: "it was changed after anna@site had signed it",
    changed_module: "it was changed after anna@site had signed it",
    removed_module: "it was changed after anna@site had signed it",
    of_another_revision: "it was changed after anna@site had signed it",
    by_a_stranger: "is not in",
    no_longer_listed: "is not in",
    revoked: "the key of anna@site was revoked",
    expired: "has expired, says",
    not_yet: "is not valid yet, says",
    for_mail_only: "anna@site may not sign revisions",
    garbled: "not a signature of ssh-keygen",
}


BROKEN = {record_of_another_place, changed_record, changed_module, removed_module, of_another_revision, garbled}
"""What `fsck` finds: signatures of something else. Who may sign is not about files."""


@pytest.mark.parametrize("harm", HARMS, ids=lambda harm: harm.__name__)
def test_what_is_not_validly_signed_is_refused_and_found_by_verify(bed: Bed, harm) -> None:
    bed.demand("[load]")
    inside("sign", "--all")
    bed.use("load", expect=0)
    harm(bed)
    said = bed.use("load").err
    assert "cannot load tool/" in said and HARMS[harm] in said
    faults = inside("fsck", "tool/1.0", "--json", expect=None).value["faults"]
    texts = [fault["text"] for fault in faults if "signatures" in fault["path"]]
    assert len(texts) == (harm in BROKEN)
    report = inside("verify", "tool/1.0", "--json", expect=3).value["tool/1.0-py311-1"]
    (found,) = [c for c in report["checks"] if c["name"] == "signatures"]
    assert found["status"] == "failed" and HARMS[harm] in found["detail"]


def test_a_check_that_changed_after_the_build_leaves_the_signature_valid(bed: Bed) -> None:
    """It is beside the record, and what was signed is the record."""
    inside("sign", "tool/1.0")
    bed.demand("[load]")
    later = expectations.Expectations(({"name": "it runs", "run": ["hello"]},), {"broken_commands": "warn"})
    expectations.keep(read_record(bed.paths().record), later)
    report = inside("verify", "tool/1.0", "--json", expect=None).value["tool/1.0-py311-1"]
    found = {check["name"]: check["status"] for check in report["checks"]}
    assert (found["it runs"], found["signatures"]) == ("passed", "passed")


def pipe(file: Path) -> None:
    os.mkfifo(file)


def link(file: Path) -> None:
    os.mkfifo(file.with_name("pipe"))
    file.symlink_to("pipe")


@pytest.mark.parametrize("make", [pipe, link])
def test_what_is_no_file_is_not_waited_for(bed: Bed, make: Callable[[Path], None]) -> None:
    inside("sign", "tool/1.0")
    bed.demand("[load]")
    make(bed.paths().signatures / "another.sig")
    bed.use("load", expect=0)
    (fault,) = inside("fsck", "tool/1.0", "--json", expect=3).value["faults"]
    assert fault["path"].endswith("another.sig") and "not a signature" in fault["text"]
    report = inside("verify", "tool/1.0", "--json", expect=None).value["tool/1.0-py311-1"]
    assert "another.sig: not a signature" in next(c for c in report["checks"] if c["name"] == "signatures")["detail"]


def no_list_named(bed: Bed) -> None:
    smallyard.give_site(bed.directory, bed.yard.root)
    inside("default", "tool/1.0")
    assert not bed.yard.signatures.exists()


@pytest.mark.parametrize("lists", [no_list_named, no_longer_listed, expired])
@pytest.mark.parametrize("harm", [None, changed_module, garbled])
def test_fsck_finds_a_broken_signature_whoever_may_sign(bed: Bed, lists, harm) -> None:
    inside("sign", "tool/1.0")
    lists(bed)
    if harm is not None:
        harm(bed)
    faults = inside("fsck", "tool/1.0", "--json", expect=None).value["faults"]
    texts = [fault["text"] for fault in faults if "signatures" in fault["path"]]
    assert len(texts) == (harm is not None), texts


@pytest.mark.parametrize(("namespace", "shown"), [("file", "file"), ("git\x1b[2J", r"git\x1b[2J")])
def test_a_signature_that_was_made_for_something_else_is_called_that(bed: Bed, namespace: str, shown: str) -> None:
    """Of this very text, by a key that may sign: only `-n` was another one."""
    bed.demand("[load]")
    text = bed.directory / "statement"
    text.write_text(signatures.statement(bed.paths()))
    sshkeys.keygen("-q", "-Y", "sign", "-f", bed.directory / "keys/anna", "-n", namespace, text)
    signatures.add(bed.paths(), (bed.directory / "statement.sig").read_text())
    reason = f"it was made for the namespace {shown}, expected revision@stackyard.io"
    assert f"cannot load tool/1.0-py311-1: {reason}, and" in bed.use("load").err
    report = inside("verify", "tool/1.0", "--json", expect=None).value["tool/1.0-py311-1"]
    assert [c["detail"] for c in report["checks"] if c["name"] == "signatures"] == [reason]
    faults = inside("fsck", "tool/1.0", "--json", expect=3).value["faults"]
    assert [fault["text"] for fault in faults if "signatures" in fault["path"]] == [reason]


def test_a_key_with_several_names_signs_by_the_one_that_may(bed: Bed) -> None:
    key = sshkeys.public(bed.directory / "keys/anna")
    (bed.directory / "signers").write_text(f'anna namespaces="git" {key}\nanna2 {key}\n')
    assert "anna2 (SHA256:" in inside("sign", "tool/1.0").out


def test_a_pattern_that_leaves_out_a_name_is_shown_by_what_it_takes_in(bed: Bed) -> None:
    (bed.directory / "signers").write_text(f"!m,* {sshkeys.public(bed.directory / 'keys/anna')}\n")
    assert ": * (SHA256:" in inside("sign", "tool/1.0").out


def a_link(bed: Bed) -> None:
    """To a list in a directory that everybody may write to."""
    (bed.directory / "open").mkdir()
    (bed.directory / "signers").rename(bed.directory / "open/signers")
    (bed.directory / "open").chmod(0o777)
    (bed.directory / "signers").symlink_to("open/signers")


def sticky(bed: Bed) -> None:
    """The bit keeps the names of a directory, and not what a file holds."""
    (bed.directory / "signers").chmod(0o1666)


def deeper(bed: Bed) -> Path:
    """The list two directories further down."""
    place = bed.directory / "above" / "etc"
    place.mkdir(parents=True)
    (bed.directory / "signers").rename(place / "signers")
    (bed.directory / "signers").symlink_to("above/etc/signers")
    return place


def above_of_all(bed: Bed) -> None:
    deeper(bed).parent.chmod(0o777)


def of_another(bed: Bed) -> None:
    os.chown(bed.directory / "signers", 12345, -1)


def above_of_another(bed: Bed) -> None:
    os.chown(deeper(bed).parent, 12345, -1)


@pytest.mark.parametrize(
    ("harm", "says"),
    [
        (a_link, "/open (owner root, mode 0777)"),
        (sticky, "/signers (owner root, mode 1666)"),
        (above_of_all, "/above (owner root, mode 0777)"),
        (of_another, "/signers (owner 12345, mode 0644)"),
        (above_of_another, "/above (owner 12345, mode 0755)"),
    ],
)
def test_a_list_that_others_could_change_is_refused(bed: Bed, harm, says: str) -> None:
    inside("sign", "tool/1.0")
    bed.demand("[load]")
    bed.use("load", expect=0)
    harm(bed)
    for said in (inside("sign", "tool/1.0", expect=2).err, bed.use("load", expect=2).err):
        assert f"{says} can be written by others than root, who could add a signer" in said
        assert "hint: chown root " in said if "12345" in says else "hint: chmod go-w " in said


def test_the_accounts_that_answer_for_the_site_may_own_the_list(bed: Bed, monkeypatch: pytest.MonkeyPatch) -> None:
    """The owner of the site's file, and that of the yard; and directories of a group, and with the sticky bit."""
    place = deeper(bed)
    place.parent.chmod(0o1777)
    os.chown(bed.directory / "site.yaml", 12345, -1)
    os.chown(place / "signers", 12345, -1)
    inside("sign", "tool/1.0")
    bed.demand("[load]")
    place.parent.chmod(0o775)
    monkeypatch.setattr(supervisor, "FOR_THE_MACHINE", [True])  # an account that is none can run nothing
    subprocess.run(["chown", "-R", "12346", bed.yard.root], check=True)
    os.chown(place, 12346, -1)
    inside("sign", "tool/1.0")
    bed.use("load", expect=0)
    os.chown(place / "signers", 12347, -1)
    assert "can be written by others than root and 12345 and 12346" in inside("sign", "tool/1.0", expect=2).err


@pytest.mark.parametrize("is_noted", [True, False], ids=["noted in the yard", "in the site's file only"])
def test_a_move_that_cannot_sign_is_refused_also_by_its_dry_run(bed: Bed, *, is_noted: bool) -> None:
    new = bed.directory / "new"
    assert inside("move", new, "--dry-run", "--json").value["revisions"]
    if is_noted:
        bed.demand("[load]")
    bed.write_site(", require: [load]", key="")
    who = bed.yard.root if is_noted else bed.directory / "site.yaml"
    for words in (("--dry-run",), ()):
        said = inside("move", new, *words, expect=2).err
        assert f"cannot publish in {new}: {who} demands signatures, and no key is named" in said
    assert not new.exists()
    if is_noted:
        bed.write_site(", require: [load]", key="keys/stranger")
        assert "is not an accepted signing key" in inside("move", new, "--dry-run", expect=1).err
    bed.write_site(", require: [load]")
    assert inside("move", new, "--dry-run", "--json").value["revisions"]


def by_acl(place: Path, *named: tuple[int, int]) -> None:
    """Give a place an ACL by which its owner may do all, all others read, and accounts or groups write."""
    rows = [(0x01, 7, -1), *((tag, 7, number) for tag, number in named), (0x04, 5, -1), (0x10, 7, -1), (0x20, 5, -1)]
    entries = (struct.pack("<HHI", tag, bits, number & 0xFFFFFFFF) for tag, bits, number in sorted(rows))
    try:
        os.setxattr(place, acl.ATTRIBUTE, struct.pack("<I", 2) + b"".join(entries))
    except OSError as error:
        pytest.skip(f"no ACLs on this file system: {error}")


ON_LIST, ON_DIRECTORY, ABOVE = "signers", "above/etc", "above"


@pytest.mark.parametrize(
    ("where", "tag", "says"),
    [
        (ON_LIST, acl.USER, "user:12345"),
        (ON_LIST, acl.GROUP, "group:12345"),
        (ON_DIRECTORY, acl.USER, "user:12345"),
        (ON_DIRECTORY, acl.GROUP, "group:12345"),
        (ABOVE, acl.USER, "user:12345"),
    ],
)
def test_a_list_that_an_acl_lets_others_change_is_refused(bed: Bed, where: str, tag: int, says: str) -> None:
    deeper(bed)
    inside("sign", "tool/1.0")
    bed.demand("[load]")
    bed.use("load", expect=0)
    place = (bed.directory / where).resolve()
    by_acl(place, (tag, 12345))
    for said in (inside("sign", "tool/1.0", expect=2).err, bed.use("load", expect=2).err):
        assert f"{place} (owner root, mode 0775, ACL {says}:w) can be written by others than root" in said
        assert f"hint: setfacl -x {says} {place}" in said
    os.removexattr(place, acl.ATTRIBUTE)
    place.chmod(0o755)
    bed.use("load", expect=0)


def test_an_acl_for_who_may_own_the_list_changes_nothing(bed: Bed) -> None:
    """The mode shows the mask of an ACL as the rights of the group, which has none; above, a group may write."""
    deeper(bed)
    os.chown(bed.directory / "site.yaml", 12345, -1)
    for where in (ON_LIST, ON_DIRECTORY):
        by_acl((bed.directory / where).resolve(), (acl.USER, 12345), (acl.USER, 0))
    by_acl(bed.directory / ABOVE, (acl.GROUP, 12346))
    inside("sign", "tool/1.0")
    bed.demand("[load]")
    bed.use("load", expect=0)


@pytest.mark.parametrize("system", modules.SYSTEMS)
def test_a_module_without_a_signature_refuses_and_unloads(bed: Bed, system: str) -> None:
    if reason := modules.missing(system, "bash"):
        pytest.skip(reason)
    bed.formats = "[lua, tcl]"
    environ = {"PATH": "/usr/bin:/bin", "HOME": str(bed.directory), "LANG": "C.UTF-8"}
    begin = (modules.initialise(system, "bash"), f"module use {bed.yard.modules}")
    load = "\n".join((*begin, "module load tool/1.0", 'echo "home: $HELLO_HOME."')) + "\n"
    assert "/stacks/tool/1.0" in modules.run("bash", load, environ, bed.directory)
    inside("sign", "tool/2.0")
    bed.demand("[load]")
    said = modules.run("bash", load, environ, bed.directory)
    assert "tool/1.0-py311-1 may not be loaded: it has no signature" in " ".join(said.split()) and "home: ." in said
    assert "home: /" in modules.run("bash", load.replace("1.0", "2.0"), environ, bed.directory)
    number = generations.current_number(bed.yard)
    inside("sign", "tool/1.0")
    assert generations.current_number(bed.yard) == number + 1
    (bed.directory / "signers").write_text("# nobody\n")
    later = f'cd {bed.directory}; sh again.sh; module unload tool; echo "home: $HELLO_HOME."\n'
    again = " ".join(("env", *(f"{name}='{value}'" for name, value in os.environ.items() if name.startswith("STACK")),
                      str(STACKYARD), "withdraw", "tool/2.0"))  # fmt: skip
    (bed.directory / "again.sh").write_text(again + "\n")
    said = modules.run("bash", load + later, environ, bed.directory)
    assert "/stacks/tool/1.0" in said and said.endswith("home: .\n"), "a shell that has it loaded unloads it"
    assert "may not be loaded" in " ".join(modules.run("bash", load, environ, bed.directory).split())
    sshkeys.allow(bed.directory / "signers", anna=bed.directory / "keys/anna")
    inside("sign", "tool/1.0")
    number = generations.current_number(bed.yard)
    inside("sign", "tool/1.0")
    assert generations.current_number(bed.yard) == number, "nothing changed"


def test_a_users_own_file_and_variables_do_not_lift_the_demand(bed: Bed) -> None:
    bed.demand()
    (bed.directory / "own.yaml").write_text("modules: {formats: [tcl]}\n")
    for words in (("--site", bed.directory / "own.yaml"), ()):
        for use in ("load", "launch"):
            done = inside(*words, "--yard", bed.yard.root, *USES[use], expect=3,
                          STACKYARD_SITE=str(bed.directory / "own.yaml"), STACKYARD_SIGN_KEY="/dev/null")  # fmt: skip
            assert "it has no signature" in done.err


def test_a_file_that_names_no_yard_does_not_replace_what_the_sites_file_demands(bed: Bed) -> None:
    bed.demand("[load]")
    before = bed.yard.signatures.read_bytes()
    own = bed.directory / "own.yaml"
    own.write_text("modules: {formats: [tcl]}\nsignatures: {allowed_signers: mine, require: [pull]}\n")
    sshkeys.allow(bed.directory / "mine", me=bed.directory / "keys/stranger")
    inside("--site", own, "default", "tool/1.0")
    assert bed.yard.signatures.read_bytes() == before
    mine = smallyard.make(bed.directory / "mine-yard", "7.0", stack="own")
    for what, words in (("pull", ()), ("launch", ("--undo",))):
        own.write_text(own.read_text().replace("[pull]", f"[{what}]"))
        inside("--site", own, "--yard", mine.root, "withdraw", "own/7.0-py311-1", *words)
        assert json.loads(checksum.read(mine.signatures))["require"] == [what], "its own note follows it"


@pytest.mark.parametrize("users", [False, True])
def test_a_site_decides_about_users_yards(bed: Bed, users: bool) -> None:
    bed.demand("[load]", f", users: {str(users).lower()}")
    mine = smallyard.make(bed.directory / "mine", "7.0", stack="own")
    words = ("--yard", mine.root, "run", "--dry-run", "own/7.0")
    assert (inside(*words, expect=None).code == 3) == users
    if users:
        stranger, anna = bed.directory / "keys/stranger", bed.directory / "keys/anna"
        said = inside("--yard", mine.root, "sign", "own/7.0", expect=2, STACKYARD_SIGN_KEY="").err
        assert "no key is named" in said and "STACKYARD_SIGN_KEY" in said
        said = inside("--yard", mine.root, "sign", "own/7.0", expect=1, STACKYARD_SIGN_KEY=str(stranger)).err
        assert "is not an accepted signing key" in said
        inside("--yard", mine.root, "sign", "own/7.0", STACKYARD_SIGN_KEY=str(anna))
        inside(*words)


def test_an_extension_is_used_if_its_base_is_signed(bed: Bed) -> None:
    """Also by who uses a file of their own, in which the base's yard is no parent."""
    smallyard.give_site(bed.directory)
    base = read_record(bed.paths().record)
    mine = Yard(bed.directory / "mine")
    layer = replace(smallyard.build(mine, "own", "7.0"), base=onbase.of_record(base))
    revisions.mark(layer)
    words = ("--yard", mine.root, "run", "--dry-run", "own/7.0-py311-1")
    inside(*words)
    bed.demand("[load]")
    smallyard.give_site(bed.directory)
    said = inside(*words, expect=3).err
    assert "cannot load own/7.0-py311-1: tool/1.0-py311-1, its base: it has no signature" in said
    bed.write_site(", require: [load]")
    inside("sign", "tool/1.0")
    smallyard.give_site(bed.directory)
    inside(*words)
    bed.demand("[load]", ", users: true")
    smallyard.give_site(bed.directory)
    assert "cannot load own/7.0-py311-1: it has no signature" in inside(*words, expect=3).err


def test_several_may_sign_and_one_valid_signature_is_enough(bed: Bed) -> None:
    inside("sign", "--all")
    bert = sshkeys.key(bed.directory / "keys", "bert")
    sshkeys.allow(bed.directory / "signers", anna=bed.directory / "keys/anna", bert=bert)
    bed.demand("[load]")
    inside("sign", "--all", "--key", bert)
    assert len(list(bed.paths().signatures.iterdir())) == 2
    sshkeys.allow(bed.directory / "signers", bert=bert)
    bed.use("load", expect=0)
    assert "is not in" in inside("show", "tool/1.0").out and "bert@site" in inside("show", "tool/1.0").out


def test_a_certificate_of_the_site_signs(bed: Bed) -> None:
    ca, carl = sshkeys.key(bed.directory / "keys", "ca"), sshkeys.key(bed.directory / "keys", "carl")
    sshkeys.keygen("-q", "-s", ca, "-I", "carl", "-n", "carl@site", "-V", "+1d", f"{carl}.pub")
    (bed.directory / "signers").write_text(f"*@site cert-authority {sshkeys.public(ca)}\n")
    said = inside("sign", "tool/1.0", "--key", f"{carl}-cert.pub").out
    assert "carl@site" in said
    bed.demand("[load]")
    bed.use("load", expect=0)


# --------------------------------------------------------------------------- keys


def test_a_key_with_a_passphrase_never_asks_and_signs_by_an_agent(bed: Bed) -> None:
    secret = sshkeys.key(bed.directory / "keys", "secret", "pass word")
    sshkeys.allow(bed.directory / "signers", dora=secret)
    began = time.monotonic()
    said = inside("sign", "tool/1.0", "--key", secret, expect=1).err
    assert f"cannot sign with {secret}: it has a passphrase, and no ssh-agent has the key" in said
    assert f"ssh-add {secret}" in said and time.monotonic() - began < 50, "a question would be waited for longer"
    alone = bed.directory / "dora.pub"
    alone.write_text(sshkeys.public(secret) + "\n")
    said = inside("sign", "tool/1.0", "--key", alone, expect=1).err
    assert f"cannot sign with {alone}: no ssh-agent has its private key" in said
    with sshkeys.agent(secret, "pass word") as variables:
        for each in (secret, alone):
            assert "dora@site" in inside("sign", "tool/1.0", "--key", each, **variables).out


def readable_by_all(bed: Bed) -> None:
    (bed.directory / "keys/anna").chmod(0o644)


def no_key(bed: Bed) -> None:
    (bed.directory / "keys/anna").unlink()


def no_list(bed: Bed) -> None:
    (bed.directory / "signers").unlink()


def list_of_all(bed: Bed) -> None:
    (bed.directory / "signers").chmod(0o664)


def directory_of_all(bed: Bed) -> None:
    bed.directory.chmod(0o777)


def bad_line(bed: Bed) -> None:
    (bed.directory / "signers").write_text("anna@site\n")


@pytest.mark.parametrize(
    ("harm", "code", "says"),
    [
        (readable_by_all, 1, "keys/anna: others can read it"),
        (no_key, 2, "keys/anna: no such file"),
        (no_list, 2, "signers: No such file or directory"),
        (list_of_all, 2, "signers (owner root, mode 0664) can be written by others than root"),
        (directory_of_all, 2, "(owner root, mode 0777) can be written by others than root"),
        (bad_line, 1, "signers:1: missing key"),
    ],
)
def test_what_is_wrong_with_a_key_or_a_list_is_named(bed: Bed, harm, code: int, says: str) -> None:
    harm(bed)
    done = inside("sign", "tool/1.0", expect=code)
    assert says in done.err and "hint:" in done.err and "Traceback" not in done.err


OLD = "#!/bin/sh\necho 'unknown option -- Y' >&2\necho 'usage: ssh-keygen [-q] [-b bits]' >&2\nexit 1\n"


@pytest.mark.parametrize("program", ["", OLD])
def test_without_a_program_that_can_check_nothing_is_accepted(
    bed: Bed, monkeypatch: pytest.MonkeyPatch, program: str
) -> None:
    inside("sign", "--all")
    bed.demand("[load]")
    signatures._judged.cache_clear()
    directory = bed.directory / "bin"
    directory.mkdir()
    if program:
        (directory / "ssh-keygen").write_text(program)
        (directory / "ssh-keygen").chmod(0o755)
    monkeypatch.setattr(command, "clean_environment", lambda **more: {"PATH": f"{directory}", **more})
    monkeypatch.setenv("PATH", str(directory))
    for words in (("run", "--dry-run", "tool/1.0"), ("sign", "tool/1.0")):
        said = inside(*words, expect=4).err
        assert "ssh-keygen" in said and "OpenSSH's client, 8.2 or newer" in said


def test_a_damaged_note_of_the_demand_is_never_no_demand(bed: Bed) -> None:
    bed.demand("[load]")
    inside("sign", "--all")
    bed.yard.signatures.write_text(bed.yard.signatures.read_text().replace("load", "lead"))
    said = inside("run", "--dry-run", "tool/1.0", expect=1).err
    assert "checksum mismatch" in said and f"stackyard --yard {bed.yard.root} sign --all" in said
    inside("sign", "--all")
    bed.use("load", expect=0)


def test_a_site_that_demands_without_naming_signers(bed: Bed) -> None:
    (bed.directory / "site.yaml").write_text("signatures:\n  require: [load]\n")
    said = inside("list", expect=2, STACKYARD_HOME="").err
    assert "site.yaml:2:" in said and "signatures.require: no allowed signers" in said


def test_the_demand_ends_with_the_sites_file(bed: Bed) -> None:
    bed.demand("[load]")
    assert json.loads(checksum.read(bed.yard.signatures))["require"] == ["load"]
    smallyard.give_site(bed.directory, bed.yard.root)
    inside("default", "tool/1.0")
    assert not bed.yard.signatures.exists()
    bed.use("load", expect=0)


def test_staff_and_users_are_different_accounts(accounts: Accounts, common: Path) -> None:
    """The staff's key is theirs; users run what is signed, and what another one signed is not for them."""
    programs.need("ssh-keygen")
    staff, user = accounts.user("signer"), accounts.user("user")
    for directory in ("etc", "yard"):
        (common / directory).mkdir()
        os.chown(common / directory, staff.uid, staff.gid)
    staff.run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", staff.home / "key")
    public = staff.run("cat", staff.home / "key.pub").out
    staff.run("sh", "-c", f"echo 'site {public.strip()}' > {common}/etc/signers")
    (common / "site.yaml").write_text(
        f"yard: {common}/yard\nmodules: {{formats: [tcl]}}\n"
        "signatures: {key: ~/key, allowed_signers: etc/signers, require: [load]}\n"
    )
    make = (
        "from support import smallyard; import sys; from pathlib import Path; smallyard.make(Path(sys.argv[1]), '1.0')"
    )
    tests = accounts.readable(Path(__file__).parents[1])
    staff.python(make, common / "yard", PYTHONPATH=str(tests))
    site = ("--site", str(common / "site.yaml"), "--yard", str(common / "yard"))
    staff.stackyard(*site, "sign", "--all")
    assert "hello tool 1.0" in user.stackyard(*site, "run", "tool/1.0", "--", "hello").out
    assert "permission denied" in user.stackyard(*site, "sign", "--all", expect=1).err
    user.run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", user.home / "key")
    theirs = user.run("cat", user.home / "key.pub").out
    staff.run("sh", "-c", f"echo 'user {theirs.strip()}' > {common}/etc/signers")
    said = user.stackyard(*site, "run", "tool/1.0", "--", "hello", expect=3).err
    assert f"is not in {common}/etc/signers" in said, "the staff's list holds at once, for everybody"
    staff.run("chmod", "g+w", common / "etc/signers")
    assert "can be written by others" in user.stackyard(*site, "run", "tool/1.0", "--", "hello", expect=2).err
