"""An extension keeps its base, whoever removes it: in yards of root, of a service account, of two of staff.

The yards of users are closed: an honest one, one with 10 x 10 links to a large record, one with a pipe as a record.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from stackyard.yard.generation import generations
from stackyard.yard.layout import Yard
from stackyard.yard.others import basesinuse
from support import smallyard
from support.accounts import Account, Accounts, give
from support.cli import Done

OLD, OTHER = "tool/1.0-py311-1", "tool/2.0-py311-1"
DAY_S = 86_400


@dataclass(frozen=True)
class Bed:
    """A site's yard, who owns it, one of its staff, and three users."""

    accounts: Accounts
    yard: Yard
    site: Path
    staff: Account | None
    users: tuple[Account, Account, Account]

    @property
    def words(self) -> tuple[str, ...]:
        """The options of every command."""
        return ("--site", str(self.site), "--yard", str(self.yard.root))

    def root(self, *words: str, expect: int | None = 0) -> Done:
        """Root's command."""
        return self.accounts.as_root(*self.words, *words, expect=expect, USER="root")

    def remove(self, *words: str, expect: int | None = 1) -> Done:
        """What staff type to remove the base; in a yard of root's, nobody else can."""
        if self.staff is None:
            return self.root("remove", OLD, *words, expect=expect)
        return self.staff.stackyard(*self.words, "remove", OLD, *words, expect=expect)

    def plan(self) -> dict[str, list[str]]:
        """What root's collection would keep."""
        kept: dict[str, list[str]] = self.root("gc", "--dry-run", "--json", "--keep", "0").value["kept"]
        return kept


def of_root(accounts: Accounts, yard: Yard) -> tuple[Account | None, str]:
    """Root's own."""
    return None, ""


def of_service(accounts: Accounts, yard: Yard) -> tuple[Account | None, str]:
    """An account's that does nothing else; staff become it."""
    service = accounts.user("stacks")
    give(yard.root, service)
    return service, ""


def of_group(accounts: Accounts, yard: Yard) -> tuple[Account | None, str]:
    """One of two staff owns it, the other one works in it too."""
    anna, bert = (accounts.user(name, "staff", umask=0o002) for name in ("anna", "bert"))
    give(yard.root, anna, anna.groups[0])
    for directory, _, files in os.walk(yard.root):
        Path(directory).chmod(0o2775)
        for name in files:
            if not Path(directory, name).is_symlink():
                Path(directory, name).chmod(0o664)
    return bert, f"permissions: {{group: {accounts.group('staff')}, umask: '0002'}}"


KINDS: dict[str, Callable[[Accounts, Yard], tuple[Account | None, str]]] = {
    "root": of_root, "service": of_service, "group": of_group,
}  # fmt: skip


def made(accounts: Accounts, common: Path, kind: str, text: str = "") -> Bed:
    """A yard of a kind whose older revision is withdrawn, so that `gc` would take it."""
    yard = smallyard.make(common / "yard", "1.0", "2.0", "3.0")
    staff, permissions = KINDS[kind](accounts, yard)
    text = f"user_yard: {common}/users/$USER/yard\n{permissions}\n{text}"  # not those of other tests' accounts
    site = smallyard.give_site(common, yard.root, text)
    users = (accounts.user("mary", umask=0o077), accounts.user("nora"), accounts.user("otto"))
    for user in users:
        directory = common / "users" / user.name
        directory.mkdir(parents=True)
        os.chown(directory, user.uid, user.gid)
        directory.chmod(0o700)
    bed = Bed(accounts, yard, site, staff, users)
    bed.root("withdraw", OLD)
    return bed


def record(directory: Path, yard: Path, base: str = OLD, **more: object) -> Path:
    """The record of an extension, in a yard that is one."""
    directory.mkdir(parents=True)
    (directory.parents[2] / "generations").mkdir(exist_ok=True)
    value = {"base": {"yard": str(yard), "id": base}, "module": "mine/1.0", **more}
    (directory / "record.json").write_text(json.dumps(value))
    return directory


def place(bed: Bed, user: Account) -> Path:
    """Where the yard of a user is: in a directory that nobody else can enter."""
    return bed.site.parent / "users" / user.name / "yard"


def closed(bed: Bed, user: Account, fill: Callable[[Path], object]) -> Path:
    """The yard of a user, filled."""
    root = place(bed, user)
    fill(root)
    give(root, user)
    return root


def links(root: Path, yard: Path) -> None:
    """10 x 10 links to one record of 4.4 MB."""
    directory = record(root / "stacks/mine/1.0", yard, OTHER, pad="x" * 4_400_000)
    for number in range(10):
        (root / f"stacks/l{number}").symlink_to(root / "stacks/mine")
        (root / f"stacks/mine/l{number}").symlink_to(directory)


