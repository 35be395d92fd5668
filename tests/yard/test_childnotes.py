"""The notes by which yards tell a parent what they extend: by real accounts, and what others put beside them."""

from __future__ import annotations

import json
import os
import signal
import time
from pathlib import Path

import pytest

from stackyard.yard.layout import Yard
from stackyard.yard.others import childnotes
from stackyard.yard.others.uses import open_to_users
from stackyard.yard.write import atomic
from stackyard.yard.write.permissions import Policy
from support.accounts import Account, Accounts

REGISTER = """
import sys
from pathlib import Path
from stackyard.yard.others import childnotes
from stackyard.yard.layout import Yard

parent, own = (Yard(Path(word)) for word in sys.argv[1:3])
own.root.mkdir(parents=True, exist_ok=True)
if sys.argv[3:]:
    print(childnotes.register(parent, own, sys.argv[3]))
else:
    childnotes.renew(own)
"""


@pytest.fixture
def parent(common: Path) -> Yard:
    """A yard into which every account may put notes."""
    yard = Yard(common / "yard")
    yard.root.mkdir()
    open_to_users(yard, Policy(0o022), count=True)
    assert yard.children.stat().st_mode & 0o7777 == 0o1733
    return yard


def record(own: Path, parent: Yard, base: str, name: str = "1") -> Path:
    """The record of an extension."""
    directory = own / "stacks/mine" / name
    directory.mkdir(parents=True)
    (directory / "record.json").write_text(json.dumps({"base": {"yard": str(parent.root), "id": base}}))
    return directory


def of(account: Account, parent: Yard, own: Path, *base: str, **options: object) -> str:
    """Register, or renew the notes without a base."""
    return account.python(REGISTER, parent.root, own, *base, **options).out.strip()


def said(parent: Yard) -> dict[Path, tuple[str, ...] | None]:
    """What the notes say, by yard; one for each."""
    notes = childnotes.notes(parent).notes
    assert len({note.root for note in notes}) == len(notes)
    return {note.root: note.bases for note in notes}


def test_a_user_notes_what_a_yard_extends_and_no_other_user_sees_it(accounts: Accounts, parent: Yard) -> None:
    anna, bert = accounts.user("anna", umask=0o077), accounts.user("bert")
    own = anna.home / "own"
    old = parent.child(own)
    old.write_text(json.dumps({"yard": str(own)}))
    os.chown(old, anna.uid, anna.gid)
    assert said(parent) == {own: None}, "of an earlier version"
    assert of(anna, parent, own, "tool/1") == "True"
    (note,) = childnotes.notes(parent).notes
    assert (note.uid, note.root, note.bases) == (anna.uid, own, ("tool/1",)), "in the place of the old one"
    file = parent.children / note.name
    assert file.stat().st_mode & 0o777 == 0o644 and note.name.startswith(f"{anna.uid}.")
    assert abs(note.changed - time.time()) < 60
    for command in (f"ls {parent.children}", f"rm -f {file}", f"mv {file} {file}.x", f"echo x > {file}"):
        assert bert.run("sh", "-c", command, expect=None).code, command


def test_a_note_follows_what_is_there(accounts: Accounts, parent: Yard) -> None:
    anna = accounts.user("anna")
    own = anna.home / "own"
    assert of(anna, parent, own, "tool/1") == "True"
    directory = record(own, parent, "tool/1")
    record(own, parent, "tool/2", "2")
    record(own, Yard(parent.root / "elsewhere"), "x/1", "3")
    os.rename(own / "stacks/mine/2", own / "moved")
    assert of(anna, parent, own, "tool/3") == "True"
    assert said(parent) == {own: ("tool/1", "tool/3")}
    assert of(anna, parent, own, "tool/4") == "True"
    assert said(parent) == {own: ("tool/1", "tool/3", "tool/4")}, "the other one may still be being built"
    (memory,) = (own / "registered").iterdir()
    value = {key: each for key, each in json.loads(memory.read_text()).items() if key != "checksum"}
    atomic.write_json(memory, {**value, "building": dict.fromkeys(value["building"], 0.0)}, checked=True)
    os.chown(memory, anna.uid, anna.gid)
    (own / "trash/t").mkdir(parents=True)
    os.rename(own / "moved", own / "trash/t/content")
    before = childnotes.notes(parent).notes
    of(anna, parent, own)
    assert said(parent) == {own: ("tool/1", "tool/2")}, "also what can be brought back from the trash"
    assert before != childnotes.notes(parent).notes
    before = childnotes.notes(parent).notes
    of(anna, parent, own)
    assert before == childnotes.notes(parent).notes, "the same is not written again"
    (parent.children / before[0].name).unlink()
    of(anna, parent, own)
    assert said(parent) == {own: ("tool/1", "tool/2")}, "one that is missing is"
    for left in (directory, own / "trash/t/content"):
        (left / "record.json").unlink()
    of(anna, parent, own)
    assert said(parent) == {} and not list((own / "registered").iterdir())
    record(own, parent, "tool/4", "4")
    of(anna, parent, own)
    assert said(parent) == {own: ("tool/4",)}, "also of a yard that remembers nothing"


def test_a_yard_that_was_moved_is_noted_at_its_new_place(tmp_path: Path) -> None:
    parent, own = Yard(tmp_path / "yard"), Yard(tmp_path / "own")
    parent.root.mkdir()
    record(own.root, parent, "tool/1")
    assert childnotes.register(parent, own)
    own.root.rename(tmp_path / "moved")
    childnotes.renew(Yard(tmp_path / "moved"))
    assert said(parent) == {tmp_path / "moved": ("tool/1",)}


def test_two_accounts_that_work_in_one_yard_each_have_a_note(accounts: Accounts, parent: Yard) -> None:
    anna, bert = (accounts.user(name, "staff", umask=0o002) for name in ("anna", "bert"))
    own = parent.root.parent / "project"
    own.mkdir()
    os.chown(own, anna.uid, anna.groups[0])
    own.chmod(0o2770)
    for account, base in ((anna, "tool/1"), (bert, "tool/2"), (anna, "tool/3")):
        assert of(account, parent, own, base) == "True"
    assert {(n.uid, n.bases) for n in childnotes.notes(parent).notes} == {
        (bert.uid, ("tool/2",)), (anna.uid, ("tool/1", "tool/3")),
    }  # fmt: skip


def test_where_it_cannot_be_written_it_is_not(accounts: Accounts, parent: Yard) -> None:
    anna = accounts.user("anna")
    parent.children.chmod(0o755)
    assert of(anna, parent, anna.home / "own", "tool/1") == "False"
    parent.children.rename(parent.root / "away")
    assert of(anna, parent, anna.home / "own", "tool/1") == "False"
    parent.children.symlink_to(parent.root / "away")
    (parent.root / "away").chmod(0o1733)
    assert of(anna, parent, anna.home / "own", "tool/1") == "False", "a link"


@pytest.mark.parametrize("point", ["write:1", "write:2", "child-noted:1"])
def test_killed_anywhere_one_note_is_left_after_the_next(tmp_path: Path, point: str) -> None:
    parent, own = Yard(tmp_path / "yard"), Yard(tmp_path / "own")
    own.root.mkdir()
    parent.root.mkdir()
    assert childnotes.register(parent, own, "tool/1")
    child = os.fork()
    if not child:
        os.environ["STACKYARD_FAULT"] = point
        atomic._hits.clear()
        childnotes.register(parent, own, "tool/2")
        os._exit(0)
    assert os.waitpid(child, 0)[1] == signal.SIGKILL
    noted = [note.bases for note in childnotes.notes(parent).notes]
    assert any(bases and "tool/1" in bases for bases in noted), "at no moment none"
    assert childnotes.register(parent, own, "tool/3")
    (bases,) = said(parent).values()
    assert bases and {"tool/1", "tool/3"} <= set(bases)


def test_what_others_put_there_is_named_and_left(accounts: Accounts, parent: Yard) -> None:
    anna, bert = accounts.user("anna"), accounts.user("bert")
    assert of(anna, parent, anna.home / "own", "tool/1") == "True"
    place, text = parent.children, json.dumps({"format": 2, "yard": "/x", "bases": []})
    names = {
        "directory": f"{bert.uid}.{0:016x}.json", "pipe": f"{bert.uid}.{1:016x}.json",
        "link": f"{bert.uid}.{2:016x}.json", "forged": f"{anna.uid}.{3:016x}.json", "word": "notes.txt",
        "odd": "\x1b[2J.json", "large": f"{bert.uid}.{4:016x}.json", "text": f"{bert.uid}.{5:016x}.json",
        "newer": f"{bert.uid}.{6:016x}.json", "relative": f"{bert.uid}.{7:016x}.json",
    }  # fmt: skip
    files = {
        "forged": text, "word": text, "odd": text, "large": f"{text}{' ' * 20_000}", "text": "[" * 5_000,
        "newer": text.replace("2", "3"), "relative": text.replace("/x", "x"),
    }  # fmt: skip
    bert.run("mkdir", place / names["directory"])
    bert.run("mkfifo", place / names["pipe"])
    bert.run("ln", "-s", place / names["pipe"], place / names["link"])
    for word, content in files.items():
        bert.python("import sys; open(sys.argv[1], 'w').write(sys.argv[2])", place / names[word], content)
    found = childnotes.notes(parent)
    assert [note.root for note in found.notes] == [anna.home / "own"] and found.unread == {}
    assert len(found.left) == 4 and found.left[3] == "children/: 7 more that stackyard does not write; left"
    assert all(each.endswith(": not a file that stackyard writes; left") for each in found.left[:3])
    assert all(each.isprintable() for each in found.left)
    assert all(os.path.lexists(place / name) for name in names.values())


def test_of_an_account_with_too_many_notes_none_counts(accounts: Accounts, parent: Yard) -> None:
    """Of twenty thousand names too, in a moment; those of others are read."""
    anna, bert = accounts.user("anna"), accounts.user("bert")
    assert of(anna, parent, anna.home / "own", "tool/1") == "True"
    one = parent.children / f"{bert.uid}.{0:016x}.json"
    one.write_text("{}")
    os.chown(one, bert.uid, bert.gid)
    for number in range(1, 20_000):
        os.link(one, parent.children / f"{bert.uid if number % 2 else anna.uid}.{number:016x}.json")
    moments = [time.monotonic()]
    for entry in os.scandir(parent.children):
        os.lstat(entry.path)
    moments.append(time.monotonic())
    found = childnotes.notes(parent)
    moments.append(time.monotonic())
    assert moments[2] - moments[1] < 20 * (moments[1] - moments[0]), "of the time in which they are listed"
    assert found.unread == {bert.uid: "more than 1,000 notes in children/"}
    assert [note.root for note in found.notes] == [anna.home / "own"]