def pipe(root: Path, yard: Path) -> None:
    """A pipe as a record, another one as a stack."""
    file = record(root / "stacks/mine/1.0", yard) / "record.json"
    file.unlink()
    os.mkfifo(file)
    os.mkfifo(root / "stacks/pipe")


def timed(bed: Bed) -> tuple[float, dict[str, list[str]]]:
    """The shorter of two collections of root's, and what it keeps."""
    taken = []
    for _ in range(2):
        start = time.monotonic()
        kept = bed.plan()
        taken.append(time.monotonic() - start)
    return min(taken), kept


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_root_sees_the_base_of_a_closed_extension_and_staff_cannot_take_it(
    accounts: Accounts, common: Path, kind: str
) -> None:
    bed = made(accounts, common, kind)
    before_s, kept = timed(bed)
    assert kept == {}, "the base alone would go"
    mary, nora, otto = bed.users
    own = closed(bed, mary, lambda root: record(root / "stacks/mine/1.0", bed.yard.root))
    closed(bed, nora, lambda root: links(root, bed.yard.root))
    closed(bed, otto, lambda root: pipe(root, bed.yard.root))
    after_s, kept = timed(bed)
    assert kept == {OLD: [f"base of mine/1.0 in {own}"]}
    assert after_s < before_s + 2, (before_s, after_s)
    refused = bed.remove()
    assert f"kept {OLD}: " in refused.out and f"not removed: {OLD}" in refused.err
    if bed.staff is not None:
        assert "permission denied" in refused.out and "let root run `stackyard gc` once" in refused.err
        bed.root("gc")
        refused = bed.remove()
        assert f"kept {OLD}: base of 1 extension, by bases-in-use.json of 20" in refused.out
        assert "mary" not in bed.yard.bases_in_use.read_text() and "nora" not in bed.yard.bases_in_use.read_text()
    assert [e.state for e in generations.entries(bed.yard) if e.module == OLD] == ["withdrawn"]
    bed.users[0].run("rm", "-r", own)
    bed.root("gc", "--keep", "9")  # it stays, and is known not to be used
    bed.remove(expect=0)
    assert [e.state for e in generations.entries(bed.yard) if e.module == OLD] == ["removed"]


USED = """
import json, sys
from pathlib import Path
from stackyard.upkeep.gc.inuse import Watch
from stackyard.inputs.sites.site import load_site
from stackyard.yard.layout import Yard

seen = Watch(load_site(Path(sys.argv[2])), Yard(Path(sys.argv[1]))).look()
print(json.dumps([seen.of(name) for name in sys.argv[3:]]))
"""
EXTENDS = """
import sys
from pathlib import Path
from stackyard.yard.others.children import register
from stackyard.yard.layout import Yard

own = Path(sys.argv[2])
own.joinpath("leases").mkdir(parents=True, exist_ok=True)
print(register(Yard(Path(sys.argv[1])), Yard(own), sys.argv[3]))
"""
NOTED = "base of an extension in {}, by its note"
BY_FILE = "base of {} extension{}, by bases-in-use.json of {}"


def used(bed: Bed, *modules: str) -> list[list[str]]:
    """Who uses revisions, as the one of staff sees it."""
    assert bed.staff is not None
    found: list[list[str]] = json.loads(bed.staff.python(USED, bed.yard.root, bed.site, *modules).out)
    return found


def extends(user: Account, bed: Bed, base: str) -> Path:
    """Register as `extend` does before it builds: there is no record yet."""
    own = place(bed, user)
    assert user.python(EXTENDS, bed.yard.root, own, base).out.strip() == "True"
    return own


def date_of(bed: Bed) -> str:
    """The day of the last look that could look everywhere."""
    found = basesinuse.read(bed.yard, 1, [])
    assert found is not None
    return found.day


@pytest.mark.slow
def test_what_holds_where_staff_cannot_look(accounts: Accounts, common: Path) -> None:
    """What the last full look found, and what notes say since; a note that does not say it holds everything."""
    bed = made(accounts, common, "service")
    mary, nora, otto = bed.users
    own = closed(bed, mary, lambda root: record(root / "stacks/mine/1.0", bed.yard.root))
    ((everything,), same) = used(bed, OLD, OTHER)
    assert everything.startswith("possibly the yards of ") and everything.endswith(": permission denied")
    assert same == [everything]
    extends(nora, bed, OTHER)
    bed.root("gc", "--keep", "9")
    by_file = BY_FILE.format(1, "", date_of(bed))
    assert used(bed, OLD, OTHER) == [[by_file], [by_file]], "one that may be being built, by its note"
    theirs = extends(otto, bed, OTHER)
    assert used(bed, OLD, OTHER) == [[by_file], [NOTED.format(theirs), by_file]], "noted since the look"
    old = bed.yard.child(own)
    mary.run("sh", "-c", f"""printf '{{"yard": "%s"}}' {own} > {old}""")
    maybe = f"possibly the yard of {mary.name}, which cannot be looked into: permission denied: "
    assert used(bed, "x/1") == [[f"{maybe}children/{old.name}"]]
    mary.run("chmod", "644", old)
    unknown = f"{maybe[:-2]}, and its note does not say what it extends"
    assert used(bed, "x/1") == [[unknown]], "noted since the look by an earlier version"
    bed.root("gc", "--keep", "9")
    by_file = BY_FILE.format(2, "s", date_of(bed))
    assert used(bed, OLD, OTHER, "x/1") == [[BY_FILE.format(1, "", date_of(bed))], [by_file], []]


@pytest.mark.slow
def test_who_and_what_is_believed_of_the_last_look(accounts: Accounts, common: Path) -> None:
    bed = made(accounts, common, "group", "removal: {unseen_days: 3}")
    assert bed.staff is not None
    file, mary = bed.yard.bases_in_use, bed.users[0]
    bed.root("gc", "--keep", "9")
    assert used(bed, OLD) == [[]]
    before = file.read_bytes()
    bed.staff.stackyard(*bed.words, "gc", "--keep", "9")
    assert file.read_bytes() == before and file.stat().st_mode & 0o777 == 0o644, "staff can look at less"
    own = closed(bed, mary, lambda root: record(root / "stacks/mine/1.0", bed.yard.root))
    for number in range(2_001):
        (own / "stacks/mine" / str(number)).mkdir()
    told = bed.root("gc", "--keep", "0")
    assert f"cannot look into the yard {own}: more than 2,000 records" in told.err
    assert f"kept {OLD}: base of mine/1.0 in {own}" in told.out, "what was found counts"
    assert file.read_bytes() == before, "what a complete look knew is not lost by one that is not"
    assert used(bed, OLD) == [[]], "and is believed"
    value = json.loads(before)
    for days, reasons in ((2, []), (4, ["possibly the yar"])):
        basesinuse.write(bed.yard, time.time() - days * DAY_S, value["bases"])
        os.chown(file, bed.yard.root.stat().st_uid, -1)
        assert [text[:16] for text in used(bed, OLD)[0]] == reasons, days
    file.write_bytes(before)
    os.chown(file, bed.staff.uid, -1)
    assert used(bed, OLD)[0], "written by one of staff"
    os.chown(file, bed.yard.root.stat().st_uid, -1)
    file.write_bytes(before.replace(b'"bases": {}', b'"bases": {"x/1": 1}'))
    assert used(bed, OLD)[0], "with another checksum"


@pytest.mark.slow
def test_root_removes_despite_an_account(accounts: Accounts, common: Path) -> None:
    """What its notes say, and what its yard has or hides; but not under a process that runs."""
    bed = made(accounts, common, "service")
    mary, nora, _ = bed.users
    own = closed(bed, mary, lambda root: record(root / "stacks/mine/1.0", bed.yard.root))
    extends(mary, bed, OLD)
    for number in range(1_001):
        (bed.yard.children / f"{nora.uid}.{number:016x}.json").write_text("{}")
        os.chown(bed.yard.children / f"{nora.uid}.{number:016x}.json", nora.uid, nora.gid)
    words = ("remove", OLD, "--despite")
    refused = bed.root(*words, mary.name, expect=1)
    crowd = "more than 1,000 notes in children/"
    assert f"kept {OLD}: possibly the yard of {nora.name}, which cannot be looked into: {crowd}" in refused.out
    assert "--despite ACCOUNT" in refused.err
    refused = bed.root(*words, str(nora.uid), expect=1)
    assert f"base of mine/1.0 in {own}" in refused.out
    assert bed.staff is not None
    for account, words_of in ((bed.staff, bed.words), (mary, ("--yard", str(own)))):
        denied = account.stackyard(*words_of, *words, mary.name, expect=None)
        assert denied.code == 2, denied
    assert "only root removes what another account may be using" in bed.staff.stackyard(
        *bed.words, *words, mary.name, expect=2).err  # fmt: skip
    assert "no such account: nobody-at-all" in bed.root(*words, "nobody-at-all", expect=2).err
    assert "exclude each other" in bed.root(*words, mary.name, "--undo", expect=2).err
    waiting = "import time; print(1, flush=True); time.sleep(60)"
    cwd = smallyard.revision(bed.yard, "1.0").prefix
    with mary.popen(bed.accounts.bin / "python", "-c", waiting, cwd=cwd, stdout=-1) as process:
        assert process.stdout and process.stdout.readline()
        refused = bed.root(*words, mary.name, "--despite", nora.name, expect=1)
        assert f"kept {OLD}: process {process.pid} of {mary.name}" in refused.out
        process.kill()
    bed.root(*words, mary.name, "--despite", nora.name)
    assert next(generations.readable(bed.yard)).reason == f"remove {OLD}, despite {mary.name}, despite {nora.name}"
